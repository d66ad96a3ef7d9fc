//go:build unix

package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/fanout"
)

// The parts of the topic's subscribers, of whom one of apart leaves and comes back, and
// beside whom as many come who were not there, and as many never do.
const (
	chunks = 16 // a small topic's
	apart  = 25
)

// audience is how many users have subscribed at the beginning of a run. The first of the
// crowd are they, then come those who join later, and then those who never do.
func (t *through) audience(full bool) int {
	if full {
		return t.subscribers
	}
	return t.shorter
}

// people makes a crowd large enough, and has the callers do what it would do else.
func (t *through) people(o *crowd.Options, full bool) {
	n := t.audience(full)
	o.Users = max(o.Users, n+2*n/apart)
	o.Duplicates, o.Broken = 0, 0
}

// caller may do everything that is done.
func caller() fleet.Caller {
	return fleet.Caller{Key: "chaos-chaos-chaos-chaos-chaos-chaos-chaos", Sender: "orders", Apps: []string{fleet.App}, Rights: []string{"send", "read", "users"}}
}

// fanoutsAtOnce is how many chunks a process of fan-outs has open, and fanoutRate how many
// records a second it makes: so slowly that faults meet it in the middle of them.
const (
	fanoutsAtOnce = 2
	fanoutRate    = 300
)

// useGateways configures gateways and fan-outs.
func (w *world) useGateways(c *configs.Config) {
	fleet.UseCallers(c, w.dir)
	g := &c.Gateway
	// What nobody comes near: leases are asked for, and refuse nothing.
	g.Limits.Default = configs.SenderLimits{Second: 100_000}
	g.Repeats = 2 * time.Second // some repeats are known, and others written again
	if w.scenario.through.messages > 0 {
		g.Topics, g.Fanout.Enabled = true, true
		f := &g.Fanout
		f.Rate, f.AtOnce, f.OpenChunks, f.Page, f.Lag = fanoutRate, fanoutsAtOnce, 6, 100, 3000
	}
}

// newGateway makes a slot for a gateway, which callers reach by its door.
func (w *world) newGateway(i int) (*slot, error) {
	door, err := proxy.Listen("", nil)
	if err != nil {
		return nil, err
	}
	s := &slot{world: w, name: gateway(i), launch: w.fleet.StartGateway, door: door}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateways = append(w.gateways, s)
	return s, nil
}

// doors are the slots of gateways.
func (w *world) doors() []*slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gateways)
}

// fanoutProcesses is how many of fan-outs there ever were.
func (w *world) fanoutProcesses() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.fanouts)
}

// newFanout makes a slot for one more process of fan-outs.
func (w *world) newFanout() *slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &slot{world: w, name: fanoutProcess(len(w.fanouts)), launch: w.fleet.StartFanout}
	w.fanouts = append(w.fanouts, s)
	return s
}

// startGateways starts what the scenario has of them, if it has any.
func (w *world) startGateways(ctx context.Context) error {
	t := w.scenario.through
	if t == nil {
		return nil
	}
	var started []*slot
	for i := range t.gateways {
		s, err := w.newGateway(i)
		if err != nil {
			return err
		}
		started = append(started, s)
	}
	for range t.processes {
		started = append(started, w.newFanout())
	}
	for _, s := range started {
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range started {
		if err := s.process().AwaitReady(ctx); err != nil {
			return err
		}
	}
	w.largest = largestChunk(w.people)
	return nil
}

// largestChunk is how many users of a crowd a part of a topic's subscribers has at most.
func largestChunk(people *crowd.Crowd) int {
	var sizes [chunks]int
	largest := 0
	for i := range people.Users {
		part := fanout.SliceOf(people.User(i).ID) * chunks / fanout.Slices
		sizes[part]++
		largest = max(largest, sizes[part])
	}
	return largest
}

// again is how many records a process of fan-outs that dies leaves to be produced again.
func (w *world) again() int { return fanoutsAtOnce * w.largest }

// gatewayBudget is how long a gateway or a process of fan-outs may take to end. With Kafka away
// on a starved machine one was seen to take 13 s more than its drain.
func (w *world) gatewayBudget(s *slot) time.Duration {
	slack := termSlack
	if w.busy {
		slack = 3 * busyTermSlack
	}
	if s.door != nil {
		return w.fleet.Config.Gateway.Drain + slack
	}
	return drain + slack
}

// restartGateways ends all of them in order, so that nothing is on its way to Kafka any
// more, and starts gateways again: they are asked for receipts.
func (w *world) restartGateways(ctx context.Context) error {
	for _, s := range w.all() {
		if s.apns != nil || !s.process().Running() {
			continue
		}
		if err := s.term(ctx, w.gatewayBudget(s)); err != nil {
			return err
		}
		if s.door == nil {
			continue
		}
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range w.doors() {
		if err := s.process().AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
