package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/events"
)

// day is a stream of a whole day at 200,000 a second, five minutes at a time, as fast as a
// page takes it.
type day struct {
	feed *Feed
	on   chan struct{} // gets a value when the next quarter of the day may come; never closed
}

const (
	snapshots = 24 * 60 / 5
	quarter   = snapshots / 4
)

// next adds what workers tell in five minutes, with names that are new each time, and returns
// what a page is sent.
func (d *day) next(i int) ([]byte, error) {
	now := start.Add(time.Duration(i) * 5 * time.Minute)
	for w := range 2 {
		e := counted(fmt.Sprintf("source-%d-%d", w, i/10), int64(i%10*2+1), now)
		for l := range 3 {
			e.Counts = append(e.Counts, events.Count{Lane: fmt.Sprint("lane-", l), App: "shop", Type: "t", Provider: "fcm", State: delivered, N: 300 * 33_000})
		}
		for k := range 20 {
			e.Counts = append(e.Counts, events.Count{Lane: "lane-0", App: fmt.Sprint("app-", i, "-", w, "-", k), Type: "t", Provider: "fcm", State: "FAILED", Reason: fmt.Sprint("word-", i, "-", k), N: 1000})
		}
		d.feed.Add(e, now)
		s := worker(fmt.Sprint("worker-", w, "-", i/10), []string{"open", "paused"}[i%2])
		for r := range 200 {
			s.Routes = append(s.Routes, events.RouteState{Provider: "fcm", App: fmt.Sprint("app-", i%7, "-", r), Gate: "open"})
		}
		fails := make([]events.Failure, 20)
		for j := range fails {
			fails[j] = events.Failure{ID: fmt.Sprint("n-", i, "-", w, "-", j), Lane: "lane-0", App: "shop", Type: "t", State: "FAILED", Reason: "UNREGISTERED", At: now}
		}
		d.feed.Add(&events.Event{Source: e.Source, Number: e.Number + 1, At: now, State: &s, Failures: fails}, now)
	}
	return d.feed.Encode(now, Kind{})
}

// ServeHTTP is the stream.
func (d *day) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := writer{Writer: w, flush: http.NewResponseController(w).Flush, deadline: func() error { return nil }}
	for i := range snapshots {
		text, err := d.next(i)
		if err != nil || out.send(text, false) != nil {
			return
		}
		if (i+1)%quarter == 0 {
			select {
			case <-d.on:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// A page that has looked on for a day is as large as after its first hours: what it is sent
// replaces what was there.
func TestPageIsBounded(t *testing.T) {
	chrome := browsertest.Start(t)
	w, err := NewAccess("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	site := newWorld(t, w).site
	d := &day{feed: NewFeed(), on: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			d.ServeHTTP(w, r)
			return
		}
		site.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer server.CloseClientConnections() // a stream has no end
	p := chrome.Open(server.URL)
	var before, after float64
	for i := quarter; i <= snapshots; i += quarter {
		if i > quarter {
			d.on <- struct{}{}
		}
		p.Until(fmt.Sprintf("document.body.innerText.includes('n-%d-')", i-1)) // the last one so far
		if after = heap(p); before == 0 {
			before = after
		}
	}
	t.Logf("%.1f MB of heap after 6 hours, %.1f after 24", before/1e6, after/1e6)
	if after > 100e6 || after > 2*before {
		t.Errorf("%.1f MB of heap after a day, %.1f after its first six hours; want less than 100, and no more than twice as much", after/1e6, before/1e6)
	}
}

// heap is how many bytes the page's scripts use, once what they do not is collected.
func heap(p *browsertest.Tab) (bytes float64) {
	p.Run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return err
		}
		usage, err := cdp.Call(ctx, t, runtime.GetHeapUsage, cdp.Empty{})
		if err != nil {
			return err
		}
		bytes = usage.UsedSize
		return nil
	}))
	return bytes
}
