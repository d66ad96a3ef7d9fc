//go:build planted

package planted

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// crash is a point at which the worker kills itself, once it has come there
// so many times.
type crash struct {
	left   atomic.Int64
	point  string
	status pipeline.Status
	once   sync.Once
}

// death is what the worker says of itself before it dies: bench/mutants reads
// it.
type death struct {
	Point string
	At    []place // what had come to the point
}

// place is a notification, or one on a device.
type place struct{ ID, Device string }

// whole are notifications, on whatever devices.
func whole(ids []string) []place {
	places := make([]place, len(ids))
	for i, id := range ids {
		places[i].ID = id
	}
	return places
}

// reached kills the process if it is time. It returns only if it is not: what
// comes to the point afterwards waits for the end, so that the items at the
// point are exactly where the point says.
func (c *crash) reached(at ...place) {
	if c.left.Add(-1) > 0 {
		return
	}
	c.once.Do(func() {
		if s, ok := c.status.(*remoteStatus); ok {
			var heard bool
			_ = s.call(context.Background(), "Dying", death{c.point, at}, &heard)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	select {}
}

// points are the crash points by name, in the order of a notification's way.
var points = map[string]func(*soil, *crash){
	"polled": crashPolled,
	"confirmed": func(s *soil, c *crash) {
		crashStage(s, c, func(st pipeline.Stage) bool { _, ok := st.(*stages.Dedupe); return ok })
	},
	"limited": func(s *soil, c *crash) {
		crashStage(s, c, func(st pipeline.Stage) bool { _, ok := st.(*stages.Limits); return ok })
	},
	"before-send":       crashBeforeSend,
	"sent":              crashSent,
	"answered":          crashAnswered,
	"before-status-ack": func(s *soil, c *crash) { crashStatus(s, c, false, settled) },
	"after-status-ack":  func(s *soil, c *crash) { crashStatus(s, c, true, settled) },
	"before-intent-ack": func(s *soil, c *crash) { crashStatus(s, c, false, intended) },
	"after-intent-ack":  func(s *soil, c *crash) { crashStatus(s, c, true, intended) },
	"after-filter":      crashFilter,
	"before-commit":     func(s *soil, c *crash) { crashCommit(s, c, false) },
	"after-commit":      func(s *soil, c *crash) { crashCommit(s, c, true) },
	"before-retry-ack":  func(s *soil, c *crash) { crashProduce(s, c, pipeline.ToRetry, false) },
	"after-retry-ack":   func(s *soil, c *crash) { crashProduce(s, c, pipeline.ToRetry, true) },
	"before-dlq-ack":    func(s *soil, c *crash) { crashProduce(s, c, pipeline.ToDLQ, false) },
	"after-dlq-ack":     func(s *soil, c *crash) { crashProduce(s, c, pipeline.ToDLQ, true) },
	"in-revoke":         crashInRevoke,
	"mid-drain":         crashMidDrain,
}

func (s *soil) crashAt(spec string) {
	point, times, _ := strings.Cut(spec, ":")
	plantAt, known := points[point]
	n, err := strconv.Atoi(times)
	if !known || err != nil || n < 1 {
		panic(fmt.Sprintf("planted: no crash point %q; want NAME:TIMES", spec))
	}
	c := &crash{point: point, status: s.Status}
	c.left.Store(int64(n))
	plantAt(s, c)
}

func crashPolled(s *soil, c *crash) {
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		c.reached(placesOf(b.Undecided(nil))...)
	}}
}

func placesOf(items []*pipeline.Item) []place {
	places := make([]place, len(items))
	for i, it := range items {
		places[i].ID = it.RowID()
	}
	return places
}

// crashStage dies after a stage was applied.
func crashStage(s *soil, c *crash, is func(pipeline.Stage) bool) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		if !is(stage) {
			return nil
		}
		return plantedStage{stage, func(ctx context.Context, b *pipeline.Batch) error {
			err := stage.Apply(ctx, b)
			if err == nil {
				c.reached(placesOf(b.Undecided(nil))...)
			}
			return err
		}}
	})
}

func placesOfDeliveries(ds []*pipeline.Delivery) []place {
	places := make([]place, len(ds))
	for i, d := range ds {
		places[i] = place{d.Item.RowID(), d.Device.Hash}
	}
	return places
}

func crashBeforeSend(s *soil, c *crash) {
	s.providers(func(_ push.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, submit: func(ds []*pipeline.Delivery) {
			if len(ds) > 0 {
				c.reached(placesOfDeliveries(ds)...)
			}
		}, answered: func([]*pipeline.Delivery) {}}
	})
}

// crashSent dies between the request and its answer: once all requests of a
// group are on their connections, and before the slow provider of these tests
// answers.
func crashSent(s *soil, c *crash) {
	s.providers(func(r push.Route, p pipeline.Provider) pipeline.Provider {
		return sentProvider{p, func(ds []*pipeline.Delivery) {
			for st := s.stats(r); st.InFlight == 0 || st.Waiting > 0; st = s.stats(r) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond) // to the provider, which takes 60 to answer
			c.reached(placesOfDeliveries(ds)...)
		}}
	})
}

// sentProvider calls sent once a group has been taken.
type sentProvider struct {
	pipeline.Provider
	sent func(ds []*pipeline.Delivery)
}

func (p sentProvider) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	taken := slices.Clone(ds)
	n, err := p.Provider.Submit(ctx, ds, done)
	if n > 0 {
		p.sent(taken[:n])
	}
	return n, err
}

