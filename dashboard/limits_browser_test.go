package dashboard

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/push"
)

// Senders stand on the page against their limits, in words for who does not see the curve,
// and on a phone; a click on a rule leaves those that are under it.
func TestPageShowsLimits(t *testing.T) {
	chrome := browsertest.Start(t)
	access, err := NewAccess("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	now := time.Now().UTC()
	under := func(rule, sender string, fills, share float64, limited int64) events.SenderLimit {
		return events.SenderLimit{Rule: rule, Sender: sender, Limit: 1000, Window: 86_400, Fills: fills, Share: share, Now: share, Limited: limited}
	}
	w.tell(events.Event{Source: "a", At: now.Add(-20 * time.Minute), Limits: &events.Limits{Senders: []events.SenderLimit{under("a-day", hostile, 86_400, 3, 1)}}})
	w.tell(events.Event{Source: "a", Limits: &events.Limits{Senders: []events.SenderLimit{under("a-day", hostile, 86_400, 3, 1), under("others", "orders", 1e8, 0.5, 0)}}})
	w.tell(events.Event{Source: "a", Counts: []events.Count{
		{Lane: "promotional", App: "shop", Type: "news", Provider: "apns", State: "DELIVERED", N: 90},
		{Lane: "promotional", App: "shop", Type: "news", State: "HELD", Reason: "limit_waits:a-day", N: 9},
		{Lane: "promotional", App: "shop", Type: "news", State: "SUPPRESSED", Reason: "limited:per-user", N: 1},
	}})
	sketch := new(events.Sketch)
	for u := range 3 {
		sketch.Add(push.UserHash(string(rune('a' + u))))
	}
	w.tell(events.Event{Source: "a", Limits: &events.Limits{Users: []events.LimitedUsers{{Rule: "a-day", Sketch: sketch}}}})
	w.read()
	host, _ := w.serve("127.0.0.1:0")

	p := chrome.Open("http://"+host+"/", chromedp.EmulateViewport(1400, 1000))
	p.Until(browsertest.Text("#status", "live"))
	p.Until("document.querySelectorAll('#senders > li').length === 2")
	p.Until(browsertest.Text("#senders h4", hostile) + " && document.querySelectorAll('img').length === 0")
	p.Until(browsertest.Has("#senders li:first-child .bad", "% of its limit: another one waits 2 days"))
	p.Until(browsertest.Has("#senders li:first-child", "a-day: 1,000 in a day · limited 2 times in the last hour"))
	p.Until(browsertest.Text("#senders li:last-child div", "50 % of its limit"))
	p.Until("document.querySelector('#senders li:first-child svg').getAttribute('role') === 'img' && document.querySelector('#senders li:first-child svg').getAttribute('aria-label').includes('at most 200 %, last 200 %')")
	p.Until("document.querySelector('#senders').getAttribute('aria-labelledby') === 'senders-h'")
	p.Until(browsertest.Has("#limits-says", "10 % of what was counted"))

	// How many users that were is said to be about so many, and nothing where nobody tells.
	cells := func(rule string) string {
		return "[...document.querySelectorAll('#limits-rules tbody tr')].find((r) => r.firstChild.textContent === '" + rule + "')?.textContent"
	}
	p.Until(cells("a-day") + " === 'a-day09about 3about 3' && " + cells("per-user") + " === 'per-user10'")
	p.Until(browsertest.Has("#doubts", "how many users a rule limited is estimated"))

	// By the keyboard the page is narrowed to a rule, and its senders with it.
	p.Run(browsertest.Script("[...document.querySelectorAll('#limits-rules button')].find((b) => b.textContent === 'a-day').focus()"), chromedp.KeyEvent("\r"))
	p.Until("document.querySelectorAll('#senders > li').length === 1 && " + browsertest.Text("#senders h4", hostile))
	p.Run(chromedp.Click(chromedp.CSS("#filter button")))
	p.Until("document.querySelectorAll('#senders > li').length === 2")
	p.Clean(host)

	phone := chrome.Open("http://"+host+"/", chromedp.EmulateViewport(400, 900), dark())
	phone.Until(browsertest.Text("#status", "live") + " && document.querySelectorAll('#senders > li').length === 2")
	phone.Until(narrow)
	phone.Until("[...document.querySelectorAll('#senders > li')].every((n) => n.scrollWidth <= n.clientWidth && n.getBoundingClientRect().right <= 400)")
	phone.Until("getComputedStyle(document.querySelector('#senders h4')).color === 'rgb(232, 234, 238)'")
	phone.Clean(host)
}
