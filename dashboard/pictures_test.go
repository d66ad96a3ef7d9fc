package dashboard

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/events"
)

// envPictures, if set, is the directory that pictures of the page are written to.
const envPictures = "PUSHFLEET_PICTURES"

// wave is what a made-up fleet counts in a span of seconds: it rises and falls with the
// day, and each 25 minutes a campaign comes.
func wave(at time.Time, span float64) []events.Count {
	hours := float64(at.Unix()%86_400) / 3600
	day := 1 + 0.6*math.Sin((hours-9)/24*2*math.Pi) + 0.04*math.Sin(float64(at.Unix())/40) + 0.02*math.Sin(float64(at.Unix())/7)
	n := func(a float64) int64 { return int64(a * day * span) }
	campaign := 1 + 3*math.Exp(-math.Pow(math.Mod(float64(at.Unix())/60, 25)-18, 2)/6)
	return []events.Count{
		{Lane: "transactional", App: "shop", Type: "order_update", Provider: "apns", State: "DELIVERED", N: n(4100)},
		{Lane: "transactional", App: "shop", Type: "order_update", Provider: "fcm", State: "DELIVERED", N: n(2900)},
		{Lane: "transactional", App: "shop", Type: "news", Provider: "fcm", State: "DELIVERED", N: n(700 * campaign)},
		{Lane: "critical", App: "bank", Type: "otp", Provider: "fcm", State: "DELIVERED", N: n(420)},
		{Lane: "transactional", App: "shop", Type: "order_update", Provider: "fcm", State: "FAILED", Reason: "UNREGISTERED", N: n(65)},
		{Lane: "transactional", App: "shop", Type: "news", State: "SUPPRESSED", Reason: "limited:news-a-day", N: n(110 * campaign)},
		{Lane: "transactional", App: "shop", Type: "news", State: "HELD", Reason: "quiet_hours", N: n(18)},
		{Lane: "transactional", App: "shop", Type: "news", State: "SUPPRESSED", Reason: "opted_out_type", N: n(60)},
	}
}

