package gates

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Stalls are the reasons for which a pipeline waits on purpose, declared while
// they last: a store that is down, a stopped route, a used-up budget. If the
// watchdog sees a partition stand still without any of them, that is a bug. The
// zero value is ready to use; all methods are safe for concurrent use.
type Stalls struct {
	mu    sync.Mutex
	open  map[stallID]*declared // guarded by mu
	ended map[stallID]*declared // since the last Declared; guarded by mu
}

// stallID identifies a stall: declarations with the same stallID are one stall.
type stallID struct {
	name string
	line Line
}

type declared struct {
	Stall
	times int                    // declarations that have not ended
	parts map[push.Partition]int // how many declarations name each
}

// Stall is one declared reason. Name is a metric label, so there are only a few
// ("status", "route_paused"); Detail is for the log and contains no secrets.
type Stall struct {
	Name   string
	Detail string
	Since  time.Time
	Until  time.Time // zero = it lasts
	// Line is the line that is stalled; none for a store that all lines need.
	Line Line
	// Partitions are those whose records wait, in order. With a Line, only these
	// have a reason to stand still; without one, all partitions have.
	Partitions []push.Partition
}

// Excuses reports whether s is a reason for the partition to stand still.
func (s *Stall) Excuses(p push.Partition) bool {
	return s.Line == Line{} || slices.Contains(s.Partitions, p)
}

// Declare says that, from now on, everything may wait for the same thing. The stall
// lasts until over is called with the time at which work goes on; further calls of
// over do nothing. If several declarations with one name overlap, the stall begins
// with the first of them and ends with the last.
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
	if now.After(e.Until) {
		e.Until = now
	}
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

// Declared returns the current stalls, and those that have ended since it was last
// called, both oldest first.
func (s *Stalls) Declared() (open, ended []Stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ended = listed(s.open), listed(s.ended)
	clear(s.ended)
	return open, ended
}

// Current returns the stalls of this moment, oldest first. Unlike Declared it changes
// nothing: it is for those who only watch.
func (s *Stalls) Current() []Stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return listed(s.open)
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
