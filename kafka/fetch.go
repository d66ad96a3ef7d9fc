package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// fetch polls while there is room, until ctx ends. It blocks rebalances only from
// a poll to the end of take: by then every record belongs to an assignment, and
// the callbacks know what to do with it (F6).
func (s *Source) fetch(ctx context.Context) {
	paused := make(map[push.Partition]bool) // what the client has been told
	var last pace
	for ctx.Err() == nil {
		s.mu.Lock()
		if e := s.expulsion; e != nil {
			s.mu.Unlock()
			s.expel(e)
			continue
		}
		if s.reclaim {
			s.mu.Unlock()
			s.reclaimLost(ctx)
			continue
		}
		room, want, again := s.reserve(time.Now())
		wake := s.wake
		polling, cancel := context.WithCancel(ctx)
		s.interrupt = cancel
		s.mu.Unlock()
		s.pause(paused, want)
		if room == 0 {
			last = pace{}
			wait(ctx, wake, again)
		} else {
			since := s.heldSince(last)
			came := s.poll(polling, room, since, again)
			last = s.pace(polling, last, !since.IsZero(), came, room, again)
		}
		cancel()
	}
}

// reserve says how many records may be polled, which partitions must be paused
// for that, and when to ask again (zero: nothing to wait for). Every partition
// that is not paused has room for one batch, and no more than that is polled,
// so no partition can exceed its window. The caller holds mu.
func (s *Source) reserve(now time.Time) (room int, paused map[push.Partition]bool, again time.Time) {
	use := make(map[*topic]*usage, len(s.topics))
	for _, t := range s.topics {
		use[t] = new(usage)
	}
	for _, a := range s.parts {
		use[a.topic].partitions++
	}
	paused = make(map[push.Partition]bool)
	open, bytes, room := 0, 0, s.options.BatchRecords
	var unread []*assignment
	s.yielding = s.options.Yields != nil && s.options.Yields()
	for p, a := range s.parts {
		u := use[a.topic]
		a.limits = a.topic.limits(&s.options, u.partitions)
		n, size := a.open()
		open, bytes, u.open = open+n, bytes+size, u.open+n
		full := a.full()
		due, early := a.early(now)
		until, rests := a.resting(now)
		a.held = true
		switch {
		case a.stopped != nil:
			u.stopped++
			again = sooner(again, now.Add(25*recheck))
		case a.ended:
		case rests:
			again = sooner(again, until)
		case a.hasUnread():
			unread = append(unread, a)
			again = sooner(again, now.Add(recheck))
		case full:
			again = sooner(again, now.Add(recheck))
		case s.yielding:
			again = sooner(again, now.Add(10*recheck))
		case early && a.topic.Kind != Hold: // there one behind may be due sooner
			again = sooner(again, due)
		default:
			room = min(room, a.limits.batch, max(1, a.limits.batchBytes/s.typical))
			a.held = false
			continue
		}
		paused[p] = true
		u.paused++
	}
	for t, u := range use {
		u.show(t.metrics)
	}
	left := s.options.OpenRecords - open - s.takeUnread(unread, s.options.OpenRecords-open, now)
	// Waiting for a fair part of a batch keeps polls from getting tiny.
	s.crowded = left < min(room, s.options.OpenRecords/4+1) || bytes >= s.options.OpenBytes
	for _, a := range s.parts {
		a.tracker.SetFull(a.paused || s.crowded)
	}
	if s.crowded {
		return 0, paused, sooner(again, now.Add(recheck))
	}
	return min(room, left), paused, again
}

// takeUnread takes records that cannot be unpacked, as far as there is room in
// their partitions and in total, and returns how many. The caller holds mu.
func (s *Source) takeUnread(as []*assignment, room int, now time.Time) (taken int) {
	for _, a := range as {
		if n := min(a.limits.batch, room-taken); n > 0 && !a.full() {
			before := len(a.waiting)
			a.keepUnread(n, now)
			taken += len(a.waiting) - before
		}
	}
	if taken > 0 {
		s.signal()
	}
	return taken
}

