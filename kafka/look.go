package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pushfleet/pushfleet/push"
)

// lookEvery is how often the brokers are asked for the logs' ends, if SourceOptions.Look
// does not say otherwise. Polls tell these only for partitions that are not paused, and
// only with records.
const lookEvery = 5 * time.Second

// silence is how old the last answer for a partition may be before Kafka counts as
// silent: the time of two looks and the time-out of one.
const silence = 2*lookEvery + 5*time.Second

// look updates the logs' ends, until ctx ends.
func (s *Source) look(ctx context.Context) {
	for ctx.Err() == nil {
		s.lookOnce(ctx)
		wait(ctx, nil, time.Now().Add(s.options.Look))
	}
}

// lookOnce asks once. Brokers that do not answer are not reported here: they show as
// silence, and in the client's log.
func (s *Source) lookOnce(ctx context.Context) {
	s.mu.Lock()
	wanted, fresh := len(s.parts) > 0, false
	for _, t := range s.topics {
		wanted = wanted || s.options.Look < lookEvery && t.partitions == 0
	}
	for _, a := range s.parts {
		fresh = fresh || a.committed < 0 && a.from < 0
	}
	s.mu.Unlock()
	if !wanted {
		return
	}
	asked := time.Now()
	ends, err := s.ends(ctx)
	var starts map[push.Partition]int64
	if err == nil && fresh {
		starts, err = s.starts(ctx)
	}
	if err != nil {
		s.log.Debug("listing start and end offsets", "error", err)
	}
	now := time.Now()
	idle := s.noteEnds(ends, starts, asked, now)
	s.tellHealth()
	if len(idle) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	for topic, positions := range idle {
		behind, err := gaps(ctx, s.client, s.admin, topic, positions)
		if err != nil {
			s.log.Debug("looking for gaps", "error", err)
		}
		s.mu.Lock()
		for id, at := range behind {
			if a := s.parts[push.Partition{Topic: topic, ID: id}]; a != nil {
				a.empty = max(a.empty, at)
				a.showLag()
			}
		}
		s.mu.Unlock()
	}
}

// noteEnds stores the ends, which were asked for at asked, and starts. It returns the
// positions of partitions that have a lag although no record of them is open: what
// follows there may be transaction markers and no records.
func (s *Source) noteEnds(ends map[push.Partition]logEnd, starts map[push.Partition]int64, asked, now time.Time) (idle map[string]map[int32]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	partitions := make(map[string]int, len(s.topics))
	for p := range ends {
		partitions[p.Topic]++
	}
	for name, t := range s.topics {
		t.partitions = max(t.partitions, partitions[name])
	}
	for p, a := range s.parts {
		end, answered := ends[p]
		if !answered {
			continue
		}
		a.answeredAt, a.high = now, max(a.high, end.offset)
		a.outlast(asked, end.epoch)
		if from, known := starts[p]; known && a.committed < 0 && a.from < 0 {
			a.from = from
		}
		a.showLag()
		a.observe(now)
		a.heal(now)
		if open, _ := a.open(); open == 0 && a.behind() > 0 && a.stopped == nil && !s.crowded {
			if idle == nil {
				idle = make(map[string]map[int32]int64)
			}
			if idle[p.Topic] == nil {
				idle[p.Topic] = make(map[int32]int64)
			}
			idle[p.Topic][p.ID] = a.high - a.behind()
		}
	}
	return idle
}

// End returns where the log of one of the Source's partitions ends, as a broker said
// last, and how many partitions its topic has; ok is false while either is not known.
func (s *Source) End(p push.Partition) (offset int64, partitions int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.parts[p]
	if a == nil || a.high < 0 || a.topic.partitions == 0 {
		return 0, 0, false
	}
	return a.high, a.topic.partitions, true
}

// ends returns the end offsets of all partitions whose brokers answer.
func (s *Source) ends(ctx context.Context) (map[push.Partition]logEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Commit)
	defer cancel()
	listed, err := s.admin.ListEndOffsets(ctx, s.options.names()...)
	return byPartition(listed, func(o kadm.ListedOffset) logEnd { return logEnd{o.Offset, o.LeaderEpoch} }), err
}
