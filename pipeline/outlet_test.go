package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// answers is a producer that gives one answer after the other, and notes the
// reasons of the records that it was asked for.
type answers struct {
	errs  []error
	asked []string
}

func (a *answers) Produce(_ context.Context, hs []Handover) error {
	asked := ""
	for _, h := range hs {
		asked += h.Item.ID
	}
	a.asked = append(a.asked, asked)
	err := a.errs[0]
	a.errs = a.errs[1:]
	return err
}

// A partial answer names places in what it was asked for, which after the first
// one is no longer the whole list; and what it refused stays refused. Only an answer
// that refuses is warned of.
func TestPartialAnswersOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := errors.New("message too large")
		producer := &answers{errs: []error{
			&PartlyError{Refused: []int{1}, Open: []int{2, 3, 4}, Err: said}, // b; c d e
			&PartlyError{Refused: []int{1}, Open: []int{0, 2}, Err: said},    // d; c e
			errors.New("not the leader"),
			&PartlyError{Open: []int{1}, Err: said}, // e
			nil,
		}}
		var log bytes.Buffer
		p := &Pipeline{opt: Options{Producer: producer, StatusTimeout: time.Second,
			Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&log, nil))}}
		group := make([]*Delivery, 5)
		for i := range group {
			it := &Item{Message: push.Message{ID: string(rune('a' + i))}}
			group[i] = &Delivery{Item: it, ending: Ending{State: push.StateRetrying}}
		}
		refused, err := p.produce(t.Context(), group)
		if err != nil || !slices.Equal(refused, []*Delivery{group[1], group[3]}) {
			t.Errorf("got refused %v (error %v), want b and d", ids(refused), err)
		}
		if want := []string{"abcde", "cde", "ce", "ce", "e"}; !slices.Equal(producer.asked, want) {
			t.Errorf("got %q, want %q", producer.asked, want)
		}
		if n := strings.Count(log.String(), `msg="record too large`); n != 2 {
			t.Errorf("got %d warnings, want one for b and one for d:\n%s", n, log.String())
		}
	})
}

func ids(ds []*Delivery) (all []string) {
	for _, d := range ds {
		all = append(all, d.Item.ID)
	}
	return all
}

// A hand-over says why its devices are carried on, and when the last of them is due.
func TestAHandOverSaysWhy(t *testing.T) {
	it, due := &Item{}, time.Now()
	group := []*Delivery{
		{Item: it, Device: Device{Hash: "a"}, ending: Ending{State: push.StateRetrying, Reason: "TooManyRequests", NotBefore: push.At(due.Add(time.Minute))}},
		{Item: it, Device: Device{Hash: "b"}, ending: Ending{State: push.StateRetrying, Reason: "TooManyRequests", NotBefore: push.At(due)}},
	}
	hs, of := handovers(group)
	if len(hs) != 1 || !slices.Equal(of, []int{0, 0}) {
		t.Fatalf("got %d records for one item's retries (of %v), want 1", len(hs), of)
	}
	if h := hs[0]; h.Reason != "TooManyRequests" || !slices.Equal(h.Devices, []string{"a", "b"}) || !h.NotBefore.Equal(due.Add(time.Minute)) {
		t.Errorf("got %+v, want both devices, when the later is due, and why", h)
	}
	dead := &Delivery{Item: it, Route: push.Route{Platform: push.FCM}, Device: Device{Hash: "c"}, Result: push.Result{Reason: "UNAVAILABLE"},
		ending: Ending{State: push.StateDeadLettered, Reason: push.RetriesUsed}}
	if hs, _ = handovers([]*Delivery{dead}); len(hs) != 1 || hs[0].Detail != "UNAVAILABLE" || !slices.Equal(hs[0].Providers, []push.Platform{push.FCM}) {
		t.Errorf("got %+v for a dead letter, want whose it is and the provider's last word", hs)
	}
	err := &PartlyError{Refused: []int{1}, Open: []int{2, 3}, Err: context.DeadlineExceeded}
	if text := err.Error(); !strings.Contains(text, "1 records are too large") || !strings.Contains(text, "2 are not acknowledged") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %q, want how many of each kind, and the cause", text)
	}
}

