package dashboard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// browserTime bounds what a page may take to show something on a busy machine.
const browserTime = 2 * time.Minute

// browser starts a real browser. Without one the test fails where real servers are
// wanted, and is passed over elsewhere.
func browser(t *testing.T) context.Context {
	t.Helper()
	wanted := os.Getenv(local.EnvServers) != ""
	path := ""
	for _, name := range []string{"chromium", "chromium-headless-shell", "google-chrome", "chromium-browser"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	switch {
	case !wanted:
		t.Skip("no browser is started: make test, or `go run ./deploy/local/servers run -- go test ./dashboard`, do so")
	case path == "":
		t.Fatal("no browser: deploy/local/fetch.sh --tests installs chromium on Debian")
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(browserTime))...)
	t.Cleanup(cancel)
	return ctx
}

// tab is a page of the browser, with what it complained of and whom it asked.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex // guards the two below
	faults   []string
	requests []string
}

// open opens a page.
func open(t *testing.T, browser context.Context, url string, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	p := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithErrorf(func(string, ...any) {}), chromedp.WithListener(func(event any) { // errors are values of the protocol that are new
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.faults = append(p.faults, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
				for _, word := range e.Args {
					p.faults = append(p.faults, "console: "+string(word.Value)+word.Description)
				}
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				p.faults = append(p.faults, e.Entry.Text+" "+e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			p.requests = append(p.requests, e.Request.URL)
		}
	}))
	t.Cleanup(cancel)
	p.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // it begins here, and lives as long as this context
		t.Fatal(err)
	}
	p.run(append(before, chromedp.Navigate(url))...)
	return p
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, browserTime)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.fail(err)
	}
}

// fail ends the test with what the page says.
func (p *tab) fail(err error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	says, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText")) // best effort
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Fatalf("%v; faults %v; the page says\n%s", err, p.faults, says)
}

// until waits until an expression is true in the page. It is asked from outside: the
// page's policy allows no evaluation in it.
func (p *tab) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, browserTime)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); err == nil && is {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.fail(fmt.Errorf("not true: %s", expression))
		}
	}
}

// script runs a script in the page.
func script(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](text)
}

// clean checks that the page complained of nothing and asked nobody else. Some complaints
// are expected.
func (p *tab) clean(host string, expected ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		known := false
		for _, e := range expected {
			known = known || strings.Contains(f, e)
		}
		if !known {
			p.t.Errorf("the page complains: %s", f)
		}
	}
	if len(p.requests) == 0 {
		p.t.Error("no request was seen")
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, "http://"+host+"/") && !strings.HasPrefix(url, "data:") {
			p.t.Errorf("it asked for %s", url)
		}
	}
}

// text is an expression: the text of the first element of a selector is this.
func text(selector, want string) string {
	return fmt.Sprintf("document.querySelector(%q)?.textContent === %q", selector, want)
}

func has(selector, want string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%q)].some((n) => n.textContent.includes(%q))", selector, want)
}

const hostile = "<img src=x onerror=alert(1)>"

// What workers have told is on the page, exactly; it follows what becomes of routes and
// workers, and outlives a restart of its server.
func TestPage(t *testing.T) {
	chrome := browser(t)
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

	p := open(t, chrome, "http://"+host+"/", chromedp.EmulateViewport(1400, 1000))
	p.until(text("#status", "live"))
	p.until(text("[data-now=in_progress]", "12"))
	p.until(text("[data-now=queued]", "38"))
	p.until(has("#outcomes-total", "123,543 since"))
	p.until(has("[data-facet=state] button", "DELIVERED123,456"))
	p.until(has("[data-facet=app] button", hostile+"78"))
	p.until(has("#routes li", "apns / shop") + " && document.querySelector('#routes li').dataset.lamp === 'open'")
	p.until("document.querySelectorAll('#workers tbody tr').length === 2")
	p.until("document.querySelectorAll('img').length === 0")
	p.until("[...document.querySelectorAll('[data-facet=reason] button')].some((b) => b.title.includes('no longer on the device'))")

	// A route is paused; a worker is gone.
	gate.Store(&paused)
	p.until("document.querySelector('#routes li').dataset.lamp === 'paused' && " + has("#routes li", "TooManyRequests"))
	gate.Store(&opened)
	kill()
	p.until("document.querySelectorAll('#workers tbody tr').length === 1 && " + has("#gone li", "worker-b"))
	p.until(text("[data-now=in_progress]", "6"))
	p.until(has("#outcomes-total", "123,543 since"))

	// A click narrows everything, also by the keyboard, and back.
	p.run(script("[...document.querySelectorAll('[data-facet=app] button')].find((b) => b.textContent.startsWith('<img')).focus()"), chromedp.KeyEvent("\r"))
	p.until(has("#outcomes-total", "78 since") + " && location.search.startsWith('?app=')")
	p.run(chromedp.Click(chromedp.CSS("#filter button")))
	p.until(has("#outcomes-total", "123,543 since") + " && location.search === ''")

	// A failure is looked up by a click, and an unknown id by its name; a user by a form.
	p.run(chromedp.Click(chromedp.CSS("#failures button.id")))
	p.until(text("[data-outcome]", "FAILED") + " && " + has("#answer-body", "no longer on the device"))
	p.run(chromedp.SetValue(chromedp.CSS("#find input"), "order-17"), chromedp.Click(chromedp.CSS("#find button")))
	p.until(text("[data-outcome]", "NONE") + " && " + has("#answer-body", "never produced"))
	p.run(chromedp.SetValue(chromedp.CSS("#user input[name=user]"), "u42"), chromedp.Click(chromedp.CSS("#user button")))
	p.until(has("[data-steps] li", "the user has no device"))

	// The server is restarted; the page goes on by itself.
	stop()
	p.until("document.querySelector('#status').className === 'lost'")
	w.tell(events.Event{Source: "a", Counts: []events.Count{{Lane: "critical", App: "shop", Type: "otp", Provider: "apns", State: "DELIVERED", N: 44}}})
	w.serve(host)
	p.until(text("#status", "live") + " && " + has("#outcomes-total", "123,587 since"))
	p.clean(host, "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")

	// As wide as a phone nothing hangs over; dark too.
	phone := open(t, chrome, "http://"+host+"/", chromedp.EmulateViewport(400, 900), dark())
	phone.until(text("#status", "live") + " && " + has("#outcomes-total", "123,587 since"))
	phone.until("document.querySelectorAll('#workers tbody tr').length === 1 && document.querySelectorAll('#outcomes tbody tr').length === 3")
	phone.until(narrow)
	phone.until("getComputedStyle(document.body).backgroundColor === 'rgb(16, 18, 22)'")
	phone.clean(host)
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
	chrome := browser(t)
	const key = "a-key-of-more-than-24-characters"
	access, err := NewAccess(key, "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := open(t, chrome, "http://"+host+"/")
	p.run(chromedp.WaitVisible(chromedp.CSS("#login")), chromedp.SetValue(chromedp.CSS("input[name=key]"), "wrong"), chromedp.Click(chromedp.CSS("#login button")), chromedp.WaitVisible(chromedp.CSS("#wrong")))
	p.run(chromedp.SetValue(chromedp.CSS("input[name=key]"), key), chromedp.Click(chromedp.CSS("#login button")))
	p.until(text("#status", "live"))
	p.run(chromedp.Click(chromedp.CSS("#logout button")), chromedp.WaitVisible(chromedp.CSS("#login")))
	p.run(chromedp.Navigate("http://"+host+"/"), chromedp.WaitVisible(chromedp.CSS("#login")))
	p.clean(host)
}