// leastTypical is the lower bound of the estimated record size, in bytes, from
// which the number of records that fit is computed.
const leastTypical = 256

// usage sums up the partitions of a topic.
type usage struct{ partitions, open, paused, stopped int }

func (u *usage) show(m *topicMetrics) {
	m.open.Set(float64(u.open))
	m.paused.Set(float64(u.paused))
	m.stopped.Set(float64(u.stopped))
}

// pause changes the client's paused partitions from told to want. The client keeps
// pauses across a revoke; a new assignment is in want only for a reason of its own.
func (s *Source) pause(told, want map[push.Partition]bool) {
	resume, pause := make(map[string][]int32), make(map[string][]int32)
	for p := range told {
		if !want[p] {
			resume[p.Topic] = append(resume[p.Topic], p.ID)
			delete(told, p)
		}
	}
	for p := range want {
		if !told[p] {
			pause[p.Topic] = append(pause[p.Topic], p.ID)
			told[p] = true
		}
	}
	if len(pause) > 0 {
		s.client.PauseFetchPartitions(pause)
	}
	if len(resume) > 0 {
		s.client.ResumeFetchPartitions(resume)
	}
}

// poll takes the records that are available, and waits for some until a paused
// partition must be checked again. Their linger counts since a time; zero = since they come.
func (s *Source) poll(ctx context.Context, room int, since, again time.Time) amount {
	if !again.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, again)
		defer cancel()
	}
	fetches := s.waker.poll(ctx, room)
	came, stopped, behind := s.take(fetches, since)
	s.goTo(behind) // before AllowRebalance: no partition can be revoked yet
	s.client.AllowRebalance()
	for _, e := range stopped {
		s.tellStopped(e)
	}
	s.tellHealth()
	return came
}

// goTo makes the client fetch from other offsets. The client ignores an offset
// that it believes to be its current one, although it may have read on past spoilt
// records. So it is sent elsewhere first; nothing is polled in between.
func (s *Source) goTo(at offsets) {
	var elsewhere offsets
	for topic, partitions := range at {
		for id, o := range partitions {
			elsewhere.set(push.Partition{Topic: topic, ID: id}, kgo.EpochOffset{Epoch: -1, Offset: o.Offset + 1})
		}
	}
	s.client.SetOffsets(elsewhere)
	s.client.SetOffsets(at)
}

// take gives polled records to their assignments. Records of a partition that is
// no longer ours are dropped: they are not committed, so its owner reads them. Their
// linger counts since a time that is not in the future; zero = now. It returns the
// partitions that stopped now, and the offsets to read on from: after batches that
// cannot be unpacked, and at spoilt data, or a dropped error, that is fetched once more.
func (s *Source) take(fetches kgo.Fetches, since time.Time) (came amount, stopped []*PartitionError, behind offsets) {
	now, kept := time.Now(), 0
	if since.IsZero() {
		since = now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if came.records > 0 { // rises at once with large records, falls slowly with small ones
			s.typical = max(leastTypical, kept/came.records, (3*s.typical+kept/came.records)/4)
		}
	}()
	s.noteTopicIDs(fetches)
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		a := s.parts[push.Partition{Topic: p.Topic, ID: p.Partition}]
		if a == nil || a.ended {
			return
		}
		if p.HighWatermark > 0 || p.HighWatermark == 0 && p.Err == nil { // the client's own errors have 0
			a.high, a.answeredAt = p.HighWatermark, now
		}
		before, held := a.stopped, a.waitingBytes
		a.doubt(s.leaderEpoch(a.partition)) // its log may begin with what its predecessor had not told
		came.records, came.bytes = came.records+len(p.Records), came.bytes+a.take(p.Records, since)
		kept += a.waitingBytes - held
		if errors.Is(p.Err, errNoRoom) {
			a.crowdedAt = now // it comes with a later fetch
			return
		}
		if e, ok := errors.AsType[*kgo.ErrDecompressTooLarge](p.Err); ok && a.stopped == nil {
			s.unpacking.told(a.partition)
			a.leaveOut(e)
			s.log.Error("batch too large to unpack: its records are dead", "topic", p.Topic, "partition", p.Partition, "from", a.unread.From, "to", a.unread.To, "error", e)
		} else if errors.Is(p.Err, kerr.OffsetOutOfRange) && a.isFresh() {
			// The log's start moved on before the first record was read.
			a.tracker.Fence()
			a.lost, a.ended = true, true
			s.beginAnew([]*assignment{a})
		} else if p.Err != nil && a.fetchFailed(p.Err, p.HighWatermark > 0, len(p.Records), now) {
			behind.set(a.partition, kgo.EpochOffset{Epoch: -1, Offset: a.position()})
		}
		if before == nil && a.stopped != nil {
			stopped = append(stopped, a.stopped)
		}
		a.showLag()
	})
	for _, a := range s.parts {
		if at := a.goesOn(); at != nil {
			behind.set(a.partition, *at)
		}
	}
	s.fetchDropped(&behind, now)
	for _, e := range fetches.Errors() {
		switch {
		case s.topics[e.Topic] != nil && e.Partition >= 0:
			// An error of one partition: handled above.
		case isPollEnd(e.Err):
		case s.topics[e.Topic] != nil:
			s.topicFailed(e.Topic, e.Err, now)
		default:
			s.log.Error("fetch failed", "error", e.Err)
		}
	}
	s.signal()
	return came, stopped, behind
}

