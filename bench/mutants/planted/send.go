//go:build planted

package planted

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
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
func (s *soil) providers(f func(push.Route, pipeline.Provider) pipeline.Provider) {
	s.Routes = maps.Clone(s.Routes)
	for r, p := range s.Routes {
		s.Routes[r] = f(r, p)
	}
}

// answered changes what the providers answer.
func (s *soil) answered(change func(*push.Result)) {
	s.providers(func(_ push.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, answered: func(ds []*pipeline.Delivery) {
			for _, d := range ds {
				change(&d.Result)
			}
		}}
	})
}

// retryIsDelivered counts as delivered what the provider asked to try later.
func retryIsDelivered(s *soil) {
	s.answered(func(r *push.Result) {
		if r.Class == push.Again && r.Certainty == push.NotAccepted {
			*r = push.Result{Class: push.Delivered, Certainty: push.Accepted}
		}
	})
}

// silenceIsDelivered counts as delivered what was written and never answered.
func silenceIsDelivered(s *soil) {
	s.answered(func(r *push.Result) {
		if r.Class == push.Again && r.Certainty == push.Ambiguous {
			*r = push.Result{Class: push.Delivered, Certainty: push.Accepted}
		}
	})
}

// laterIsUnknown takes what the provider asked to try later for something that it
// may have accepted.
func laterIsUnknown(s *soil) {
	s.answered(func(r *push.Result) {
		if r.Class == push.Again && r.Certainty == push.NotAccepted {
			r.Certainty = push.Ambiguous
		}
	})
}

// resendAmbiguous takes what was written and never answered for not accepted.
func resendAmbiguous(s *soil) {
	s.answered(func(r *push.Result) {
		if r.Class == push.Again && r.Certainty == push.Ambiguous {
			r.Certainty = push.NotAccepted
		}
	})
}

// ignoreDropAmbiguous never reads the lane's ambiguous: unknown.
func ignoreDropAmbiguous(s *soil) { s.Policy.DropAmbiguous = false }

// firstTierAlways waits before every retry as before the first.
func firstTierAlways(s *soil) { s.Policy.RetryDelays = s.Policy.RetryDelays[:1] }

// retryWithoutFloor waits as long as the provider asked for, and not at all when
// it asked for nothing.
func retryWithoutFloor(s *soil) { s.Policy.RetryDelays = []time.Duration{0} }

// ignoreRetryAfter does not hear how long the provider wants to be left alone.
func ignoreRetryAfter(s *soil) {
	s.answered(func(r *push.Result) { r.After, r.Pause = 0, false })
}

// releaseAnswered gives a place of the window back when its send is answered,
// and not when the answer's row is durable. The pipeline gets a window that never
// fills; the route's is kept here.
func releaseAnswered(s *soil) {
	window := s.Window
	s.Window = 1 << 20
	s.providers(func(_ push.Route, p pipeline.Provider) pipeline.Provider {
		return answeredWindow{p, make(chan struct{}, window)}
	})
}

// answeredWindow lets so many deliveries be without an answer as it has places.
type answeredWindow struct {
	pipeline.Provider
	places chan struct{}
}

func (p answeredWindow) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for i := range ds {
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return i, ctx.Err()
		}
		_, err := p.Provider.Submit(ctx, ds[i:i+1], func(answered []*pipeline.Delivery) {
			for range answered {
				<-p.places
			}
			done(answered)
		})
		if err != nil {
			return i, err
		}
	}
	return len(ds), nil
}

// again sends a copy of each delivery once more and forgets the answer.
func again(p pipeline.Provider, ds []*pipeline.Delivery) {
	copies := make([]*pipeline.Delivery, len(ds))
	for i, d := range ds {
		c := *d
		c.Result = push.Result{}
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
	s.providers(func(_ push.Route, p pipeline.Provider) pipeline.Provider {
		return plantedProvider{Provider: p, answered: func(ds []*pipeline.Delivery) {
			again(p, slices.DeleteFunc(slices.Clone(ds), func(d *pipeline.Delivery) bool {
				return d.Result.Class != push.Again || d.Result.Certainty != push.NotAccepted
			}))
		}}
	})
}

// resendOnGoAway takes all that is in flight when a GOAWAY comes for not
// processed, and sends it again.
func resendOnGoAway(s *soil) {
	s.providers(func(r push.Route, p pipeline.Provider) pipeline.Provider {
		var mu sync.Mutex
		before := make(map[*pipeline.Delivery]int64) // GOAWAYs seen when it was submitted; guarded by mu
		goAways := func() int64 { return s.stats(r).GoAways }
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
				if d.Result.Class == push.Delivered && goAways() > before[d] {
					caught = append(caught, d)
				}
				delete(before, d)
			}
			again(p, caught)
		}}
	})
}
