package gates_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// wardBoard is a board that keeps quarantines too.
type wardBoard struct {
	*board
	wmu     sync.Mutex
	stopped map[gates.Quarantined]time.Time // guarded by wmu; keys without Left and Word
}

func (b *wardBoard) Quarantine(ctx context.Context, qs []gates.Quarantined) error {
	if err := b.away(ctx); err != nil {
		return err
	}
	b.wmu.Lock()
	defer b.wmu.Unlock()
	for _, q := range qs {
		b.stopped[gates.Quarantined{Route: q.Route, Origin: q.Origin}] = time.Now().Add(q.Left)
	}
	return nil
}

func (b *wardBoard) Quarantined(ctx context.Context) (qs []gates.Quarantined, err error) {
	if err := b.away(ctx); err != nil {
		return nil, err
	}
	b.wmu.Lock()
	defer b.wmu.Unlock()
	for q, until := range b.stopped {
		if q.Left = time.Until(until); q.Left > 0 {
			qs = append(qs, q)
		}
	}
	return qs, nil
}

func (b *wardBoard) release() {
	b.wmu.Lock()
	defer b.wmu.Unlock()
	clear(b.stopped)
}

var (
	ofAutumn = push.Message{Campaign: "autumn", SenderID: "marketing", Priority: push.Low}
	autumn   = push.Culprit{Origin: push.Origin{Kind: push.OfCampaign, Name: "autumn", Sender: "marketing"}}
	wardOf   = push.Route{Platform: push.APNS, App: "shop", Environment: push.Production}
)

func wardGates(t *testing.T, o gates.Options) *gates.Gates {
	t.Helper()
	gs, err := gates.New([]push.Route{wardOf}, o, gates.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return gs
}

// A result that names an origin stops that and leaves its route open: what others send goes
// on, and what is critical does.
func TestAnOriginIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []gates.Quarantined
		o := gates.DefaultOptions()
		o.Quarantined = func(q gates.Quarantined) { told = append(told, q) }
		g := wardGates(t, o).Of(wardOf)
		now := time.Now()
		ticket, n, _, _ := g.Admit(now, gates.Free, false, 100)
		if n != 100 || ticket.Quarantined(now, &ofAutumn) {
			t.Fatalf("%d let through", n)
		}
		for range 100 {
			gates.Return(now, []gates.Answer{{Ticket: ticket, Result: &push.Result{Class: push.Again, Scope: push.ScopeDevice, Halt: true, Reason: "BadDeviceToken", Culprit: &autumn}}})
		}
		if len(told) != 1 || told[0].Origin != autumn.Origin || told[0].Route != wardOf || told[0].Left != time.Hour || told[0].Word != "BadDeviceToken" {
			t.Errorf("told %+v, want it once", told)
		}
		if v := g.View(now); v.Condition != gates.Open || v.Quarantined != 1 {
			t.Errorf("the gate: %+v", v)
		}
		for m, want := range map[*push.Message]push.Reason{
			&ofAutumn: push.CampaignQuarantined,
			{Campaign: "autumn", SenderID: "marketing", Priority: push.Critical}: "",
			{Campaign: "autumn", SenderID: "stranger", Priority: push.Medium}:    "",
			{Campaign: "autumn", Priority: push.Medium}:                          "",
			{Campaign: "winter", SenderID: "marketing", Priority: push.Medium}:   "",
			{SenderID: "autumn", Priority: push.Medium}:                          "",
			{Priority: push.Medium}:                                              "",
		} {
			until, why := g.Quarantined(now, m)
			if why != want || (why != "") != until.Equal(now.Add(time.Hour)) || ticket.Quarantined(now, m) != (why != "") {
				t.Errorf("%+v: %q until %v", m, why, until)
			}
		}
		if _, why := g.Quarantined(now.Add(time.Hour), &ofAutumn); why != "" {
			t.Error("it goes on for longer than is configured")
		}
		if !g.Quarantine(now, push.Culprit{Origin: push.Origin{Kind: push.OfSender, Name: "marketing"}, For: time.Minute}, "x") {
			t.Error("its sender is not stopped")
		}
		sender := &push.Message{SenderID: "marketing", Priority: push.Low}
		if until, _ := g.Quarantined(now, sender); !until.Equal(now.Add(time.Minute)) {
			t.Errorf("a sender on trial waits until %v", until)
		}
		proven := push.Culprit{Origin: push.Origin{Kind: push.OfSender, Name: "marketing"}}
		gates.Return(now, []gates.Answer{{Ticket: ticket, Result: &push.Result{Class: push.Delivered, Culprit: &proven}}})
		if until, _ := g.Quarantined(now, sender); !until.Equal(now.Add(time.Hour)) || len(told) != 3 {
			t.Errorf("one whose fault is proven waits until %v; told %+v", until, told)
		}
	})
}

