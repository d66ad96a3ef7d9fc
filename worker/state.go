package worker

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// stateRound is how often push.events is told what this worker is at.
const stateRound = time.Second

// tellState tells push.events what this worker is at, once a round until ctx ends, and
// then once more, as the last. It is as best effort as the counts, in records of its
// own: a state that the topic does not take is no gap, the next one says all.
func (g *group) tellState(ctx context.Context, collector *events.Collector, producer pipeline.Producer) {
	ticker := time.NewTicker(stateRound)
	defer ticker.Stop()
	s := g.newSurvey(time.Now())
	away := false
	for last := false; !last; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last = true
		}
		now := time.Now()
		state := s.look(now)
		state.Last = last
		told := []pipeline.Handover{{To: pipeline.ToEvents, Event: collector.State(state, now)}}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Config.Kafka.CommitTimeout)
		err := producer.Produce(within, told)
		cancel()
		switch {
		case err != nil && !away:
			g.Log.Warn("push.events does not take this worker's state", "error", err)
		case err == nil && away:
			g.Log.Info("push.events takes this worker's state again")
		}
		away = err != nil
	}
}

// survey looks at all parts of a worker, by snapshots that change nothing. Not safe for
// concurrent use.
type survey struct {
	*group
	fixed  events.State // what never changes
	sorted []push.Route // all there are, by name

	looked   time.Time
	admitted map[push.Route]uint64 // at that time
}

func (g *group) newSurvey(now time.Time) *survey {
	s := &survey{group: g, looked: now, admitted: make(map[push.Route]uint64)}
	s.fixed = events.State{Worker: memberName(g.Config), Release: g.Version, Started: now, MemoryBound: int64(g.Config.MemoryBound().Total())}
	for _, l := range g.lanes {
		s.fixed.RepeatBound += int64(l.pipeline.Bound())
	}
	for r := range g.routes {
		s.sorted = append(s.sorted, r)
	}
	slices.SortFunc(s.sorted, func(a, b push.Route) int { return cmp.Compare(a.String(), b.String()) })
	return s
}

// memberName is what people call a worker: its client id if it has one of its own, or
// else its host.
func memberName(c *configs.Config) string {
	if id := c.Kafka.ClientID; id != configs.Default().Kafka.ClientID {
		return id
	}
	host, err := os.Hostname()
	if err != nil {
		return c.Kafka.ClientID
	}
	return host
}

// look returns what the worker is at.
func (s *survey) look(now time.Time) events.State {
	state := s.fixed
	state.Memory = resident()
	for _, l := range s.lanes {
		state.Lanes = append(state.Lanes, laneStates(l.name, l.source.Owned(), l.pipeline.Pushes())...)
		state.Stalls = append(state.Stalls, stallStates(l.name, l.pipeline.Stalls())...)
	}
	for _, r := range s.sorted {
		state.Routes = append(state.Routes, s.route(r, now))
	}
	s.looked = now
	return state
}

// route is what a route is at.
func (s *survey) route(r push.Route, now time.Time) events.RouteState {
	state := events.RouteState{Provider: r.Platform.String(), App: r.App, Environment: r.Environment, Gate: string(gates.Open)}
	if pool, ok := s.routes.stats(r); ok {
		state.Connections, state.Streams, state.InFlight = int(pool.Connections), int(pool.Granted), pool.InFlight
	}
	if rate := s.shared.rates.Of(r); rate != nil {
		state.RateName, state.Rate, state.Base = rate.Now()
	}
	if c, is := s.routes[r].(refusing); is && c.Refused() != "" {
		state.Credential, state.Remedy = c.RefusedKey()
	}
	gate := s.shared.gates.Of(r)
	if gate == nil {
		return state
	}
	v := gate.View(now)
	state.Gate, state.Until, state.Word = string(v.Condition), v.Until, s.shared.pipeline.Word(v.Word)
	if passed := now.Sub(s.looked).Seconds(); passed > 0 {
		state.Share = float64(v.Admitted-s.admitted[r]) / passed
	}
	s.admitted[r] = v.Admitted
	state.Answers, state.Quarantined = s.answers(v.Answers), v.Quarantined
	return state
}

// answers are those of a route by words that metrics tell too, so that nothing else of
// an answer is told.
func (s *survey) answers(all []gates.Answered) (states []events.AnswerState) {
	for _, a := range all {
		told := events.AnswerState{Class: a.Class.String(), Reason: s.shared.pipeline.Word(a.Reason), N: a.N}
		if i := slices.IndexFunc(states, func(o events.AnswerState) bool { return o.Class == told.Class && o.Reason == told.Reason }); i >= 0 {
			states[i].N += told.N
			continue
		}
		states = append(states, told)
	}
	return states
}

// laneStates are the topics of which half a lane owns partitions, or has pushes under
// way. owned is in order.
func laneStates(lane string, owned []kafka.Owned, pushes map[string]int64) (states []events.LaneState) {
	for _, o := range owned {
		last := len(states) - 1
		if last < 0 || states[last].Topic != o.Partition.Topic {
			last++
			states = append(states, events.LaneState{Lane: lane, Topic: o.Partition.Topic, Pushes: pushes[o.Partition.Topic]})
			delete(pushes, o.Partition.Topic)
		}
		s := &states[last]
		s.Partitions, s.Open = append(s.Partitions, o.Partition.ID), s.Open+int64(o.Open)
		if !o.Oldest.IsZero() && (s.Oldest.IsZero() || o.Oldest.Before(s.Oldest)) {
			s.Oldest = o.Oldest
		}
	}
	for topic, n := range pushes { // of partitions that have left
		states = append(states, events.LaneState{Lane: lane, Topic: topic, Partitions: []int32{}, Pushes: n})
	}
	return states
}

// stallStates are a lane's stalls: one for each partition whose records wait in a line,
// one for all that waits for the same store. Lines of one route that wait for the same
// are one.
func stallStates(lane string, stalls []gates.Stall) (states []events.StallState) {
	type id struct {
		name, route string
		partition   push.Partition
	}
	seen := make(map[id]bool)
	add := func(s *gates.Stall, route string, p push.Partition) {
		if k := (id{s.Name, route, p}); !seen[k] { // the oldest comes first
			seen[k] = true
			state := events.StallState{Reason: s.Name, Lane: lane, Route: route, Since: s.Since}
			if p.Topic != "" {
				state.Topic, state.Partition = p.Topic, &p.ID
			}
			states = append(states, state)
		}
	}
	for i := range stalls {
		s := &stalls[i]
		route := ""
		if s.Line != (gates.Line{}) {
			route = s.Line.Route.String()
		}
		for _, p := range s.Partitions {
			add(s, route, p)
		}
		if len(s.Partitions) == 0 {
			add(s, route, push.Partition{})
		}
	}
	return states
}

// resident is how much memory this process has, in bytes: as Linux says, or elsewhere
// what Go has taken and not given back.
func resident() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if fields := bytes.Fields(statm); err == nil && len(fields) > 1 {
		if pages, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
			return pages * int64(os.Getpagesize())
		}
	}
	taken := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(taken)
	return int64(taken[0].Value.Uint64() - taken[1].Value.Uint64())
}
