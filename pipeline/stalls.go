package pipeline

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Stalls are the reasons for which a pipeline waits on purpose, declared while
// they last: a store that is down, a stopped route, a used-up budget. What the
// watchdog sees standing still without one of them is a fault of ours. The
// zero value is ready; all methods may be called at once.
type Stalls struct {
	mu    sync.Mutex
	open  map[stallID]*declared // guarded by mu
	ended map[stallID]*declared // since the last Declared; guarded by mu
}

// stallID is what makes two declarations one stall.
type stallID struct {
	name string
	line Line
}

type declared struct {
	Stall
	times int                    // declared and not over
	parts map[push.Partition]int // how often each; nil = all
}

// Line is what waits for a route with one charge, as others see it. Charge is
// empty for what pays nothing. The zero Line is none.
type Line struct {
	Route  push.Route
	Charge string
}

// Stall is one declared reason. Name is a metric label, so one of a few
// ("status", "route_paused"); Detail is for the log, without anything secret.
type Stall struct {
	Name   string
	Detail string
	Since  time.Time
	Until  time.Time // zero = it lasts
	// Line is what stands still; of a store that all need, none.
	Line Line
	// Partitions are those whose records wait, in order. With a Line, no others
	// have a reason to stand still; without one, all have.
	Partitions []push.Partition
}

// excuses reports whether a partition stands still for this.
func (s *Stall) excuses(p push.Partition) bool {
	return s.Line == Line{} || slices.Contains(s.Partitions, p)
}

// Declare says that something waits from now on that everything needs, until the
// returned function is called with the time at which it goes on. That may be
// called more than once, and then does nothing. Of several with one name the
// first since none was declared counts.
func (s *Stalls) Declare(now time.Time, name, detail string) (over func(now time.Time)) {
	return s.declare(now, stallID{name: name}, detail, nil)
}

// DeclareLine is Declare for one line, and for the partitions whose records are
// next in it.
func (s *Stalls) DeclareLine(now time.Time, name string, l Line, next []push.Partition) (over func(now time.Time)) {
	return s.declare(now, stallID{name, l}, l.Route.String(), next)
}

func (s *Stalls) declare(now time.Time, id stallID, detail string, parts []push.Partition) (over func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.open[id]
	if d == nil {
		d = &declared{Stall: Stall{Name: id.name, Detail: detail, Since: now, Line: id.line}, parts: make(map[push.Partition]int)}
		if s.open == nil {
			s.open, s.ended = make(map[stallID]*declared), make(map[stallID]*declared)
		}
		s.open[id] = d
	}
	d.times++
	for _, p := range parts {
		d.parts[p]++
	}
	var once sync.Once
	return func(now time.Time) { once.Do(func() { s.end(now, id, parts) }) }
}

func (s *Stalls) end(now time.Time, id stallID, parts []push.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.open[id]
	e := s.ended[id]
	if e == nil {
		e = &declared{Stall: d.Stall, parts: make(map[push.Partition]int)}
		s.ended[id] = e
	}
	e.Until = latestOf(e.Until, now)
	for _, p := range parts {
		e.parts[p] = 1
		if d.parts[p]--; d.parts[p] == 0 {
			delete(d.parts, p)
		}
	}
	if d.times--; d.times == 0 {
		delete(s.open, id)
	}
}

// Declared returns the stalls there are, and those that are over since it was
// last called, both oldest first.
func (s *Stalls) Declared() (open, ended []Stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ended = listed(s.open), listed(s.ended)
	clear(s.ended)
	return open, ended
}

func listed(all map[stallID]*declared) (stalls []Stall) {
	for _, d := range all {
		stall := d.Stall
		stall.Partitions = sortedPartitions(d.parts)
		stalls = append(stalls, stall)
	}
	slices.SortFunc(stalls, func(a, b Stall) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Line.Charge, b.Line.Charge))
	})
	return stalls
}

func sortedPartitions(parts map[push.Partition]int) []push.Partition {
	return slices.SortedFunc(maps.Keys(parts), func(a, b push.Partition) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID)) })
}
