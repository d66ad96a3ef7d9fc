package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// topicReader is what usersFollower needs of a kafka.Follower.
type topicReader interface {
	StartOffsets(ctx context.Context) (map[int32]int64, error)
	EndOffsets(ctx context.Context) (map[int32]int64, error)
	Seek(from map[int32]int64)
	Poll(ctx context.Context, limit int) ([]kafka.Record, error)
	Gaps(ctx context.Context, positions map[int32]int64) (map[int32]int64, error)
}

// usersFollower reads push.users for package users. It belongs to one
// goroutine, as the kafka.Follower does.
type usersFollower struct {
	follower topicReader
	next     map[int32]int64 // per partition: the offset after what was handed out
	heard    time.Time       // when records came, or gaps were looked for
	failed   error           // that came with records: for the next poll
}

// Spans implements users.Follower.
func (f *usersFollower) Spans(ctx context.Context) ([]users.Span, error) {
	starts, err := f.follower.StartOffsets(ctx)
	if err != nil {
		return nil, err
	}
	ends, err := f.follower.EndOffsets(ctx)
	if err != nil {
		return nil, err
	}
	spans := make([]users.Span, len(ends))
	for p := range spans {
		start, ok := starts[int32(p)]
		end, also := ends[int32(p)]
		if !ok || !also {
			return nil, fmt.Errorf("reading %s: partition %d does not exist", kafka.UsersTopic, p)
		}
		spans[p] = users.Span{Start: start, End: end}
	}
	return spans, nil
}

// Seek implements users.Follower.
func (f *usersFollower) Seek(ctx context.Context, offsets []int64) error {
	starts, err := f.follower.StartOffsets(ctx)
	if err != nil {
		return err
	}
	f.failed = nil
	f.next = make(map[int32]int64, len(offsets))
	for p, o := range offsets {
		f.next[int32(p)] = max(o, starts[int32(p)])
	}
	f.follower.Seek(f.next)
	return nil
}

// quietPoll is how long records may stay away before the ends of the
// partitions are looked at for offsets without records.
const quietPoll = time.Second

// Poll implements users.Follower. A caller's poll may be shorter than quietPoll:
// what counts is the time since the last records came.
func (f *usersFollower) Poll(ctx context.Context) ([]users.Fetched, error) {
	if err := f.failed; err != nil {
		f.failed = nil
		return nil, err
	}
	if f.heard.IsZero() {
		f.heard = time.Now()
	}
	for {
		quiet, cancel := context.WithDeadline(ctx, f.heard.Add(quietPoll))
		records, err := f.follower.Poll(quiet, pollRecords)
		cancel()
		switch {
		case len(records) > 0:
			// Before anything else: they are not read again, also not when ctx
			// ended while they came.
			f.heard = time.Now()
			if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				f.failed = err
			}
			return f.runs(records), nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
		f.heard = time.Now()
		runs, err := f.gaps(ctx)
		if err != nil || len(runs) > 0 {
			return runs, err
		}
	}
}

// runs groups records into one run per partition.
func (f *usersFollower) runs(records []kafka.Record) []users.Fetched {
	place := make(map[int32]int)
	var runs []users.Fetched
	for _, r := range records {
		i, ok := place[r.Partition]
		if !ok {
			i = len(runs)
			place[r.Partition] = i
			runs = append(runs, users.Fetched{Partition: r.Partition})
		}
		runs[i].Records = append(runs[i].Records, users.FetchedRecord{Record: wiring.UsersRecord(r), Offset: r.Offset})
		runs[i].Next = r.Offset + 1
		f.next[r.Partition] = r.Offset + 1
	}
	return runs
}

// gaps returns runs without records, for partitions whose log goes on after what
// was handed out but holds no records there.
func (f *usersFollower) gaps(ctx context.Context) ([]users.Fetched, error) {
	ends, err := f.follower.EndOffsets(ctx)
	if err != nil {
		return nil, err
	}
	behind := make(map[int32]int64)
	for p, end := range ends {
		if next, ok := f.next[p]; ok && next < end {
			behind[p] = next
		}
	}
	if len(behind) == 0 {
		return nil, nil
	}
	gaps, err := f.follower.Gaps(ctx, behind)
	if err != nil {
		return nil, err
	}
	var runs []users.Fetched
	for p, next := range gaps {
		f.next[p] = next
		runs = append(runs, users.Fetched{Partition: p, Next: next})
	}
	return runs, nil
}
