package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// steady is a source of so many new records a second, which also brings back
// what was handed over to a retry or hold topic, when it is due.
type steady struct {
	*world
	fresh, again *pipeline.Tracker
	rate         int // records in a tenth of a second; a multiple of two
	routes       []push.Route

	next    time.Time // of the next records; guarded by world.mu, as all below
	made    int
	back    []comeback
	soonest time.Time // of back
	read    int64
}

// comeback is a record of a retry or hold topic.
type comeback struct {
	item pipeline.Item
	due  time.Time
}

func newSteady(w *world, rate int, routes ...push.Route) *steady {
	tracker := func(topic string, retry bool) *pipeline.Tracker {
		return pipeline.NewTracker(pipeline.TrackerOptions{Partition: push.Partition{Topic: topic}, Capacity: 50_000, Retry: retry})
	}
	return &steady{world: w, rate: rate, routes: routes, next: time.Now(), fresh: tracker("push.test", false), again: tracker("push.retry.30s", true)}
}

func (s *steady) Next(ctx context.Context) (*pipeline.Batch, error) {
	for {
		if b := s.batch(time.Now()); b != nil {
			b.Tracker.Admit(b)
			return b, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// batch is the new records of a tenth of a second, or else what is due.
func (s *steady) batch(now time.Time) *pipeline.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.next) {
		s.next = s.next.Add(100 * time.Millisecond)
		b := &pipeline.Batch{Partition: s.fresh.Partition(), Tracker: s.fresh, Items: make([]pipeline.Item, s.rate)}
		for i := range b.Items {
			it := &b.Items[i]
			it.Partition, it.Offset, it.FirstSeen = b.Partition, int64(s.made), push.At(now)
			it.Message = push.Message{ID: fmt.Sprint(s.made), UserID: "u"}
			s.made++
		}
		return b
	}
	b := &pipeline.Batch{Partition: s.again.Partition(), Tracker: s.again, Retry: true}
	if now.Before(s.soonest) {
		return nil
	}
	s.soonest = now.Add(time.Hour)
	kept := s.back[:0]
	for _, c := range s.back {
		if len(b.Items) < 100 && !now.Before(c.due) {
			c.item.Partition, c.item.Offset = b.Partition, s.read
			s.read++
			b.Items = append(b.Items, c.item)
			continue
		}
		kept, s.soonest = append(kept, c), earliest(s.soonest, c.due)
	}
	s.back = kept
	if len(b.Items) == 0 {
		return nil
	}
	return b
}

func (s *steady) Commit(context.Context) error {
	for _, t := range []*pipeline.Tracker{s.fresh, s.again} {
		if next, ok := t.Watermark(); ok {
			t.Committed(next)
		}
	}
	return nil
}

// Produce also brings back what goes to a retry or hold topic.
func (s *steady) Produce(ctx context.Context, hs []pipeline.Handover) error {
	s.mu.Lock()
	for _, h := range hs {
		if h.To == pipeline.ToRetry || h.To == pipeline.ToHold {
			it := pipeline.Item{FirstSeen: h.Item.FirstSeen, Attempt: h.Attempt, Hops: h.Hops, Message: push.Message{ID: h.Item.ID, UserID: "u"}}
			s.back, s.soonest = append(s.back, comeback{it, h.NotBefore}), earliest(s.soonest, h.NotBefore)
		}
	}
	s.mu.Unlock()
	return s.world.Produce(ctx, hs)
}

// Stage: the records go to the routes by turns.
func (*steady) Name() pipeline.Step { return "devices" }

func (s *steady) Apply(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Items {
		it := &b.Items[i]
		it.Deliveries = []pipeline.Delivery{{Item: it, Route: s.routes[int(it.ID[len(it.ID)-1])%len(s.routes)],
			Device: pipeline.Device{Hash: it.ID}, Expires: push.At(time.Now().Add(24 * time.Hour))}}
	}
	return nil
}

// run lets the pipeline work for so long.
func (s *steady) run(t *testing.T, window int, apns, fcm pipeline.Provider, long time.Duration) {
	t.Helper()
	p := s.make(t, s, s, window, apns, fcm)
	p.Options().Producer = s
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = p.Run(ctx) })
	time.Sleep(long)
	stop()
	run.Wait()
}

// stormy is a provider that answers 503 to a share of what comes until a time.
type stormy struct {
	provider
	share float64
	until time.Time

	calls, good int // guarded by w.mu, as all below
	healed      int // calls since the storm is over
	accepted    int // of those
	most        int // by how many the calls ran ahead of the ramp
}

