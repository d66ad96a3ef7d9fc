package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// beat sends the heartbeats that the client does not send by the classic protocol, until
// ctx ends: while a JoinGroup or SyncGroup is pending, right after the latter, and while
// the client leaves, which takes as long as this member drains. The coordinator answers
// them, with REBALANCE_IN_PROGRESS while others are to join, if it knows the member. So
// the lease of partitions that are kept in a cooperative rebalance is extended, however
// long other members drain, and that of new ones begins with them. membership reads the
// answer on the wire, so it is ignored here.
func (s *Source) beat(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.member.synced:
		case <-time.After(s.options.Session / 5):
			if !s.member.silent(time.Now()) && !(s.isClosed() && s.member.isClassic()) {
				continue
			}
		}
		member, generation := s.client.GroupMetadata()
		if member == "" {
			continue
		}
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.Generation = s.options.Group, member, generation
		beating, cancel := context.WithTimeout(ctx, s.options.Session/2)
		if _, err := req.RequestWith(beating, s.client); err != nil {
			s.log.Debug("heartbeat of a member that joins", "error", err)
		}
		cancel()
	}
}
