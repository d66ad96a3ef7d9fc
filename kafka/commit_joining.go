package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

// topicID tells a topic from another one of the same name, made before or after it.
type topicID = [16]byte

// A JoinGroup is pending for as long as the slowest member drains, and the client holds
// all commits back meanwhile. The coordinator takes commits of the present generation
// until the join is over. So they go past the client then: partitions that are kept in
// the rebalance would stand still with a full window, and members that come and go
// faster than others drain would let nobody commit at all.

// commitsByID is the version of OffsetCommit from which on it names topics by id (Kafka
// 4.2). An older coordinator reads only their names.
const commitsByID = 10

// pastClient returns the request for a commit past the client; nil = it is to go
// through the client, because no join is pending, or because it is not certain that the
// topics are still those of the records: a name alone may be that of a topic made anew,
// whose offsets are not these. The caller holds committing.
func (s *Source) pastClient(ctx context.Context, moved offsets) *kmsg.OffsetCommitRequest {
	if !s.member.joining() {
		return nil
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = s.options.Group
	// The generation is read after the join was seen to be pending: if it is over by
	// now, this is the next one, whose owner beforeCommit knows.
	now := s.generation()
	req.MemberID, req.Generation = now.member, now.number
	if !s.addTopics(req, moved) || !s.byID && !s.areStill(ctx, req) {
		return nil
	}
	return req
}

// addTopics adds what has moved to a commit, and reports whether all topics' ids are known.
func (s *Source) addTopics(req *kmsg.OffsetCommitRequest, moved offsets) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, partitions := range moved {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = name, s.topics[name].id
		if t.TopicID == (topicID{}) {
			return false
		}
		for id, at := range partitions {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = id, at.Offset
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return true
}

// areStill reports whether the topics of a commit have the ids in it, as a broker says. A
// coordinator that reads ids says so itself.
func (s *Source) areStill(ctx context.Context, commit *kmsg.OffsetCommitRequest) bool {
	req, ids := kmsg.NewPtrMetadataRequest(), make(map[topicID]bool)
	for i := range commit.Topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &commit.Topics[i].Topic
		req.Topics, ids[commit.Topics[i].TopicID] = append(req.Topics, t), true
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return false
	}
	for _, t := range resp.Topics {
		delete(ids, t.TopicID)
	}
	return len(ids) == 0
}

// commitPastClient sends req to the coordinator. It returns the partitions whose commit
// was not acknowledged. The caller holds committing.
func (s *Source) commitPastClient(ctx context.Context, req *kmsg.OffsetCommitRequest, owned *expulsion) (map[push.Partition]error, error) {
	if err := s.beforeCommit(req, owned); err != nil {
		return nil, err
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return nil, err
	}
	s.byID = resp.Version >= commitsByID
	return refusals(req, resp), nil
}
