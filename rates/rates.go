package rates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Counted is what a provider counts as one: what shares a rate.
type Counted struct {
	Name string  // of the rate in Redis, logs and metrics, such as fcm/example-shop
	Base float64 // sends a second; 0 = no limit until it is lowered. Otherwise at least 1
	// Window, if any, is the time for which the provider counts: its quota is of so much
	// in each, and is used up then until the next one begins. At least a second.
	Window time.Duration
}

// Options are what Rates work with. All are required but Tell.
type Options struct {
	Fleet   string // who shares them; of two fleets with one Redis each has its own
	Member  string // this worker, which no other one is called: without blanks
	Factors Factors
	Metrics *Metrics
	Log     *slog.Logger
	// Limit is how many sends a second all workers make together, whatever the route, and
	// Lanes how many lanes share it; 0 = there is no limit. Otherwise at least 1.
	Limit float64
	Lanes int
	// Tell, if set, hears of the changes that this worker makes. It must be quick.
	Tell func(Change)
}

// Rates are the rates of a worker's routes. All methods may be called at once.
type Rates struct {
	routes map[push.Route]*Rate // never changed, nor is the next
	rates  map[Counted]*Rate
	limit  *Limit // nil = there is none
}

// New makes the rates of routes; routes that are counted as one have one. The client
// stays the caller's. Nothing is asked before Run.
func New(client shards.Client, routes map[push.Route]Counted, o Options) (*Rates, error) {
	if err := o.Factors.check(); err != nil {
		return nil, fmt.Errorf("rates: %w", err)
	}
	if o.Fleet == "" || o.Member == "" || o.Metrics == nil || o.Log == nil {
		return nil, errors.New("rates: the names of fleet and member, metrics and a log are needed")
	}
	if o.Tell == nil {
		o.Tell = func(Change) {}
	}
	rs := &Rates{routes: make(map[push.Route]*Rate, len(routes)), rates: make(map[Counted]*Rate)}
	names := make(map[string]bool)
	for route, c := range routes {
		if c.Name == "" || c.Base != 0 && !(c.Base >= slowest) {
			return nil, fmt.Errorf("rates: %s has no name, or a base of %v: it must be 0, or at least %d", route, c.Base, slowest)
		}
		if c.Window != 0 && c.Window < time.Second {
			return nil, fmt.Errorf("rates: %s has a window of %v: it must be 0, or at least a second", route, c.Window)
		}
		r := rs.rates[c]
		if r == nil {
			if names[c.Name] {
				return nil, fmt.Errorf("rates: %s has two bases or windows", c.Name)
			}
			names[c.Name] = true
			r = newRate(client, c, &o)
			rs.rates[c] = r
		}
		rs.routes[route] = r
	}
	if o.Limit == 0 {
		return rs, nil
	}
	if !(o.Limit >= slowest) || o.Lanes < 1 || names[limitName] {
		return nil, fmt.Errorf("rates: a limit of %v for the fleet, shared by %d lanes: want at least %d, lanes, and no rate called %s", o.Limit, o.Lanes, slowest, limitName)
	}
	limit := Counted{Name: limitName, Base: o.Limit}
	rs.rates[limit] = newRate(client, limit, &o)
	rs.limit = newLimit(rs.rates[limit], o.Lanes)
	return rs, nil
}

func newRate(client shards.Client, c Counted, o *Options) *Rate {
	r := &Rate{
		store:   store{client: client, key: shards.RateKey(o.Fleet, c.Name), member: o.Member, base: c.Base, window: c.Window},
		factors: o.Factors, log: o.Log.With("rate", c.Name), metrics: o.Metrics.of(c.Name), tell: o.Tell,
		wake: make(chan struct{}, 1), told: time.Now(),
	}
	r.seen.taken = -1
	r.become(State{Rate: c.Base})
	return r
}

// Of returns the rate of a route, or nil if nothing counts it.
func (rs *Rates) Of(r push.Route) *Rate { return rs.routes[r] }

// Limit returns the limit of the whole fleet, or nil if there is none.
func (rs *Rates) Limit() *Limit { return rs.limit }

// Run shares the rates with the other workers until ctx ends. Under a limit nothing
// may be sent before it runs.
func (rs *Rates) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, r := range rs.rates {
		running.Go(func() { r.run(ctx) })
	}
	running.Wait()
}
