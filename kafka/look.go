package kafka

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// lookEvery is how often the brokers are asked where the logs end: polls tell
// that only of partitions that are polled, and only when records come.
const lookEvery = 5 * time.Second

// silence is how old the last answer for a partition may be before Kafka counts
// as silent: two looks and the time-out of one.
const silence = 2*lookEvery + 5*time.Second

// look keeps what is known of the logs' ends, until ctx ends.
func (s *Source) look(ctx context.Context) {
	for ctx.Err() == nil {
		s.lookOnce(ctx)
		wait(ctx, nil, time.Now().Add(lookEvery))
	}
}

// lookOnce asks once. What the brokers do not answer is not known: it shows as
// silence, and in the client's own log.
func (s *Source) lookOnce(ctx context.Context) {
	s.mu.Lock()
	owned, fresh := len(s.parts) > 0, false
	for _, a := range s.parts {
		fresh = fresh || a.committed < 0 && a.from < 0
	}
	s.mu.Unlock()
	if !owned {
		return
	}
	ends, err := s.ends(ctx)
	var starts map[push.Partition]int64
	if err == nil && fresh {
		starts, err = s.starts(ctx)
	}
	if err != nil {
		s.log.Debug("looking where the logs end", "error", err)
	}
	now := time.Now()
	idle := s.noteEnds(ends, starts, now)
	s.tellHealth()
	if len(idle) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	for topic, positions := range idle {
		behind, err := gaps(ctx, s.client, s.admin, topic, positions)
		if err != nil {
			s.log.Debug("looking for records", "error", err)
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

// noteEnds remembers the ends, and returns where partitions stand that have a
// lag although nothing of them is open or waits: perhaps what follows are no
// records, but the marks of transactions.
func (s *Source) noteEnds(ends, starts map[push.Partition]int64, now time.Time) (idle map[string]map[int32]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, a := range s.parts {
		end, answered := ends[p]
		if !answered {
			continue
		}
		a.answeredAt, a.high = now, max(a.high, end)
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

// ends are the ends of all partitions whose brokers answer.
func (s *Source) ends(ctx context.Context) (map[push.Partition]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Commit)
	defer cancel()
	listed, err := s.admin.ListEndOffsets(ctx, s.options.names()...)
	return byPartition(listed), err
}
