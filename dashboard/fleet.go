package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// Lamps of routes, the worst first. All but Slowed are what gates say.
const (
	LampHalted  = "halted"
	LampPaused  = "paused"
	LampProbing = "probing"
	LampSlowed  = "slowed"
	LampOpen    = "open"
)

var lamps = []string{LampHalted, LampPaused, LampProbing, LampSlowed, LampOpen}

// Route is a route of the fleet: a provider, an app and an environment, as its workers
// see it.
type Route struct {
	Provider    string    `json:"provider"`
	App         string    `json:"app"`
	Environment string    `json:"environment,omitempty"` // none: the provider has none
	Lamp        string    `json:"lamp"`                  // the worst that a worker says
	At          int       `json:"at"`                    // how many workers say that
	Workers     int       `json:"workers"`               // of how many
	Until       time.Time `json:"until,omitzero"`        // of a pause, the latest
	Word        string    `json:"word,omitempty"`        // the provider's last bad word
	RateName    string    `json:"rate_name,omitempty"`
	Rate        float64   `json:"rate,omitempty"` // pushes/s of the fleet; 0 = no limit
	Base        float64   `json:"base,omitempty"`
	Cause       string    `json:"cause,omitempty"` // of the rate's last change
	Share       float64   `json:"share"`           // pushes/s that workers took of it in the last second
	Connections int       `json:"connections"`
	Streams     int       `json:"streams"`
	InFlight    int64     `json:"in_flight"`
	Answers     []Answer  `json:"answers"` // of the last minute, the most frequent first
}

// Answer is how often answers of a route were of a class.
type Answer struct {
	Class  string `json:"class"`
	Reason string `json:"reason,omitempty"`
	N      int64  `json:"n"`
}

// maxAnswers is how many classes of answers are shown of a route.
const maxAnswers = 5

// Stall is a reason for which something waits at a worker.
type Stall struct {
	Worker    string    `json:"worker"`
	Reason    string    `json:"reason"`
	Lane      string    `json:"lane,omitempty"`
	Topic     string    `json:"topic,omitempty"`
	Partition *int32    `json:"partition,omitempty"`
	Route     string    `json:"route,omitempty"`
	Since     time.Time `json:"since"`
}

// Worker is a worker that is there.
type Worker struct {
	Worker      string    `json:"worker"`
	Release     string    `json:"release,omitempty"`
	Started     time.Time `json:"started"`
	Partitions  int       `json:"partitions"` // of the lanes' own topics
	Of          int       `json:"of"`         // that there are; 0 = not known
	Sent        float64   `json:"sent"`       // accepted a second, over the last 5 s
	Open        int64     `json:"open"`
	Pushes      int64     `json:"pushes"`
	Memory      int64     `json:"memory"`       // bytes
	MemoryBound int64     `json:"memory_bound"` // bytes; 0 = not known
	RepeatBound int64     `json:"repeat_bound"` // pushes that a kill now may repeat
	Omitted     int       `json:"omitted,omitempty"`
}

// Gone is a worker that is there no more.
type Gone struct {
	Worker string    `json:"worker"`
	Heard  time.Time `json:"heard"` // the last of it
	Last   bool      `json:"last"`  // it ended in order
}

// isMain reports whether what a worker says of a lane is about the lane's own topic.
func (p *positions) isMain(l *events.LaneState) bool {
	for i := range p.topics {
		if p.topics[i].name == l.Topic {
			return p.topics[i].kind == TopicMain
		}
	}
	return !strings.HasSuffix(l.Lane, retrySuffix)
}

// showLanes shows what is sent, in progress and queued.
func (f *Feed) showLanes(s *Snapshot, live []*source, limit int) {
	lanes := []Lane{}
	places := map[string]int{}
	of := func(name string) *Lane {
		name = strings.TrimSuffix(name, retrySuffix)
		if _, known := places[name]; !known && len(lanes) >= maxSeries {
			name = other
		}
		i, known := places[name]
		if !known {
			i = len(lanes)
			lanes, places[name] = append(lanes, Lane{Lane: name}), i
		}
		return &lanes[i]
	}
	topics := []Topic{}
	for _, t := range f.positions.topics {
		l := of(t.lane)
		switch t.kind {
		case TopicMain:
			l.Queued += t.waiting
			continue
		case TopicRetry, TopicHold:
			l.Waiting += t.waiting
		}
		topics = append(topics, Topic{t.lane, t.kind, t.name, t.waiting})
	}
	for _, name := range f.laneNames() {
		of(name)
	}
	for _, one := range live {
		for i := range one.state.Lanes {
			at := &one.state.Lanes[i]
			l := of(cut(at.Lane))
			l.Pushes += at.Pushes
			if !f.positions.isMain(at) {
				continue // what waits for its time in a retry topic is no work in progress
			}
			l.InProgress += at.Open
			if !at.Oldest.IsZero() && (l.Oldest.IsZero() || at.Oldest.Before(l.Oldest)) {
				l.Oldest = stamp(at.Oldest)
			}
		}
	}
	for i := range lanes {
		l := &lanes[i]
		l.Sent, l.Failed = f.rate(f.tracks(l.Lane, delivered)), f.rate(f.tracks(l.Lane, failed[:]...))
		l.Queued = max(0, l.Queued-l.InProgress)
		if s.Filter.Lane == "" || s.Filter.Lane == l.Lane {
			s.Sum.include(l)
		}
	}
	s.Lanes = bound(s, "lanes", lanes, limit)
	s.Topics = bound(s, "topics", topics, limit)
}

