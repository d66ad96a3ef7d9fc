package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// lapsedUntil is a lease that has lapsed and is renewed at that time.
type lapsedUntil time.Time

func (l lapsedUntil) Lapsed(now time.Time) bool { return now.Before(time.Time(l)) }

// awayUntil cannot be asked before that time. Then one user has opted out.
type awayUntil struct {
	time.Time
	out *Delivery
}

func (a awayUntil) Recheck(context.Context, []*Delivery) error {
	time.Sleep(time.Millisecond)
	if time.Now().Before(a.Time) {
		return errors.New("redis is away")
	}
	a.out.Verdict, a.out.Reason = push.Suppressed, push.OptedOutAll
	return nil
}

// taking takes everything, and answers nothing.
type taking struct{ taken []*Delivery }

func (p *taking) Submit(_ context.Context, ds []*Delivery, _ func([]*Delivery)) (int, error) {
	p.taken = append(p.taken, ds...)
	return len(ds), nil
}

// settling takes out what settle would get now, without waiting.
func (p *Pipeline) settling() []*Delivery {
	return p.toSettle.remove(func(*Delivery) bool { return true })
}

// A recheck ends without an answer when one of its partitions leaves, and when the
// worker stops. That is no word about anybody: what leaves is given back, the others
// are sent only when they could be rechecked.
func TestARecheckWithoutAnAnswerAllowsNothing(t *testing.T) {
	shop := push.Route{Platform: push.APNS, App: "shop"}
	for why, stops := range map[string]bool{"a partition leaves": false, "the worker stops": true} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slog.New(slog.DiscardHandler)
				gs, err := gates.New([]push.Route{shop}, gates.DefaultOptions(), gates.NewMetrics(prometheus.NewRegistry()), log, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				leaves, stays := waitingFor("a", 2), waitingFor("b", 3)
				group := append(append([]*Delivery(nil), leaves...), stays...)
				for _, d := range group {
					d.Item.Read, d.Expires = UptimeAt(time.Now().Add(-time.Hour)), push.At(time.Now().Add(time.Hour))
				}
				pr, m := &taking{}, NewMetrics(prometheus.NewRegistry())
				back := awayUntil{time.Now().Add(time.Minute), stays[0]}
				p := &Pipeline{toSettle: newQueue[*Delivery](), opt: Options{
					Window: 20, Limit: unlimited{}, Recheck: back, RecheckAfter: 30 * time.Second, SendDeadline: time.Second, Metrics: m, Log: log}}
				l := newRoute(shop, pr, gs.Of(shop), 20, false, m).lines[gates.Free]
				submitting, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan struct{}) // closed when submit has returned
				go func() { p.submit(submitting, l, group); close(ended) }()
				time.Sleep(10 * time.Second)
				leaves[0].Item.batch.Tracker.Leave()
				if stops {
					stop()
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(pr.taken) > 0 {
					t.Fatalf("sent %s, of which none could be rechecked", hashes(pr.taken))
				}
				given, want := hashes(p.settling()), "a0 a1"
				if stops {
					want = "a0 a1 b0 b1 b2"
				}
				if given != want {
					t.Fatalf("got %q given back, want %q", given, want)
				}
				<-ended
				if stops {
					return
				}
				if sent, decided := hashes(pr.taken), hashes(p.settling()); sent != "b1 b2" || decided != "b0" {
					t.Errorf("got %q sent and %q decided after the recheck, want b1 b2, and b0 which opted out", sent, decided)
				}
			})
		})
	}
}

// Nothing in a line may be sent because the lease has lapsed, and one of its
// partitions leaves: that is given back at once, not when the lease is renewed. With
// nothing left to wait for, the wait ends.
func TestWhatLeavesDoesNotWaitForTheLease(t *testing.T) {
	shop := push.Route{Platform: push.APNS, App: "shop"}
	for why, stays := range map[string]int{"others stay": 2, "nothing else waits": 0} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Pipeline{toSettle: newQueue[*Delivery](), opt: Options{Window: 20}}
				l := newRoute(shop, nil, nil, 20, false, NewMetrics(prometheus.NewRegistry())).lines[gates.Free]
				lease := lapsedUntil(time.Now().Add(time.Minute))
				leaves := waitingFor("a", 12) // more than a group
				leaves[0].Item.batch.Tracker.lease = lease
				p.take(leaves[0].Item.batch)
				l.waiting.put(l, leaves)
				if others := waitingFor("b", stays); stays > 0 {
					others[0].Item.batch.Tracker.lease = lease
					l.waiting.put(l, others)
				}
				submitting, stop := context.WithCancel(t.Context())
				ended := make(chan struct{}) // closed when awaitLease has returned
				go func() { p.awaitLease(submitting, l, nil); close(ended) }()
				defer func() { stop(); <-ended }()
				time.Sleep(10 * time.Second)
				if n := len(p.settling()); n > 0 {
					t.Errorf("%d deliveries were given back although their partition stays", n)
				}
				leaves[0].Item.batch.Tracker.Leave()
				time.Sleep(time.Second)
				synctest.Wait()
				given := p.settling()
				for _, d := range given {
					if !d.abandoned || d.Item.batch != leaves[0].Item.batch {
						t.Errorf("%s: given back with abandoned %v", d.Device.Hash, d.abandoned)
					}
				}
				if len(given) != 12 {
					t.Errorf("got %d deliveries given back, want the 12 of the partition that leaves", len(given))
				}
				waits := true
				select {
				case <-ended:
					waits = false
				default:
				}
				if waits != (stays > 0) {
					t.Errorf("still waits for the lease: %v; %d deliveries stay", waits, stays)
				}
				time.Sleep(time.Minute)
				if n := len(l.waiting.next(nil, 20)); n != stays {
					t.Errorf("got %d deliveries in the line once the lease is renewed, want %d", n, stays)
				}
			})
		})
	}
}
