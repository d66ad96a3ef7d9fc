package kafka

import (
	"testing"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reading is how package time keeps a time with a monotonic clock reading.
type reading struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

// slept returns what time.Now would return if the machine had been suspended for so long
// before: the wall clock goes on, and the monotonic one does not.
func slept(now time.Time, long time.Duration) time.Time {
	later := now.Add(long)
	l, n := (*reading)(unsafe.Pointer(&later)), (*reading)(unsafe.Pointer(&now))
	l.ext = n.ext
	return later
}

// Of two deadlines, each clock has its own first one. A member whose JoinGroup was lost is
// removed when the rebalance time-out is over, of which its machine has slept a part, each
// time for less than a session.
func TestALeaseEndsWithTheEarliestDeadlineOfEachClock(t *testing.T) {
	const session, rebalance = 10 * time.Second, 25 * time.Second
	m := newMembership(session, rebalance, func(int) {})
	start := time.Now()
	if got := slept(start, time.Hour); got.Sub(start) != 0 || got.UnixNano()-start.UnixNano() != int64(time.Hour) {
		t.Fatalf("setup: %v and %v on the clocks", got.Sub(start), time.Duration(got.UnixNano()-start.UnixNano()))
	}
	sync, beat := request{key: kmsg.SyncGroup}, request{key: kmsg.Heartbeat}
	m.answer(sync, start, 0)
	m.answer(beat, start, 0)
	m.sent(request{key: kmsg.JoinGroup}) // lost
	m.answer(beat, slept(start.Add(2*time.Second), 8*time.Second), kerr.RebalanceInProgress.Code)
	at := slept(start.Add(4*time.Second), 16*time.Second)
	m.answer(beat, at, kerr.RebalanceInProgress.Code)
	if m.lease.Lapsed(at) {
		t.Error("setup: lapsed within the rebalance time-out")
	}
	if gone := slept(start.Add(10*time.Second), 16*time.Second); !m.lease.Lapsed(gone) {
		t.Errorf("the lease goes on %v after the group was last whole, with a rebalance time-out of %v", time.Duration(gone.UnixNano()-start.UnixNano()), rebalance)
	}
}
