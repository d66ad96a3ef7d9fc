package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// fetch polls while there is room, until ctx ends. Rebalances are held up only
// from a poll to the end of take: by then every record belongs to an
// assignment, and the callbacks know what to do with it (F6).
func (s *Source) fetch(ctx context.Context) {
	paused := make(map[pipeline.Partition]bool) // what the client has been told
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
			wait(ctx, wake, again)
		} else {
			s.poll(polling, room, again)
		}
		cancel()
	}
}

// reserve says how many records may be polled, which partitions must be paused
// for that, and when to ask again (zero: nothing to wait for). Every partition
// that is not paused has room for one batch, and no more than that is polled,
// so no partition can exceed its window. The caller holds mu.
func (s *Source) reserve(now time.Time) (room int, paused map[pipeline.Partition]bool, again time.Time) {
	use := make(map[*topic]*usage, len(s.topics))
	for _, t := range s.topics {
		use[t] = new(usage)
	}
	for _, a := range s.parts {
		use[a.topic].partitions++
	}
	paused = make(map[pipeline.Partition]bool)
	open, room := 0, s.options.BatchRecords
	for p, a := range s.parts {
		u := use[a.topic]
		a.limits = a.topic.limits(&s.options, u.partitions)
		n, _ := a.open()
		open, u.open = open+n, u.open+n
		full := a.full()
		due, early := a.early(now)
		switch {
		case a.stopped != nil:
			u.stopped++
			again = sooner(again, now.Add(25*recheck))
		case a.ended:
		case full:
			again = sooner(again, now.Add(recheck))
		case early:
			again = sooner(again, due)
		default:
			room = min(room, a.limits.batch)
			continue
		}
		paused[p] = true
		u.paused++
	}
	for t, u := range use {
		u.show(t.metrics)
	}
	left := s.options.OpenRecords - open
	// Waiting for a fair part of a batch keeps polls from getting tiny.
	s.crowded = left < min(room, s.options.OpenRecords/4+1)
	if s.crowded {
		return 0, paused, sooner(again, now.Add(recheck))
	}
	return min(room, left), paused, again
}

// usage is what the partitions of a topic have open.
type usage struct{ partitions, open, paused, stopped int }

func (u *usage) show(m *topicMetrics) {
	m.open.Set(float64(u.open))
	m.paused.Set(float64(u.paused))
	m.stopped.Set(float64(u.stopped))
}

// pause brings the client's paused partitions from what it was told to what is
// wanted. The client keeps pauses across a revoke; a new assignment is never
// in want unless it has its own reason.
func (s *Source) pause(told, want map[pipeline.Partition]bool) {
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

// poll takes what is there, waiting for it until something paused may have to
// be looked at again.
func (s *Source) poll(ctx context.Context, room int, again time.Time) {
	if !again.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, again)
		defer cancel()
	}
	fetches := s.client.PollRecords(ctx, room)
	stopped := s.take(fetches)
	s.client.AllowRebalance()
	for _, e := range stopped {
		s.tellStopped(e)
	}
}

// take gives polled records to their assignments. Records of a partition that
// is not ours any more are dropped: they are not committed, so its owner reads
// them. It returns those that cannot go on from here.
func (s *Source) take(fetches kgo.Fetches) (stopped []*PartitionError) {
	now := time.Now()
	s.mu.Lock()
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		a := s.parts[pipeline.Partition{Topic: p.Topic, ID: p.Partition}]
		if a == nil || a.ended {
			return
		}
		if p.HighWatermark >= 0 {
			a.high, a.answeredAt = p.HighWatermark, now
		}
		before := a.stopped
		a.take(p.Records, now)
		if p.Err != nil && a.stopped == nil {
			a.stopped = &PartitionError{Partition: a.partition, Offset: a.position(), Err: p.Err}
		}
		if before == nil && a.stopped != nil {
			stopped = append(stopped, a.stopped.(*PartitionError))
		}
		a.showLag()
	})
	s.signal()
	s.mu.Unlock()

	for _, e := range fetches.Errors() {
		switch {
		case s.topics[e.Topic] != nil && e.Partition >= 0:
			// The partition's own, above.
		case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, kgo.ErrClientClosed):
		default:
			s.log.Error("consuming", "error", e.Err)
		}
	}
	return stopped
}

// tellStopped makes it known that a partition cannot go on, and what of its log
// is missing if that is why.
func (s *Source) tellStopped(e *PartitionError) {
	if errors.Is(e.Err, kerr.OffsetOutOfRange) && e.Offset >= 0 {
		gap, err := s.gap(e.Partition, e.Offset)
		if err != nil {
			s.log.Warn("looking for what a log still has", "topic", e.Partition.Topic, "partition", e.Partition.ID, "error", err)
		}
		e.Gap = gap
		s.topics[e.Partition.Topic].metrics.gap.Add(float64(gap))
	}
	s.log.Error("partition stopped", "topic", e.Partition.Topic, "partition", e.Partition.ID, "offset", e.Offset, "gap", e.Gap, "error", e.Err)
	if s.options.Stopped != nil {
		s.options.Stopped(e)
	}
}

// gap is how many offsets lie between at and what the log has: before its first
// one, or behind its end.
func (s *Source) gap(p pipeline.Partition, at int64) (int64, error) {
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
	return max(0, starts[p]-at, at-ends[p]), nil
}
