package dashboard

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

const hostile = "<img src=x onerror=alert(1)>"

// What workers have told is on the page, exactly; it follows what becomes of routes and
// workers, and outlives a restart of its server.
func TestPage(t *testing.T) {
	chrome := browsertest.Start(t)
	access, err := NewAccess("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	now := time.Now().UTC()
	w.tell(events.Event{Source: "a", At: now.Add(-10 * time.Minute), Counts: []events.Count{
		{Lane: "critical", App: "shop", Type: "otp", Provider: "apns", State: "DELIVERED", N: 123_456},
		{Lane: "critical", App: hostile, Type: hostile, Provider: "fcm", State: "FAILED", Reason: "UNREGISTERED", N: 78},
		{Lane: "promotional", App: "bank", Type: "news", State: "SUPPRESSED", Reason: "opted_out_type", N: 9},
	}})
	w.tell(events.Event{Source: "a", Failures: []events.Failure{{ID: "n-failed", Lane: "critical", App: hostile, State: "FAILED", Reason: "UNREGISTERED", At: now}}})
	w.lookups.rows["n-failed"] = []push.Row{{ID: "n-failed", Device: "d1", State: push.StateFailed, Platform: push.FCM, Reason: "UNREGISTERED", At: now}}
	var records []kafka.Record
	for range 50 {
		records = append(records, kafka.Record{Key: []byte("u"), Value: []byte("{}")})
	}
	if err := w.lane.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	var gate atomic.Pointer[string]
	opened, paused := "open", "paused"
	gate.Store(&opened)
	states := func(name string) func() events.State {
		return func() events.State {
			s := worker(name, *gate.Load())
			s.Started = now.Add(-time.Hour)
			s.Lanes[0].Open, s.Lanes[0].Oldest = 6, time.Now().Add(-3*time.Second)
			s.Routes[0].Until, s.Routes[0].Rate = time.Now().Add(time.Minute), s.Routes[0].Base
			s.Stalls = nil
			return s
		}
	}
	w.live("a", states("worker-a"))
	kill := w.live("b", states("worker-b"))
	w.read()
	host, stop := w.serve("127.0.0.1:0")

	p := chrome.Open("http://"+host+"/", chromedp.EmulateViewport(1400, 1000))
	p.Until(browsertest.Text("#status", "live"))
	p.Until(browsertest.Text("[data-now=in_progress]", "12"))
	p.Until(browsertest.Text("[data-now=queued]", "38"))
	p.Until(browsertest.Has("#outcomes-total", "123,543 since"))
	p.Until(browsertest.Has("[data-facet=state] button", "DELIVERED123,456"))
	p.Until(browsertest.Has("[data-facet=app] button", hostile+"78"))
	p.Until(browsertest.Has("#routes li", "apns / shop") + " && document.querySelector('#routes li').dataset.lamp === 'open'")
	p.Until("document.querySelectorAll('#workers tbody tr').length === 2")
	p.Until("document.querySelectorAll('img').length === 0")
	p.Until("[...document.querySelectorAll('[data-facet=reason] button')].some((b) => b.title.includes('no longer on the device'))")

	// A route is paused; a worker is gone.
	gate.Store(&paused)
	p.Until("document.querySelector('#routes li').dataset.lamp === 'paused' && " + browsertest.Has("#routes li", "TooManyRequests"))
	gate.Store(&opened)
	kill()
	p.Until("document.querySelectorAll('#workers tbody tr').length === 1 && " + browsertest.Has("#gone li", "worker-b"))
	p.Until(browsertest.Text("[data-now=in_progress]", "6"))
	p.Until(browsertest.Has("#outcomes-total", "123,543 since"))

	// A click narrows everything, also by the keyboard, and back.
	p.Run(browsertest.Script("[...document.querySelectorAll('[data-facet=app] button')].find((b) => b.textContent.startsWith('<img')).focus()"), chromedp.KeyEvent("\r"))
	p.Until(browsertest.Has("#outcomes-total", "78 since") + " && location.search.startsWith('?app=')")
	p.Click("#filter button")
	p.Until(browsertest.Has("#outcomes-total", "123,543 since") + " && location.search === ''")

	// A failure is looked up by a click, and an unknown id by its name; a user by a form.
	p.Click("#failures button.id")
	p.Until(browsertest.Text("[data-outcome]", "FAILED") + " && " + browsertest.Has("#answer-body", "no longer on the device"))
	p.Fill("#find input", "order-17")
	p.Click("#find button")
	p.Until(browsertest.Text("[data-outcome]", "NONE") + " && " + browsertest.Has("#answer-body", "never produced"))
	p.Fill("#user input[name=user]", "u42")
	p.Click("#user button")
	p.Until(browsertest.Has("[data-steps] li", "the user has no device"))

	// The server is restarted; the page goes on by itself.
	stop()
	p.Until("document.querySelector('#status').className === 'lost'")
	w.tell(events.Event{Source: "a", Counts: []events.Count{{Lane: "critical", App: "shop", Type: "otp", Provider: "apns", State: "DELIVERED", N: 44}}})
	w.serve(host)
	p.Until(browsertest.Text("#status", "live") + " && " + browsertest.Has("#outcomes-total", "123,587 since"))
	p.Clean(host, browsertest.Restarted()...)

	// As wide as a phone nothing hangs over; dark too.
	phone := chrome.Open("http://"+host+"/", chromedp.EmulateViewport(400, 900), dark())
	phone.Until(browsertest.Text("#status", "live") + " && " + browsertest.Has("#outcomes-total", "123,587 since"))
	phone.Until("document.querySelectorAll('#workers tbody tr').length === 1 && document.querySelectorAll('#outcomes tbody tr').length === 3")
	phone.Until(narrow)
	phone.Until("getComputedStyle(document.body).backgroundColor === 'rgb(16, 18, 22)'")
	phone.Clean(host)
}

// narrow is an expression: nothing hangs over a phone's width, nor scrolls within it.
const narrow = "document.documentElement.scrollWidth <= 400 && [...document.querySelectorAll('.wide')].every((n) => n.scrollWidth <= n.clientWidth)"

// dark makes a page dark.
func dark() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		return err
	})
}

// With a key the page asks for it, and then has a session.
func TestPageAsksForKey(t *testing.T) {
	chrome := browsertest.Start(t)
	const key = "a-key-of-more-than-24-characters"
	access, err := NewAccess(key, "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := chrome.Open("http://" + host + "/")
	p.Fill("input[name=key]", "wrong")
	p.Click("#login button")
	p.Run(chromedp.WaitVisible(chromedp.CSS("#wrong")))
	logIn(p, key)
	p.Run(chromedp.Click(chromedp.CSS("#logout button")), chromedp.WaitVisible(chromedp.CSS("#login")))
	p.Run(chromedp.Navigate("http://"+host+"/"), chromedp.WaitVisible(chromedp.CSS("#login")))
	p.Clean(host)
}
