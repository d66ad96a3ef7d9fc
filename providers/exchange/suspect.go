package exchange

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// suspectAfter is how many bad answers in a row, all over one connection, have the
	// next request go over another one: fewer than the gate's default of failures, so
	// that those come over two.
	suspectAfter = 3
	// leaveEvery is the least time between two connections that are left for it.
	leaveEvery = 10 * time.Second
)

// suspect finds the connection over which nothing but bad answers come. At a low rate
// a pool has one, and whether the provider fails or the machine at its other end can
// only be told by another. All methods may be called at once.
type suspect struct {
	some atomic.Bool // there are bad ones: what goes well takes no lock before that

	mu   sync.Mutex // guards what follows
	conn uint32
	bad  int       // in a row, over conn
	left time.Time // when a connection was left last
}

// answered counts an answer, and reports whether its connection is to be left.
func (s *suspect) answered(conn uint32, bad bool) bool {
	if !bad && !s.some.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bad || conn != s.conn {
		s.conn, s.bad = conn, 0
	}
	if bad {
		s.bad++
	}
	leave := false
	if s.bad >= suspectAfter {
		if now := time.Now(); now.Sub(s.left) >= leaveEvery {
			leave, s.left, s.bad = true, now, 0
		}
	}
	s.some.Store(s.bad > 0)
	return leave
}