func (p *stormy) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.w.mu.Lock()
		storm := time.Now().Before(p.until)
		bad := storm && p.w.random.Float64() < p.share
		p.calls++
		if !storm {
			p.healed++
			if p.accepted < 64 {
				p.most = max(p.most, p.healed-(2*p.accepted+gates.DefaultOptions().FirstProbes))
			}
		}
		p.w.mu.Unlock()
		p.out.Go(func() {
			time.Sleep(40 * time.Millisecond)
			p.w.mu.Lock()
			if d.Result = good; bad {
				d.Result = push.Result{Class: push.Again, Scope: push.ScopeRoute, Reason: "ServiceUnavailable"}
			} else {
				p.good++
				if !storm {
					p.accepted++
				}
			}
			p.w.mu.Unlock()
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// T-37: a storm of 503s. Where a third fails, retries are paid by what succeeds,
// so the provider gets at most a fifth more than there are messages. Where all
// fail the route closes: it gets probes, nothing ends in the DLQ for it, and when
// the storm is over the calls begin with three and double.
func TestAStormIsNotAmplified(t *testing.T) {
	const storm = 5 * time.Minute
	for _, tt := range []struct {
		why   string
		share float64
		rate  int
		check func(t *testing.T, s *steady, p *stormy)
	}{
		{"30 %", 0.3, 20, func(t *testing.T, s *steady, p *stormy) {
			if s.made < 50_000 || float64(p.calls) > 1.2*float64(s.made) || p.calls < s.made {
				t.Errorf("got %d calls for %d messages, want 1 to 1.2 calls a message", p.calls, s.made)
			}
			if o := gates.DefaultOptions().DeadLetters; float64(len(s.dead)) > o.Burst+o.Floor*storm.Seconds()+o.Share*float64(p.good) {
				t.Errorf("got %d dead letters with %d accepted, more than the DLQ budget allows", len(s.dead), p.good)
			}
		}},
		{"100 %", 1, 4, func(t *testing.T, s *steady, p *stormy) {
			if p.good != p.accepted || p.accepted < 1000 {
				t.Fatalf("got %d accepted, %d of them after the storm; want all after it, at least 1000", p.good, p.accepted)
			}
			if p.calls-p.healed > 500 {
				t.Errorf("got %d calls during the storm, want at most 500", p.calls-p.healed)
			}
			if p.most > 0 {
				t.Errorf("got %d calls more than the rounds of 3, 6, 12 … allow after the storm", p.most)
			}
			if len(s.dead) > 0 {
				t.Errorf("got %d dead letters, want 0", len(s.dead))
			}
		}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1)
				w.faults = false
				s := newSteady(w, tt.rate, push.Route{Platform: push.APNS, App: "shop"})
				p := &stormy{provider: provider{w: w}, share: tt.share, until: time.Now().Add(storm)}
				long := storm
				if tt.share == 1 {
					long += 4 * time.Minute
				}
				s.run(t, 50, p, p, long)
				p.out.Wait()
				tt.check(t, s, p)
				t.Logf("%d messages, %d calls, %d dead letters", s.made, p.calls, len(s.dead))
			})
		})
	}
}

// unhurried answers after a time, and notes how late its calls are.
type unhurried struct {
	provider
	takes func(r *rand.Rand) time.Duration

	open, most, calls int // guarded by w.mu, as all below
	busy              time.Duration
	late              []time.Duration // from the record to its call
}

func (p *unhurried) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.w.mu.Lock()
		p.open++
		p.calls++
		p.most = max(p.most, p.open)
		p.late = append(p.late, time.Since(d.Item.FirstSeen.Time()))
		takes := p.takes(p.w.random)
		p.busy += takes
		p.w.mu.Unlock()
		p.out.Go(func() {
			time.Sleep(takes)
			p.w.mu.Lock()
			p.open--
			p.w.mu.Unlock()
			d.Result = good
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// T-35: a provider that takes 2 s for half of its answers and 20 s for one in a
// hundred. No more is open to it than its window, which is full; the other
// provider of the same partition is served as if nothing were.
func TestASlowProviderSlowsOnlyItself(t *testing.T) {
	const window, long = 50, 2 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.faults = false
		s := newSteady(w, 10, push.Route{Platform: push.APNS, App: "shop"}, push.Route{Platform: push.FCM, App: "shop"})
		slow := &unhurried{provider: provider{w: w}, takes: func(r *rand.Rand) time.Duration {
			if r.IntN(100) == 0 {
				return 20 * time.Second
			}
			return time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
		}}
		fast := &unhurried{provider: provider{w: w}, takes: func(*rand.Rand) time.Duration { return 40 * time.Millisecond }}
		s.run(t, window, slow, fast, long)
		slow.out.Wait()
		fast.out.Wait()
		if slow.most != window {
			t.Errorf("got at most %d in flight to the slow provider, want its window of %d", slow.most, window)
		}
		mean := slow.busy / time.Duration(slow.calls)
		if want := int(window * long / mean); slow.calls < want*8/10 || slow.calls > want*12/10+window {
			t.Errorf("got %d calls of the slow provider, want about %d: its window of %v each", slow.calls, want, mean)
		}
		slices.Sort(fast.late)
		if p99 := fast.late[len(fast.late)*99/100]; fast.calls < s.made/2*95/100 || p99 > 200*time.Millisecond {
			t.Errorf("got %d calls of the other provider for %d records, p99 delay %v", fast.calls, s.made/2, p99)
		}
	})
}
