package pipeline

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// nobody is every collaborator that only has to be there.
type nobody struct {
	Source
	Producer
	Status
	Ledger
	Seen
}

func goodOptions() Options {
	return Options{Lane: "critical", Source: nobody{}, Producer: nobody{}, Status: nobody{}, Ledger: nobody{}, Seen: nobody{},
		Routes:       map[push.Route]Provider{{Platform: push.APNS, App: "shop"}: nil, {Platform: push.FCM, App: "shop"}: nil, {Platform: push.FCM, App: "news"}: nil},
		Policy:       Policy{RetryDelays: []time.Duration{time.Minute}, DropAmbiguous: true},
		StageWorkers: 1, Window: 7, SendDeadline: time.Second, StatusTimeout: time.Second, Drain: 3 * time.Second, CommitTimeout: time.Second, CommitInterval: time.Second,
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
}

// asks is a recheck that is never asked.
type asks struct{}

func (asks) Recheck(context.Context, []*Delivery) error { return nil }

// Options that cannot work are refused at once; the last values that can are not.
func TestOptionsThatCannotWork(t *testing.T) {
	for why, change := range map[string]func(*Options){
		"no source":                func(o *Options) { o.Source = nil },
		"no producer":              func(o *Options) { o.Producer = nil },
		"no status":                func(o *Options) { o.Status = nil },
		"no ledger":                func(o *Options) { o.Ledger = nil },
		"no filter":                func(o *Options) { o.Seen = nil },
		"no metrics":               func(o *Options) { o.Metrics = nil },
		"no log":                   func(o *Options) { o.Log = nil },
		"no stage worker":          func(o *Options) { o.StageWorkers = 0 },
		"less than no room":        func(o *Options) { o.StageRecords = -1 },
		"no window":                func(o *Options) { o.Window = 0 },
		"no deadline":              func(o *Options) { o.SendDeadline = 0 },
		"no drain":                 func(o *Options) { o.Drain = 0 },
		"no time-out of rows":      func(o *Options) { o.StatusTimeout = 0 },
		"no time-out of commits":   func(o *Options) { o.CommitTimeout = 0 },
		"no commit interval":       func(o *Options) { o.CommitInterval = 0 },
		"rechecks without an end":  func(o *Options) { o.Recheck, o.RecheckAfter = asks{}, time.Second-1 },
		"retries without a delay":  func(o *Options) { o.Policy.RetryDelays = nil },
		"at most once, more often": func(o *Options) { o.Once, o.Policy.DropAmbiguous = true, false },
		"a drain that is too short": func(o *Options) {
			o.Drain -= time.Nanosecond
		},
	} {
		o := goodOptions()
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
	for why, change := range map[string]func(*Options){
		"all of them":                func(*Options) {},
		"the shortest recheck":       func(o *Options) { o.Recheck, o.RecheckAfter = asks{}, time.Second },
		"a time, but nothing to ask": func(o *Options) { o.RecheckAfter = time.Millisecond },
		"at most once":               func(o *Options) { o.Once = true },
	} {
		o := goodOptions()
		change(&o)
		if _, err := New(o); err != nil {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// What a hard kill can repeat is each route's window.
func TestTheBoundIsAllWindows(t *testing.T) {
	o := goodOptions()
	if _, err := New(o); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(o.Metrics.boundGauge.WithLabelValues("critical")); got != 3*7 {
		t.Errorf("got a bound of %v, want that of 3 windows of 7", got)
	}
}

// A line whose route is stopped asks again when it may go on, and not all the time.
func TestAStoppedRouteSaysWhenToAskAgain(t *testing.T) {
	o := goodOptions()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r := p.routes[push.Route{Platform: push.APNS, App: "shop"}]
	ds := waitingFor("a", 3)
	n, _, _ := p.admit(now, r.lines[gates.Free], ds)
	if n == 0 {
		t.Fatal("setup: the route takes nothing")
	}
	ds[0].Result = push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: 2 * time.Second}
	returnTickets(now, ds[:n])
	n, again, lack := p.admit(now, r.lines[gates.Free], ds)
	if n != 0 || lack != gates.RouteStopped || again.Before(now.Add(2*time.Second)) {
		t.Errorf("got %d admitted, %v lacking, again in %v; want none for 2 s", n, lack, again.Sub(now))
	}
}

// A line that ends while it waits is no stall any more.
func TestALineThatEndsIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(goodOptions())
		if err != nil {
			t.Fatal(err)
		}
		r := p.routes[push.Route{Platform: push.APNS, App: "shop"}]
		l, ds, now := r.lines[gates.Free], waitingFor("a", 3), time.Now()
		for _, d := range ds {
			d.Expires = push.At(now.Add(time.Hour))
		}
		n, _, _ := p.admit(now, l, ds)
		ds[0].Result = push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: 2 * time.Second}
		returnTickets(now, ds[:n])
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.submit(ctx, l, ds); close(ended) }()
		time.Sleep(time.Second)
		if open, _ := p.Declared(); len(open) != 1 {
			t.Errorf("stalls %+v while the route is stopped, want one", open)
		}
		stop()
		<-ended
		if open, _ := p.Declared(); len(open) != 0 {
			t.Errorf("stalls %+v after the end, want none", open)
		}
	})
}