// Where nothing may be stopped but the route, or too much is, the route is halted.
func TestWhatCannotBeStoppedHaltsTheRoute(t *testing.T) {
	answer := func(g *gates.Gate, now time.Time, origin string) {
		ticket, _, _, _ := g.Admit(now, gates.Free, false, 1)
		c := push.Culprit{Origin: push.Origin{Kind: push.OfCampaign, Name: origin}}
		gates.Return(now, []gates.Answer{{Ticket: ticket, Result: &push.Result{Class: push.Again, Scope: push.ScopeDevice, Halt: true, Reason: "BadDeviceToken", Culprit: &c}}})
	}
	o := gates.DefaultOptions()
	o.Quarantine = 0
	now := time.Now()
	off := wardGates(t, o).Of(wardOf)
	answer(off, now, "autumn")
	if v := off.View(now); v.Condition != gates.Halted || v.Quarantined != 0 {
		t.Errorf("without quarantine: %+v", v)
	}
	full := wardGates(t, gates.DefaultOptions()).Of(wardOf)
	for i := range 100 {
		answer(full, now, fmt.Sprint(i))
	}
	if v := full.View(now); v.Condition != gates.Open || v.Quarantined != 100 {
		t.Errorf("with 100: %+v", v)
	}
	answer(full, now, "one more")
	if v := full.View(now); v.Condition != gates.Halted || v.Quarantined != 100 {
		t.Errorf("with one more: %+v", v)
	}
	later := now.Add(time.Hour)
	if !full.Quarantine(later, autumn, "") || full.View(later).Quarantined != 1 {
		t.Error("those that are over still count")
	}
}

// Workers share what is stopped, also with those that start later; a release ends it for all.
func TestQuarantinesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &wardBoard{board: newBoard(), stopped: make(map[gates.Quarantined]time.Time)}
		ctx, stop := context.WithCancel(t.Context())
		var sharing sync.WaitGroup
		workers := make([]*gates.Gates, 3)
		start := func(i int) {
			workers[i] = wardGates(t, gates.DefaultOptions())
			workers[i].Recall(ctx, store)
			sharing.Go(func() { workers[i].Share(ctx, store) })
		}
		stopped := func() (at []int) {
			for i, w := range workers {
				if w == nil {
					continue
				}
				if _, why := w.Of(wardOf).Quarantined(time.Now(), &ofAutumn); why != "" {
					at = append(at, i)
				}
			}
			return at
		}
		start(0)
		start(1)
		store.fails = true
		workers[0].Of(wardOf).Quarantine(time.Now(), autumn, "BadDeviceToken")
		time.Sleep(5 * time.Second)
		if got := stopped(); !slices.Equal(got, []int{0}) {
			t.Errorf("while the store is away it is stopped at %v", got)
		}
		store.mu.Lock()
		store.fails = false
		store.mu.Unlock()
		time.Sleep(2500 * time.Millisecond)
		start(2)
		if got := stopped(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("it is stopped at %v, want all", got)
		}
		store.release()
		time.Sleep(1500 * time.Millisecond)
		if got := stopped(); len(got) > 0 {
			t.Errorf("after its release it is stopped at %v", got)
		}
		workers[1].Of(wardOf).Quarantine(time.Now(), autumn, "BadDeviceToken")
		time.Sleep(2500 * time.Millisecond)
		if got := stopped(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("found again, it is stopped at %v", got)
		}
		time.Sleep(time.Hour)
		if got := stopped(); len(got) > 0 || workers[0].Of(wardOf).View(time.Now()).Quarantined > 0 {
			t.Errorf("an hour later it is stopped at %v", got)
		}
		stop()
		sharing.Wait()
		if left := len(slices.Collect(maps.Keys(store.stopped))); left != 1 {
			t.Errorf("%d in the store", left)
		}
	})
}

