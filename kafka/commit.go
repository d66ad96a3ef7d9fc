package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

// Commit implements pipeline.Source. If the coordinator cannot take the commit now,
// it is tried again within the commit time-out. An error means that not everything
// is committed; the next call tries again.
func (s *Source) Commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Commit)
	defer cancel()
	backoff := push.Backoff{First: 20 * time.Millisecond, Longest: time.Second}
	for failed := 1; ; failed++ {
		again, err := s.commitOnce(ctx)
		if err == nil && again {
			failed = 0
			continue // a range that was told before is committed, and there is more
		}
		if err == nil {
			s.wakeAll()
			return nil
		}
		s.metrics.commitsFailed.Inc()
		if again {
			wait(ctx, nil, time.Now().Add(backoff.After(failed)))
		}
		if !again || ctx.Err() != nil {
			return fmt.Errorf("committing offsets of group %s: %w", s.options.Group, err)
		}
	}
}

// wakeAll makes the poller and Next check the trackers, which have probably moved.
func (s *Source) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal()
}

// commitOnce commits all watermarks that have moved, in one request, and tells before
// what became of the records. again reports whether the same request may succeed a little
// later or, without an error, that there is more to commit.
func (s *Source) commitOnce(ctx context.Context) (again bool, err error) {
	s.committing.Lock()
	defer s.committing.Unlock()
	moved, owned, telling := s.moved()
	if len(moved) == 0 {
		return false, nil
	}
	s.tell(ctx, telling.ranges)
	more := telling.more
	start := time.Now()
	past := s.pastClient(ctx, moved)
	var refused map[push.Partition]error
	if past != nil {
		refused, err = s.commitPastClient(ctx, past, owned)
	} else {
		refused, err = s.commitThroughClient(ctx, moved, owned)
	}
	s.metrics.commit(time.Since(start))
	if err != nil {
		return ctx.Err() == nil, err
	}
	s.noteCommits(moved, refused)
	for _, e := range refused {
		// While joining, a generation that is over says that the join is, too: its
		// answer is on its way, and says whether we are still a member.
		over := past != nil && errors.Is(e, kerr.IllegalGeneration)
		if !over && (errors.Is(e, kerr.UnknownMemberID) || errors.Is(e, kerr.IllegalGeneration) || errors.Is(e, kerr.FencedInstanceID) || errors.Is(e, kerr.FencedMemberEpoch)) {
			s.lose(owned)
			return false, e
		}
		// The epoch is stale until the next heartbeat (KIP-848).
		more = false
		err, again = e, again || over || kerr.IsRetriable(e) || errors.Is(e, errUnanswered) || errors.Is(e, kerr.RebalanceInProgress) || errors.Is(e, kerr.StaleMemberEpoch)
	}
	return again || more, err
}

// commitThroughClient commits as the client does, which holds commits back while it
// joins. It returns the partitions whose commit was not acknowledged.
func (s *Source) commitThroughClient(ctx context.Context, moved offsets, owned *expulsion) (refused map[push.Partition]error, err error) {
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error { return s.beforeCommit(req, owned) })
	s.client.CommitOffsetsSync(ctx, moved,
		func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, e error) {
			if err = e; e == nil { // with an error there may be no response
				refused, s.byID = refusals(req, resp), resp.Version >= commitsByID
			}
		})
	return refused, err
}

// stand is what a group has committed for a partition.
type stand struct {
	committed  int64
	unresolved int64 // the first offset whose intent had no result at the commit; -1 = the commit does not say
}

// unresolvedPrefix begins the commit metadata that names the offset from which
// committed records must be read again. It is an offset and not a count, because
// offsets have gaps.
const unresolvedPrefix = "unresolved="

// errNotOurs says that a partition was lost after its offset had been collected.
var errNotOurs = errors.New("partition was lost before its commit was sent")

