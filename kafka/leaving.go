package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// leavingBalancer tells the group in each JoinGroup once draining is set that this member
// wants no topics. A member that drains stays in the group until its last commit, and a
// rebalance meanwhile would hand it partitions which nobody reads until it is gone. While
// members come and go faster than they drain, that could happen to a partition again and
// again. What the member still has is revoked in such a rebalance, which waits for its
// drain, as for any other revoke.
type leavingBalancer struct {
	kgo.GroupBalancer
	draining *atomic.Bool
}

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b leavingBalancer) JoinGroupMetadata(topics []string, owned map[string][]int32, generation int32) []byte {
	if b.draining.Load() {
		topics = nil
	}
	return b.GroupBalancer.JoinGroupMetadata(topics, owned, generation)
}

// Leaving says that this member drains and is going to be closed: from its next JoinGroup
// on the group gives it no partitions. With the protocol ServerSide it does nothing: the
// coordinator decides there. It does not block.
func (s *Source) Leaving() { s.draining.Store(true) }
