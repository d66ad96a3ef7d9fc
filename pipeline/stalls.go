package pipeline

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Stalls are the reasons for which a pipeline waits on purpose, declared while
// they last: a store that is down, a stopped route, a used-up budget. What the
// watchdog sees standing still without one of them is a fault of ours. The
// zero value is ready; all methods may be called at once.
type Stalls struct {
	mu   sync.Mutex
	open map[string]*declared
	over time.Time // when the last one ended
}

type declared struct {
	Stall
	times int // declared and not over
}

// Stall is one declared reason. Name is a metric label, so one of a few
// ("status", "route_paused"); Detail is for the log, without anything secret.
type Stall struct {
	Name   string
	Detail string
	Since  time.Time
}

// Declare says that something waits from now on, until the returned function
// is called with the time at which it goes on. That may be called more than
// once, and then does nothing. Of several with one name the first since none
// was declared counts.
func (s *Stalls) Declare(now time.Time, name, detail string) (over func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.open[name]
	if d == nil {
		d = &declared{Stall: Stall{Name: name, Detail: detail, Since: now}}
		if s.open == nil {
			s.open = make(map[string]*declared)
		}
		s.open[name] = d
	}
	d.times++
	var once sync.Once
	return func(now time.Time) { once.Do(func() { s.end(now, name) }) }
}

func (s *Stalls) end(now time.Time, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.open[name]
	if d.times--; d.times == 0 {
		delete(s.open, name)
	}
	if now.After(s.over) {
		s.over = now
	}
}

// Declared returns the stalls there are, oldest first, and when the last one
// that is over ended; zero = there was none.
func (s *Stalls) Declared() (open []Stall, over time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.open {
		open = append(open, d.Stall)
	}
	slices.SortFunc(open, func(a, b Stall) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	return open, s.over
}