// beforeCommit is called with each commit as it is sent, which may be long after its
// offsets were collected: the client holds back commits while it joins. If it has
// become another member in between, the group would accept offsets that are no longer
// ours to commit. owned notes who the commit is from.
func (s *Source) beforeCommit(req *kmsg.OffsetCommitRequest, owned *expulsion) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			a := s.parts[push.Partition{Topic: t.Topic, ID: p.Partition}]
			if a == nil {
				return errNotOurs
			}
			if mark, ours := a.tracker.Watermark(); !ours || mark < p.Offset {
				return errNotOurs
			}
		}
	}
	owned.session, owned.generation = s.sessions, generation{req.MemberID, req.Generation}
	if s.options.Reread > 0 {
		s.noteUnresolved(req)
	}
	return nil
}

// noteUnresolved adds to each offset of a commit the first offset whose intent has
// no result, or that there is none. The caller holds mu.
func (s *Source) noteUnresolved(req *kmsg.OffsetCommitRequest) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			from := p.Offset
			if a := s.parts[push.Partition{Topic: t.Topic, ID: p.Partition}]; a != nil {
				if first, ok := a.tracker.Unresolved(); ok {
					from = min(from, first)
				}
				if a.told >= 0 { // what is not told is looked at again by the next owner
					from = min(from, a.told)
				}
			}
			p.Metadata = new(unresolvedPrefix + strconv.FormatInt(from, 10))
		}
	}
}

// parseUnresolved reads what noteUnresolved wrote; -1 = the metadata is not its own.
func parseUnresolved(metadata string) int64 {
	digits, ok := strings.CutPrefix(metadata, unresolvedPrefix)
	if from, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && from >= 0 {
		return from
	}
	return -1
}

// moved returns the watermarks above the committed offsets, with what to tell before they
// are committed, and everything that is owned at that moment. The caller holds committing, so that nothing is fenced before the
// commit is over.
func (s *Source) moved() (moved offsets, owned *expulsion, tell telling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, a := range s.parts {
		next, ok := a.tracker.Watermark()
		switch {
		case !ok:
			continue
		case a.reread > 0 && next < a.reread: // what is read again is committed already
			a.tracker.Committed(next)
			continue
		case a.reread > 0 && next == a.reread:
			a.tracker.Committed(next)
		case next < a.committed:
			a.topic.metrics.rewinds.Inc()
			continue
		}
		to, r, rest := a.cut(next)
		tell.more = tell.more || rest
		if r != nil {
			tell.ranges = append(tell.ranges, *r)
		} else if to == a.committed && a.told == a.toldCommitted {
			continue
		}
		moved.set(p, kgo.EpochOffset{Epoch: -1, Offset: to})
	}
	return moved, s.owned(), tell
}

// offsets are offsets by topic and partition, in the client's form. The zero value
// is empty.
type offsets map[string]map[int32]kgo.EpochOffset

func (o *offsets) set(p push.Partition, at kgo.EpochOffset) {
	if *o == nil {
		*o = make(offsets)
	}
	if (*o)[p.Topic] == nil {
		(*o)[p.Topic] = make(map[int32]kgo.EpochOffset)
	}
	(*o)[p.Topic][p.ID] = at
}

// errUnanswered says that the coordinator's answer leaves a partition out.
var errUnanswered = errors.New("the answer to the commit does not name the partition")

// refusals returns the partitions of a commit that were not acknowledged, each with its
// reason. Only an answer that names a partition without an error acknowledges it. From
// version 10 on, answers name topics by id only, and not always does the client fill
// the names in.
func refusals(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) map[push.Partition]error {
	refused, names := make(map[push.Partition]error), make(map[topicID]string)
	for _, t := range req.Topics {
		if t.TopicID != (topicID{}) {
			names[t.TopicID] = t.Topic
		}
		for _, p := range t.Partitions {
			refused[push.Partition{Topic: t.Topic, ID: p.Partition}] = errUnanswered
		}
	}
	for _, t := range resp.Topics {
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			at := push.Partition{Topic: name, ID: p.Partition}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				refused[at] = err
			} else {
				delete(refused, at)
			}
		}
	}
	return refused
}

func (s *Source) noteCommits(moved offsets, refused map[push.Partition]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, partitions := range moved {
		for id, o := range partitions {
			p := push.Partition{Topic: topic, ID: id}
			a := s.parts[p]
			if a == nil || refused[p] != nil {
				continue
			}
			a.committed, a.toldCommitted = o.Offset, a.told
			a.tracker.Committed(o.Offset)
			a.showLag()
		}
	}
}