// laneNames are the lanes that something was counted in, sorted.
func (f *Feed) laneNames() (names []string) {
	for k := range f.history.tracks {
		if !slices.Contains(names, k.lane) {
			names = append(names, k.lane)
		}
	}
	slices.Sort(names)
	return names
}

func (s *Lane) include(l *Lane) {
	s.Sent += l.Sent
	s.Failed += l.Failed
	s.InProgress += l.InProgress
	s.Pushes += l.Pushes
	s.Queued += l.Queued
	s.Waiting += l.Waiting
	if !l.Oldest.IsZero() && (s.Oldest.IsZero() || l.Oldest.Before(s.Oldest)) {
		s.Oldest = l.Oldest
	}
}

// routesOf puts what the workers say of their routes together.
func routesOf(live []*source, rates map[string]events.Rate) []Route {
	type name struct{ provider, app, environment string }
	routes := map[name]*Route{}
	for _, one := range live {
		for i := range one.state.Routes {
			at := &one.state.Routes[i]
			k := name{cut(at.Provider), cut(at.App), cut(at.Environment)}
			r := routes[k]
			if r == nil {
				r = &Route{Provider: k.provider, App: k.app, Environment: k.environment, Lamp: LampOpen, Answers: []Answer{}}
				routes[k] = r
			}
			r.include(at)
		}
	}
	list := make([]Route, 0, len(routes))
	for _, r := range routes {
		r.Cause = rates[r.RateName].Cause
		slices.SortFunc(r.Answers, func(x, y Answer) int {
			return cmp.Or(cmp.Compare(y.N, x.N), strings.Compare(x.Class+x.Reason, y.Class+y.Reason))
		})
		r.Answers = r.Answers[:min(len(r.Answers), maxAnswers)]
		list = append(list, *r)
	}
	slices.SortFunc(list, func(x, y Route) int { // what needs a look comes first
		return cmp.Or(cmp.Compare(slices.Index(lamps, x.Lamp), slices.Index(lamps, y.Lamp)), strings.Compare(x.Provider, y.Provider),
			strings.Compare(x.App, y.App), strings.Compare(x.Environment, y.Environment))
	})
	return list
}

// include adds what one worker says.
func (r *Route) include(at *events.RouteState) {
	lamp := at.Gate
	if lamp == LampOpen && at.Rate > 0 && at.Base > 0 && at.Rate < at.Base {
		lamp = LampSlowed
	}
	if slices.Index(lamps, lamp) < 0 {
		lamp = LampOpen // a gate that a later version knows
	}
	switch worse := slices.Index(lamps, lamp) - slices.Index(lamps, r.Lamp); {
	case worse < 0:
		r.Lamp, r.At = lamp, 1
		r.Word = cmp.Or(cut(at.Word), r.Word)
	case worse == 0:
		r.At++
		r.Word = cmp.Or(r.Word, cut(at.Word))
	}
	r.Workers++
	if at.Until.After(r.Until) {
		r.Until = stamp(at.Until)
	}
	r.RateName = cmp.Or(r.RateName, cut(at.RateName))
	if r.Rate == 0 || at.Rate > 0 && at.Rate < r.Rate {
		r.Rate = at.Rate
	}
	r.Base = max(r.Base, at.Base)
	r.Share += at.Share
	r.Connections += at.Connections
	r.Streams += at.Streams
	r.InFlight += at.InFlight
	for _, a := range at.Answers {
		a.Class, a.Reason = cut(a.Class), cut(a.Reason)
		i := slices.IndexFunc(r.Answers, func(b Answer) bool { return b.Class == a.Class && b.Reason == a.Reason })
		if i < 0 && len(r.Answers) < maxEntries {
			i = len(r.Answers)
			r.Answers = append(r.Answers, Answer{Class: a.Class, Reason: a.Reason})
		}
		if i >= 0 {
			r.Answers[i].N += a.N
		}
	}
}

// stallsOf are the stalls of all workers, the oldest first.
func stallsOf(live []*source) (list []Stall) {
	for _, one := range live {
		for _, st := range one.state.Stalls {
			list = append(list, Stall{one.name(), cut(st.Reason), cut(st.Lane), cut(st.Topic), st.Partition, cut(st.Route), stamp(st.Since)})
		}
	}
	slices.SortStableFunc(list, func(x, y Stall) int { return x.Since.Compare(y.Since) })
	return list
}

// workers are those that are there, by name.
func (f *Feed) workers(live []*source) []Worker {
	list := make([]Worker, 0, len(live))
	for _, one := range live {
		end := f.now.Unix() - 1
		w := Worker{Worker: one.name(), Release: one.state.Release, Started: stamp(one.state.Started), Of: f.positions.maximum,
			Sent: float64(one.sent.sum(end-nowSpan, end)) / nowSpan, Memory: one.state.Memory, MemoryBound: one.state.MemoryBound,
			RepeatBound: one.state.RepeatBound, Omitted: one.state.Omitted}
		for i := range one.state.Lanes {
			l := &one.state.Lanes[i]
			w.Pushes += l.Pushes
			if f.positions.isMain(l) {
				w.Partitions += len(l.Partitions)
				w.Open += l.Open
			}
		}
		list = append(list, w)
	}
	return list
}

// showGone shows who is there no more, the newest first.
func (f *Feed) showGone(s *Snapshot, limit int) {
	gone := make([]Gone, 0, len(f.sources.gone))
	for _, d := range slices.Backward(f.sources.gone) {
		gone = append(gone, Gone{d.name, d.heard.UTC(), d.last})
	}
	s.Gone = bound(s, "gone", gone, limit/10)
}
