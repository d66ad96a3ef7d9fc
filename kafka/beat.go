package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// beatWhileJoining sends the heartbeats that the client does not send while its
// JoinGroup is pending, until ctx ends. The coordinator answers
// REBALANCE_IN_PROGRESS to whom it knows, and so the lease of what is kept in a
// cooperative rebalance goes on however long the others drain. The answer is
// read on the wire (membership); here it is of no interest.
func (s *Source) beatWhileJoining(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, nil, time.Now().Add(s.options.Session/5))
		member, generation := s.client.GroupMetadata()
		if member == "" || !s.member.joining() {
			continue
		}
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.Generation = s.options.Group, member, generation
		beating, cancel := context.WithTimeout(ctx, s.options.Session/2)
		if _, err := req.RequestWith(beating, s.client); err != nil {
			s.log.Debug("heartbeat while joining", "error", err)
		}
		cancel()
	}
}