// noteTopicIDs remembers which topics the records are of. The caller holds mu.
func (s *Source) noteTopicIDs(fetches kgo.Fetches) {
	for i := range fetches {
		for j := range fetches[i].Topics {
			if f := &fetches[i].Topics[j]; f.TopicID != (topicID{}) && s.topics[f.Topic] != nil {
				s.topics[f.Topic].id = f.TopicID
			}
		}
	}
}

// topicFailed notes an error that concerns all partitions of a topic. The
// caller holds mu.
func (s *Source) topicFailed(topic string, err error, now time.Time) {
	for p, a := range s.parts {
		if p.Topic == topic && !a.ended {
			a.fetchFailed(err, false, 0, now)
			a.failingSince = time.Time{} // not a leader that moves: reported at once
		}
	}
}

// isPollEnd reports whether an error only says that a poll was ended.
func isPollEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrClientClosed)
}

// isGone reports whether a fetch's error says that records are gone: reading on
// would skip them.
func isGone(err error) bool {
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return true
	}
	_, lost := errors.AsType[*kgo.ErrDataLoss](err)
	return lost
}

// isSpoilt reports whether the fetched data is spoilt: its checksum or format is
// wrong. withData says that the broker's answer held records; then an error that
// is not the broker's own was found by the client in these records.
func isSpoilt(err error, withData bool) bool {
	_, said := errors.AsType[*kerr.Error](err)
	return withData && !said && !isGone(err)
}

// tellStopped reports that a partition cannot go on, and, if that is the reason,
// how much of its log is missing.
func (s *Source) tellStopped(e *PartitionError) {
	if errors.Is(e.Err, kerr.OffsetOutOfRange) {
		gap, err := s.gap(e.Partition, e.Offset)
		if err != nil {
			s.log.Warn("cannot list log offsets", "topic", e.Partition.Topic, "partition", e.Partition.ID, "error", err)
		}
		s.topics[e.Partition.Topic].metrics.gap.Add(float64(gap))
		s.noteGap(e, gap)
	}
	s.tellHealth()
}

// noteGap adds the gap to the reason why a partition is stopped. It replaces the
// error with a copy, because the error may have been passed on already.
func (s *Source) noteGap(e *PartitionError, gap int64) {
	whole := *e
	whole.Gap = gap
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.parts[e.Partition]; a != nil && a.stopped == e {
		a.stopped = &whole
	}
}

// gap returns how many offsets lie between at and the log: before its first offset,
// or after its end.
func (s *Source) gap(p push.Partition, at int64) (int64, error) {
	ctx, cancel := context.WithTimeout(s.drains, s.options.Commit)
	defer cancel()
	starts, err := s.starts(ctx)
	if err != nil {
		return 0, err
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, starts[p]-at, at-ends[p].offset), nil
}
