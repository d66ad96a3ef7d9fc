package dashboard

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/sizing"
)

// The planner is opened and moved by the keyboard, and says what the load needs and what
// is missing.
func TestPagePlans(t *testing.T) {
	chrome := browsertest.Start(t)
	access, err := NewAccess("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := chrome.Open("http://"+host+"/", chromedp.EmulateViewport(400, 900))
	p.Until(browsertest.Text("#status", "live"))
	p.Run(browsertest.Script("document.querySelector('#plan-section summary').focus()"), chromedp.KeyEvent("\r"))
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
	p.Until(browsertest.Text("#plan-says", verdict(func(*sizing.Input) {})) + " && document.querySelectorAll('#plan-lines tbody tr').length > 10")
	p.Until(browsertest.Has("#plan label", "as many as needed"))
	p.Run(browsertest.Script("document.querySelector('#plan input[name=rate]').focus()"), chromedp.KeyEvent(kb.End))
	p.Until(browsertest.Text("#plan-says", verdict(func(in *sizing.Input) { in.Rate = 5e6 })) + " && " + browsertest.Has("#plan label", "5,000,000"))
	p.Run(browsertest.Script("document.querySelector('#plan input[name=workers]').focus()"), chromedp.KeyEvent(kb.ArrowRight))
	p.Until(browsertest.Has("#plan-short li", "workers"))
	p.Until("document.querySelector('#plan input[name=workers]').getAttribute('aria-valuetext') === '1'")
	p.Until("document.documentElement.scrollWidth <= 400")
	p.Clean(host)
}