// A sender whose campaigns are bad one after the other is stopped itself, before the next one
// costs as many tokens: those of others, and what is on trial, do not count for it.
func TestASenderOfManyBadCampaignsIsStopped(t *testing.T) {
	var told []gates.Quarantined
	o := gates.DefaultOptions()
	o.QuarantineCampaigns = 3
	o.Quarantined = func(q gates.Quarantined) { told = append(told, q) }
	g, now := wardGates(t, o).Of(wardOf), time.Now()
	stop := func(name, sender string, trial time.Duration) {
		t.Helper()
		if !g.Quarantine(now, push.Culprit{Origin: push.Origin{Kind: push.OfCampaign, Name: name, Sender: sender}, For: trial}, "BadDeviceToken") {
			t.Errorf("campaign %s of %q cannot be stopped", name, sender)
		}
	}
	stopped := func(campaign, sender string, priority push.Priority) push.Reason {
		_, why := g.Quarantined(now, &push.Message{Campaign: campaign, SenderID: sender, Priority: priority})
		return why
	}
	stop("1", "marketing", 0)
	stop("5", "marketing", time.Minute) // on trial
	stop("2", "marketing", 0)
	stop("2", "marketing", 0) // it is stopped already
	stop("3", "sales", 0)
	stop("4", "", 0)
	if why := stopped("6", "marketing", push.Low); why != "" {
		t.Errorf("after two campaigns of the sender, another is stopped: %s", why)
	}
	stop("5", "marketing", 0) // it is proven
	if why := stopped("6", "marketing", push.Low); why != push.SenderQuarantined {
		t.Errorf("after three campaigns of the sender, another one: %q, want that the sender is stopped", why)
	}
	if why := stopped("6", "marketing", push.Critical); why != "" {
		t.Errorf("a critical one of the sender waits: %s", why)
	}
	if why := stopped("6", "sales", push.Low); why != "" {
		t.Errorf("another sender waits: %s", why)
	}
	last := told[len(told)-1]
	if len(told) != 7 || last.Origin.String() != "sender/marketing" || last.Word != gates.ManyCampaigns || last.Left != o.Quarantine {
		t.Errorf("told: %+v", told)
	}
	o.QuarantineCampaigns = 0
	g = wardGates(t, o).Of(wardOf)
	for i := range 30 {
		stop(fmt.Sprint(i), "marketing", 0)
	}
	if why := stopped("x", "marketing", push.Low); why != "" {
		t.Errorf("senders are not to be stopped, and one is: %s", why)
	}
}

// What is on trial at another worker is so here too: it does not count for its sender, and
// is stopped for as long as is configured when its fault is proven here.
func TestATrialOfAnotherWorkerIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &wardBoard{board: newBoard(), stopped: make(map[gates.Quarantined]time.Time)}
		ctx, stop := context.WithCancel(t.Context())
		var sharing sync.WaitGroup
		o := gates.DefaultOptions()
		o.QuarantineCampaigns = 3
		var workers [2]*gates.Gates
		for i := range workers {
			workers[i] = wardGates(t, o)
			sharing.Go(func() { workers[i].Share(ctx, store) })
		}
		quarantine := func(worker int, name string, trial time.Duration) {
			workers[worker].Of(wardOf).Quarantine(time.Now(), push.Culprit{Origin: push.Origin{Kind: push.OfCampaign, Name: name, Sender: "marketing"}, For: trial}, "BadDeviceToken")
		}
		waits := func(worker int, campaign string) push.Reason {
			_, why := workers[worker].Of(wardOf).Quarantined(time.Now(), &push.Message{Campaign: campaign, SenderID: "marketing", Priority: push.Low})
			return why
		}
		for _, name := range []string{"1", "2"} {
			quarantine(0, name, time.Minute)
		}
		time.Sleep(2500 * time.Millisecond)
		quarantine(1, "3", 0)
		if why := waits(1, "other"); why != "" || waits(1, "2") == "" {
			t.Errorf("after one campaign is stopped, and two are on trial at another worker, another one waits: %q; on trial: %q", why, waits(1, "2"))
		}
		quarantine(1, "1", 0)
		time.Sleep(2 * time.Minute)
		for i := range workers {
			if waits(i, "1") == "" || waits(i, "2") != "" || waits(i, "other") != "" {
				t.Errorf("worker %d, two minutes later: proven %q, on trial once %q, another %q", i, waits(i, "1"), waits(i, "2"), waits(i, "other"))
			}
		}
		quarantine(0, "4", 0)
		if waits(0, "other") == "" {
			t.Error("two campaigns are stopped for an hour by another worker, and a third one here does not stop the sender")
		}
		stop()
		sharing.Wait()
	})
}
