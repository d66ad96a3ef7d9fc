package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// beatWhileJoining sends heartbeats while a JoinGroup is pending, until ctx ends; the
// client sends none then. The coordinator answers REBALANCE_IN_PROGRESS to members it
// knows. So the lease of partitions that are kept in a cooperative rebalance is
// extended, however long other members drain. membership reads the answer on the
// wire, so it is ignored here.
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