func crashAnswered(s *soil, c *crash) {
	s.providers(func(_ push.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, answered: func(ds []*pipeline.Delivery) { c.reached(placesOfDeliveries(ds)...) }}
	})
}

// settled and intended are the status writes that a crash may be at: those of
// accepted pushes, and those of intents.
func settled(rows []push.Row) bool {
	return slices.ContainsFunc(rows, func(r push.Row) bool { return r.State == push.StateDelivered })
}

func intended(rows []push.Row) bool {
	return len(rows) > 0 && rows[0].State == push.StateSending
}

// crashStatus dies while a status write is under way, or once it is
// acknowledged.
func crashStatus(s *soil, c *crash, acked bool, which func([]push.Row) bool) {
	inner := s.Status
	s.Status = plantedStatus{inner, func(ctx context.Context, rows []push.Row) error {
		if !which(rows) {
			return inner.Write(ctx, rows)
		}
		places := make([]place, len(rows))
		for i := range rows {
			places[i] = place{rows[i].ID, rows[i].Device}
		}
		if !acked {
			result := make(chan error, 1)
			go func() { result <- inner.Write(ctx, rows) }()
			c.reached(places...)
			return <-result
		}
		err := inner.Write(ctx, rows)
		if err == nil {
			c.reached(places...)
		}
		return err
	}}
}

// finished are ids that went into the filter, and those of them that were
// durably DELIVERED before. What else is finished (opted out, expired, broken)
// is no occasion for a crash.
type finished struct {
	mu        sync.Mutex
	delivered map[string]bool
	ids       []string // since the last take
}

// follow makes f see what is written and finished.
func (f *finished) follow(s *soil, added func()) {
	f.delivered = make(map[string]bool)
	status := s.Status
	s.Status = plantedStatus{status, func(ctx context.Context, rows []push.Row) error {
		err := status.Write(ctx, rows)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range rows {
			if err == nil && rows[i].State == push.StateDelivered {
				f.delivered[strings.Clone(rows[i].ID)] = true
			}
		}
		return err
	}}
	s.Seen = plantedSeen{s.Seen, func(ids []string) {
		f.mu.Lock()
		for _, id := range ids {
			f.ids = append(f.ids, strings.Clone(id))
		}
		f.mu.Unlock()
		added()
	}}
}

// take empties it. ok says that one of the ids was delivered.
func (f *finished) take() (ids []string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, f.ids = f.ids, nil
	return ids, slices.ContainsFunc(ids, func(id string) bool { return f.delivered[id] })
}

// crashFilter dies when the filter has heard of what was delivered.
func crashFilter(s *soil, c *crash) {
	var f finished
	f.follow(s, func() {
		if ids, ok := f.take(); ok {
			c.reached(whole(ids)...)
		}
	})
}

// crashCommit dies before or after a commit; it counts only commits that have
// something new to commit.
func crashCommit(s *soil, c *crash, after bool) {
	var f finished
	f.follow(s, func() {})
	s.Source = plantedSource{Source: s.Source, commit: func(_ context.Context, inner func() error) error {
		ids, ok := f.take()
		if !after && ok {
			c.reached(whole(ids)...)
		}
		err := inner()
		if after && ok && err == nil {
			c.reached(whole(ids)...)
		}
		return err
	}}
}

// crashProduce dies while a hand-over is being produced, or once it is
// acknowledged.
func crashProduce(s *soil, c *crash, to pipeline.Destination, acked bool) {
	inner := s.Producer
	s.Producer = plantedProducer{inner, func(ctx context.Context, hs []pipeline.Handover) error {
		var places []place
		for _, h := range hs {
			if h.To != to {
				continue
			}
			if len(h.Devices) == 0 {
				places = append(places, place{ID: h.Item.RowID()})
			}
			for _, device := range h.Devices {
				places = append(places, place{h.Item.RowID(), device})
			}
		}
		if len(places) == 0 {
			return inner.Produce(ctx, hs)
		}
		if !acked {
			result := make(chan error, 1)
			go func() { result <- inner.Produce(ctx, hs) }()
			c.reached(places...)
			return <-result
		}
		err := inner.Produce(ctx, hs)
		if err == nil {
			c.reached(places...)
		}
		return err
	}}
}

// crashInRevoke dies while a partition is being given back and its sends are
// waited for.
func crashInRevoke(s *soil, c *crash) {
	var mu sync.Mutex
	seen := make(map[*pipeline.Tracker]bool) // guarded by mu
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		mu.Lock()
		defer mu.Unlock()
		if seen[b.Tracker] {
			return
		}
		seen[b.Tracker] = true
		go func() { // ends with the process, or once the partition has left
			for !b.Tracker.Draining() {
				time.Sleep(time.Millisecond)
			}
			c.reached()
		}()
	}}
}

// crashMidDrain dies after the signal to end, when answers still come.
func crashMidDrain(s *soil, c *crash) {
	var draining atomic.Bool
	inner := s.Source
	s.Source = endingSource{inner, &draining}
	s.providers(func(_ push.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, answered: func(ds []*pipeline.Delivery) {
			if draining.Load() {
				c.reached(placesOfDeliveries(ds)...)
			}
		}}
	})
}

// endingSource notes that there is no next batch.
type endingSource struct {
	pipeline.Source
	ended *atomic.Bool
}

func (s endingSource) Next(ctx context.Context) (*pipeline.Batch, error) {
	b, err := s.Source.Next(ctx)
	if ctx.Err() != nil {
		s.ended.Store(true)
	}
	return b, err
}
