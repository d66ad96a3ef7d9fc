package dashboard

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pushfleet/pushfleet/sizing"
)

// The planner is opened and moved by the keyboard, and says what the load needs and what
// is missing.
func TestPagePlans(t *testing.T) {
	chrome := browser(t)
	access, err := NewAccess("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := open(t, chrome, "http://"+host+"/", chromedp.EmulateViewport(400, 900))
	p.until(text("#status", "live"))
	p.run(script("document.querySelector('#plan-section summary').focus()"), chromedp.KeyEvent("\r"))
	verdict := func(change func(*sizing.Input)) string {
		t.Helper()
		in := sizing.Default()
		in.Rate = 50_000
		change(&in)
		plan, err := sizing.Of(in)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Verdict()
	}
	p.until(text("#plan-says", verdict(func(*sizing.Input) {})) + " && document.querySelectorAll('#plan-lines tbody tr').length > 10")
	p.until(has("#plan label", "as many as needed"))
	p.run(script("document.querySelector('#plan input[name=rate]').focus()"), chromedp.KeyEvent(kb.End))
	p.until(text("#plan-says", verdict(func(in *sizing.Input) { in.Rate = 5e6 })) + " && " + has("#plan label", "5,000,000"))
	p.run(script("document.querySelector('#plan input[name=workers]').focus()"), chromedp.KeyEvent(kb.ArrowRight))
	p.until(has("#plan-short li", "workers"))
	p.until("document.querySelector('#plan input[name=workers]').getAttribute('aria-valuetext') === '1'")
	p.until("document.documentElement.scrollWidth <= 400")
	p.clean(host)
}