// Each outlet makes a dead letter of the last that it is given, a while after
// nothing more comes.
func TestTheDeadLettersEndLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Routes: map[push.Route]Provider{{Platform: push.APNS, App: "shop"}: nil, {Platform: push.FCM, App: "shop"}: nil}}
		p := &Pipeline{opt: o, toHandOver: o.outlets()}
		dlq, dead := outlet{to: ToDLQ}, 0
		workers := make(map[outlet]*sync.WaitGroup)
		for out, q := range p.toHandOver {
			if out == dlq {
				workers[out] = eachGroup(1, q, func(ds []*Delivery) { dead += len(ds) })
				continue
			}
			workers[out] = eachGroup(1, q, func(ds []*Delivery) {
				time.Sleep(time.Second)
				p.toHandOver[dlq].put(ds...)
			})
			q.put(&Delivery{})
		}
		p.endHandingOver(workers)
		if want := len(p.toHandOver) - 1; dead != want || want != 5 {
			t.Errorf("got %d dead letters from %d other outlets, want 5 from 5", dead, want)
		}
	})
}

// A group is a quarter of a small window, so that it never runs empty, and of a
// large one what fills several TLS records.
func TestGroupSize(t *testing.T) {
	for window, want := range map[int]int{1: 1, 4: 1, 8: 2, 20: 5, 1024: 256, 100_000: 256} {
		if got := (&Pipeline{opt: Options{Window: window}}).groupSize(); got != want {
			t.Errorf("window of %d: got groups of %d, want %d", window, got, want)
		}
	}
}

// What a line has done is what its partitions have, and a turn there is one
// group of each of them, after all that the window holds.
func TestProgressOfALine(t *testing.T) {
	shop := push.Route{Platform: push.APNS, App: "shop"}
	r := newRoute(shop, nil, nil, 40, false, NewMetrics(prometheus.NewRegistry()))
	p := &Pipeline{opt: Options{Window: 40}, routes: map[push.Route]*route{shop: r}}
	l := r.lines[gates.Retry]
	for i, n := range []int{3, 4, 5} {
		ds := waitingFor(fmt.Sprint("t", i), n)
		l.waiting.put(l, ds)
		ds[0].share.completed.Add(uint64(i))
	}
	for _, told := range p.Progress() {
		want := gates.LineProgress{Line: gates.Line{Route: shop, Charge: told.Line.Charge}, Turn: 40}
		if told.Line.Charge == "retry" {
			want.Progress, want.Turn = gates.Progress{Out: 3 + 3 + 3, Completed: 0 + 1 + 2}, 3*10+40
			if len(told.Partitions) != 3 {
				t.Errorf("got %d partitions, want 3", len(told.Partitions))
			}
		}
		if told.Line != want.Line || told.Progress != want.Progress || told.Turn != want.Turn {
			t.Errorf("line %+v: got %+v and a turn of %d, want %+v and %d", told.Line, told.Progress, told.Turn, want.Progress, want.Turn)
		}
	}
}

// What was to have places of the window leaves before they are free. It takes
// none of them; and once polling has ended nobody waits for places for nothing.
func TestPlacesOfWhatHasLeft(t *testing.T) {
	for why, stops := range map[string]bool{"while others go on": false, "the worker stops": true} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shop := push.Route{Platform: push.APNS, App: "shop"}
				r := newRoute(shop, nil, nil, 20, false, NewMetrics(prometheus.NewRegistry()))
				p := &Pipeline{opt: Options{Window: 20}, toSettle: newQueue[*Delivery]()}
				l := r.lines[gates.Free]
				if !r.window.TryAcquire(20) {
					t.Fatal("setup: the window is not empty")
				}
				ds := waitingFor("a", 5)
				p.take(ds[0].Item.batch)
				l.waiting.put(l, ds)
				polling, stop := context.WithCancel(t.Context())
				defer stop()
				entered := make(chan int, 1)
				go func() { entered <- len(p.enter(polling, t.Context(), l, nil)) }()
				synctest.Wait()
				ds[0].Item.batch.Tracker.Leave()
				p.giveBackLeaving(l)
				if stops {
					stop()
				} else {
					r.leaveWindow(20)
				}
				synctest.Wait()
				if len(entered) == 0 {
					t.Error("still waits for places although no delivery is left")
				} else if n := <-entered; n != 0 {
					t.Errorf("%d deliveries of a partition that left entered the window", n)
				}
				if stops {
					r.leaveWindow(20)
					synctest.Wait()
				}
				if !r.window.TryAcquire(20) {
					t.Error("the partition that left still holds places")
				}
			})
		})
	}
}