// What the pictures show could be so: each reason stands in docs/reasons.md under its state,
// or is a provider's own word.
func TestThePicturesReasonsAreReal(t *testing.T) {
	text, err := os.ReadFile("../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range wave(time.Unix(1_000_000, 0), 60) {
		code, detail, ruled := strings.Cut(c.Reason, ":")
		if code == "" || code[0] < 'a' { // it went well, or a provider said so
			continue
		}
		if ruled {
			code += ":<rule>"
		}
		_, section, _ := strings.Cut(string(text), "\n## "+c.State+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !strings.Contains(section, "| `"+code+"` |") || ruled && detail == "" {
			t.Errorf("nothing ends %s for %s", c.State, c.Reason)
		}
	}
}

// flow tells a third of what the fleet counts, each second, until the test ends.
func (w *world) flow(source string) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ctx.Err() == nil {
			now := time.Now().UTC()
			w.tell(events.Event{Source: source, From: now.Add(-time.Second), At: now, Counts: wave(now, 1.0/3)})
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	w.t.Cleanup(func() { cancel(); telling.Wait() })
}

// The pictures of the README: a day of a made-up fleet, which goes on while they are taken.
func TestPictures(t *testing.T) {
	if os.Getenv(envPictures) == "" {
		t.Skip("no pictures are wanted: " + envPictures + " names no directory")
	}
	chrome := browsertest.Start(t)
	access, err := NewAccess("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	now := time.Now().UTC().Truncate(time.Second)
	n := int64(0)
	for at := now.Add(-24 * time.Hour); at.Before(now); { // by minutes, and by seconds where the curve is
		step := time.Minute
		if now.Sub(at) <= 20*time.Minute {
			step = time.Second
		}
		at = at.Add(step)
		n++
		w.feed.Add(counted("past", n, at, wave(at, step.Seconds())...), at)
	}
	for i := range 8 {
		w.tell(events.Event{Source: "a", Failures: []events.Failure{{ID: "0199f3c2-8c11-7a50-9d1e-2b7c55e0a1" + string(rune('a'+i)) + "4", Lane: "transactional", App: "shop", Type: "order_update",
			Provider: "fcm", State: "FAILED", Reason: "UNREGISTERED", At: now.Add(-time.Duration(i) * 7 * time.Second)}}})
	}
	for i, source := range []string{"a", "b", "c"} {
		w.flow(source)
		w.live(source, func() events.State {
			s := worker("worker-"+source, "open")
			s.Started, s.Stalls, s.Memory = now.Add(-51*time.Hour), nil, int64(1800+130*i)<<20
			s.Lanes = nil
			for j, lane := range []string{"critical", "transactional"} {
				open := []int64{40, 2100}[j] + int64(7*i) + time.Now().Unix()%13
				s.Lanes = append(s.Lanes, events.LaneState{Lane: lane, Topic: "push." + lane, Partitions: []int32{int32(i)}, Open: open, Pushes: open / 8, Oldest: time.Now().Add(-1400 * time.Millisecond)})
			}
			s.Lanes[0].Partitions = []int32{int32(i)}[:min(1, 2-i)] // of two partitions the third worker has none
			if i == 2 {
				s.Lanes[1].Partitions = []int32{2, 3}
			}
			s.Routes = []events.RouteState{
				{Provider: "apns", App: "shop", Environment: "production", Gate: "open", Share: 1500, Connections: 10, Streams: 10_000, InFlight: 310, Answers: []events.AnswerState{{Class: "delivered", N: 91_200}}},
				{Provider: "fcm", App: "shop", Gate: "open", RateName: "fcm/example-shop", Rate: 8000, Base: 10_000, Share: 900, Connections: 10, Streams: 1000, InFlight: 120, Word: "QUOTA_EXCEEDED",
					Answers: []events.AnswerState{{Class: "delivered", N: 52_700}, {Class: "gone", Reason: "UNREGISTERED", N: 1300}}},
				{Provider: "fcm", App: "bank", Gate: "open", Share: 140, Connections: 4, Streams: 400, InFlight: 9, Answers: []events.AnswerState{{Class: "delivered", N: 8300}}},
				{Provider: "apns", App: "bank", Environment: "production", Gate: "paused", Until: now.Add(4 * time.Minute), Word: "TooManyRequests", Connections: 2, Streams: 2000},
			}
			if i == 1 {
				s.Stalls = []events.StallState{{Reason: "route_paused", Lane: "critical", Topic: laneTopic, Route: "apns/bank/production", Since: now.Add(-20 * time.Second)}}
			}
			return s
		})
	}
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	for name, page := range map[string][]chromedp.Action[chromedp.Void]{
		"desktop.png": {chromedp.EmulateViewport(1400, 1250)}, "dark.png": {chromedp.EmulateViewport(1400, 1250), dark()}, "phone.png": {chromedp.EmulateViewport(400, 1950)}} {
		p := chrome.Open("http://"+host+"/", page...)
		p.Until(browsertest.Text("#status", "live") + " && document.querySelectorAll('#workers tbody tr').length === 3 && document.querySelectorAll('#routes li').length === 4")
		p.Until("parseInt(document.querySelector('[data-now=sent]').textContent.replace(',', '')) > 3000") // it goes on
		if name == "phone.png" {
			p.Until(narrow)
		}
		picture(t, p, name)
	}
}

// picture writes what the page looks like.
func picture(t *testing.T, p *browsertest.Tab, name string) {
	t.Helper()
	dir := os.Getenv(envPictures)
	shot, err := chromedp.Run(p.Context(), chromedp.CaptureScreenshot())
	if err != nil {
		p.Fail(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dashboard-"+name), shot, 0o644); err != nil {
		t.Fatal(err)
	}
}
