//go:build planted

package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

// CommitAnyway commits these offsets as this member, even for partitions that are not
// its own and records that are not done. Commit exists to prevent that. It is only in
// builds with the tag planted: bench/mutants uses it to show that its checkers notice.
func (s *Source) CommitAnyway(ctx context.Context, offsets map[push.Partition]int64) error {
	byTopic := make(map[string]map[int32]kgo.EpochOffset)
	for p, next := range offsets {
		if byTopic[p.Topic] == nil {
			byTopic[p.Topic] = make(map[int32]kgo.EpochOffset)
		}
		byTopic[p.Topic][p.ID] = kgo.EpochOffset{Epoch: -1, Offset: next}
	}
	s.committing.Lock()
	defer s.committing.Unlock()
	var err error
	s.client.CommitOffsetsSync(ctx, byTopic, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, e error) {
		if err = e; err == nil {
			for _, refused := range refusals(req, resp) {
				err = errors.Join(err, refused)
			}
		}
	})
	return err
}

// ExtendLease extends this member's lease, as only the coordinator's answers should. It
// is only in builds with the tag planted.
func (s *Source) ExtendLease(until time.Time) { s.member.lease.extend(until) }
