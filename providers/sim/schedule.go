package sim

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Scheduled is a command with its time: by the simulated clock, from the making
// of the Server.
type Scheduled struct {
	At      Interval `json:"at"`
	Command Command  `json:"command"`
}

func (s *Scheduled) validate() error {
	if s.At < 0 {
		return fmt.Errorf("at %v: before the start", time.Duration(s.At))
	}
	if _, err := s.Command.plan(); err != nil {
		return fmt.Errorf("%q: %w", s.Command.Do, err)
	}
	return nil
}

// Schedule adds commands to what is done in time. Those whose time has passed
// are carried out at once. Nothing is added if one of them makes no sense. Two
// at the same time go in their order.
func (s *Server) Schedule(list ...Scheduled) error {
	for i := range list {
		if err := list[i].validate(); err != nil {
			return fmt.Errorf("scheduling, command %d: %w", i+1, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scheduled = append(s.scheduled, list...)
	slices.SortStableFunc(s.scheduled, func(a, b Scheduled) int { return int(min(max(a.At-b.At, -1), 1)) })
	if !s.timing && len(s.scheduled) > 0 && !s.closed {
		s.timing = true
		s.serving.Go(s.keepTime)
	}
	select {
	case s.rescheduled <- struct{}{}:
	default:
	}
	return nil
}

// keepTime carries the schedule out, until it is empty or the Server closes.
func (s *Server) keepTime() {
	for {
		s.mu.Lock()
		now := Interval(s.policy.clock.Elapsed())
		n := 0
		for n < len(s.scheduled) && s.scheduled[n].At <= now {
			n++
		}
		due := s.scheduled[:n:n]
		s.scheduled = s.scheduled[n:]
		if n == 0 && (len(s.scheduled) == 0 || s.closed) {
			s.timing = false
			s.mu.Unlock()
			return
		}
		wait := time.Duration(0)
		if n == 0 {
			wait = time.Duration(s.scheduled[0].At - now)
		}
		s.mu.Unlock()
		for i := range due {
			_ = s.command(&due[i].Command, bySchedule) // it was checked
		}
		if n == 0 {
			s.pass(wait)
		}
	}
}

// pass lets a simulated time pass, unless the clock, the schedule or the end
// comes in between.
func (s *Server) pass(simulated time.Duration) {
	d, changed := s.policy.clock.until(simulated)
	ctx, cancel := context.WithTimeout(s.life, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-s.rescheduled:
	}
}
