//go:build planted

package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// started is when this process began.
var started = time.Now()

// plantedProvider sees each group of answers before the pipeline does.
type plantedProvider struct {
	pipeline.Provider
	submit   func(ds []*pipeline.Delivery)
	answered func(ds []*pipeline.Delivery)
}

func (p plantedProvider) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	if p.submit != nil {
		p.submit(ds)
	}
	return p.Provider.Submit(ctx, ds, func(ds []*pipeline.Delivery) {
		p.answered(ds)
		done(ds)
	})
}

// providers replaces the provider of every route.
func (s *soil) providers(f func(pipeline.Route, pipeline.Provider) pipeline.Provider) {
	s.Routes = maps.Clone(s.Routes)
	for r, p := range s.Routes {
		s.Routes[r] = f(r, p)
	}
}

// answered changes what the providers answer.
func (s *soil) answered(change func(*pipeline.Result)) {
	s.providers(func(_ pipeline.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, answered: func(ds []*pipeline.Delivery) {
			for _, d := range ds {
				change(&d.Result)
			}
		}}
	})
}

// retryIsDelivered counts as delivered what the provider asked to try later.
func retryIsDelivered(s *soil) {
	s.answered(func(r *pipeline.Result) {
		if r.Class == pipeline.Again && r.Certainty == pipeline.NotAccepted {
			*r = pipeline.Result{Class: pipeline.Delivered, Certainty: pipeline.Accepted}
		}
	})
}

// silenceIsDelivered counts as delivered what was written and never answered.
func silenceIsDelivered(s *soil) {
	s.answered(func(r *pipeline.Result) {
		if r.Class == pipeline.Again && r.Certainty == pipeline.Ambiguous {
			*r = pipeline.Result{Class: pipeline.Delivered, Certainty: pipeline.Accepted}
		}
	})
}

// again sends a copy of each delivery once more and forgets the answer.
func again(p pipeline.Provider, ds []*pipeline.Delivery) {
	copies := make([]*pipeline.Delivery, len(ds))
	for i, d := range ds {
		c := *d
		c.Result = pipeline.Result{}
		copies[i] = &c
	}
	if len(copies) > 0 {
		// Apart: it may block, and answers come on the connection's reader.
		go func() {
			_, _ = p.Submit(context.Background(), copies, func([]*pipeline.Delivery) {})
		}()
	}
}

// resendAndRetry sends at once again what was not accepted, and hands it over
// to the retry topic too.
func resendAndRetry(s *soil) {
	s.providers(func(_ pipeline.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, answered: func(ds []*pipeline.Delivery) {
			again(p, slices.DeleteFunc(slices.Clone(ds), func(d *pipeline.Delivery) bool {
				return d.Result.Class != pipeline.Again || d.Result.Certainty != pipeline.NotAccepted
			}))
		}}
	})
}

// resendOnGoAway takes all that is in flight when a GOAWAY comes for not
// processed, and sends it again.
func resendOnGoAway(s *soil) {
	s.providers(func(r pipeline.Route, p pipeline.Provider) pipeline.Provider {
		var mu sync.Mutex
		before := make(map[*pipeline.Delivery]int64) // GOAWAYs seen when it was submitted; guarded by mu
		goAways := func() int64 { return s.routes[r].Stats().GoAways }
		return plantedProvider{p, func(ds []*pipeline.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			for _, d := range ds {
				before[d] = goAways()
			}
		}, func(ds []*pipeline.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			var caught []*pipeline.Delivery
			for _, d := range ds {
				if d.Result.Class == pipeline.Delivered && goAways() > before[d] {
					caught = append(caught, d)
				}
				delete(before, d)
			}
			again(p, caught)
		}}
	})
}

// plantedProducer hands over in another way.
type plantedProducer struct {
	pipeline.Producer
	produce func(ctx context.Context, hs []pipeline.Handover) error
}

func (p plantedProducer) Produce(ctx context.Context, hs []pipeline.Handover) error {
	return p.produce(ctx, hs)
}

// ackUnproduced takes hand-overs to one destination for acknowledged that are
// produced only later.
func ackUnproduced(s *soil, to pipeline.Destination) {
	inner := s.Producer
	s.Producer = plantedProducer{inner, func(ctx context.Context, hs []pipeline.Handover) error {
		late := slices.DeleteFunc(slices.Clone(hs), func(h pipeline.Handover) bool { return h.To != to })
		hs = slices.DeleteFunc(slices.Clone(hs), func(h pipeline.Handover) bool { return h.To == to })
		if len(late) > 0 {
			time.AfterFunc(400*time.Millisecond, func() { _ = inner.Produce(context.Background(), late) })
		}
		if len(hs) == 0 {
			return nil
		}
		return inner.Produce(ctx, hs)
	}}
}

func ackRetryUnproduced(s *soil) { ackUnproduced(s, pipeline.ToRetry) }
func ackDLQUnproduced(s *soil)   { ackUnproduced(s, pipeline.ToDLQ) }

// ignoreProduceRefusal goes on when Kafka has not taken a hand-over.
func ignoreProduceRefusal(s *soil) {
	inner := s.Producer
	s.Producer = plantedProducer{inner, func(ctx context.Context, hs []pipeline.Handover) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_ = inner.Produce(ctx, hs)
		return nil
	}}
}
