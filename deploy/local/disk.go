//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"
)

// FillDisk makes every write of the running server to a file fail from now on,
// its log included, as on a full disk; what is on the disk stays and can be
// read. It lasts until FreeDisk or the end of the process. Only Linux can do
// it, and unlike a small file system it needs no root.
//
// Two things differ from a full disk: the error is EFBIG in place of ENOSPC,
// which the servers treat alike, and a file that is mapped into memory takes
// writes up to the size that it has.
func (s *Server) FillDisk() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process.ended() {
		return fmt.Errorf("filling the disk of %s: it has ended", s.name)
	}
	return limitFiles(s.process.PID(), 0)
}

// FreeDisk lets the server write again, and does what an operator does then:
// unless it still answers, what is left of it is killed and it is started
// again. It returns when the server answers.
func (s *Server) FreeDisk(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.ended() {
		// It may end just now.
		if err := limitFiles(s.process.PID(), math.MaxUint64); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		if s.answers(ctx) == nil {
			return nil
		}
		if err := s.kill(); err != nil {
			return err
		}
	}
	return s.start(ctx)
}

// AwaitDown waits until the server answers no more: it has ended, or refuses.
func (s *Server) AwaitDown(ctx context.Context) error {
	for s.answers(ctx) == nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still answers: %w", s.name, context.Cause(ctx))
		case <-time.After(25 * time.Millisecond):
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("asking whether %s is down: %w", s.name, context.Cause(ctx))
	}
	return nil
}

// answers makes one real request; an answer that takes longer than 10 s is none.
func (s *Server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return s.ready(ctx)
}
