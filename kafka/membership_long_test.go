package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members join one after another, each while the one before has not been given its
// assignment. No rebalance takes long, and each JoinGroup is answered.
func TestRebalancesThatFollowOneAnotherLapseNoLease(t *testing.T) {
	m := newMembership(10*time.Second, 60*time.Second, func(int) {})
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	join, sync := request{key: kmsg.JoinGroup}, request{key: kmsg.SyncGroup}
	m.answer(sync, at(0), 0)
	for round := range 4 {
		m.sent(join)
		for s := range 21 { // a member drains
			now := at(round*21 + s)
			m.answer(request{key: kmsg.Heartbeat}, now, kerr.RebalanceInProgress.Code)
			if m.lease.Lapsed(now) {
				t.Fatalf("lapsed in rebalance %d, %d s after it began", round+1, s)
			}
		}
		m.answer(join, at(round*21), 0)
		m.sent(sync)
		m.answer(sync, at(round*21+20), kerr.RebalanceInProgress.Code) // the next one joins
	}
}
