package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Range is a range of offsets, from From inclusive to To exclusive.
type Range struct{ From, To int64 }

// Extent is a part of a topic, by partition.
type Extent map[int32]Range

// Records returns the number of offsets in the extent. It has at most that many
// records, since offsets have gaps.
func (e Extent) Records() (n int64) {
	for _, r := range e {
		n += max(0, r.To-r.From)
	}
	return n
}

// Extent returns what the topic holds now; records that come later are not included.
// If since is not zero, each partition's range begins with its first record of that
// time or later. If before is not zero, the range ends before the first record of that
// time or later.
func (f *Follower) Extent(ctx context.Context, since, before time.Time) (Extent, error) {
	starts, err := f.StartOffsets(ctx)
	if err != nil {
		return nil, err
	}
	ends, err := endOffsets(ctx, f.admin, f.topic)
	if err != nil {
		return nil, err
	}
	e := make(Extent, len(ends))
	for p, end := range ends {
		e[p] = Range{min(starts[p], end), end}
	}
	for _, cut := range []struct {
		at time.Time
		to func(Range, int64) Range
	}{
		{since, func(r Range, o int64) Range { return Range{min(max(r.From, o), r.To), r.To} }},
		{before, func(r Range, o int64) Range { return Range{r.From, max(min(r.To, o), r.From)} }},
	} {
		if cut.at.IsZero() {
			continue
		}
		listed, err := f.admin.ListOffsetsAfterMilli(ctx, cut.at.UnixMilli(), f.topic)
		if err == nil {
			err = listed.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("looking for %s in %s: %w", cut.at.UTC().Format(time.RFC3339), f.topic, err)
		}
		listed.Each(func(o kadm.ListedOffset) {
			if r, ok := e[o.Partition]; ok {
				e[o.Partition] = cut.to(r, o.Offset)
			}
		})
	}
	return e, nil
}

// ReadExtent calls each with the records of an extent, partition by partition and in
// order, until each returns an error. The Follower must not be polling meanwhile; Seek
// starts it afterwards.
func (f *Follower) ReadExtent(ctx context.Context, e Extent, each func(Record) error) error {
	return f.readExtent(ctx, e, func(r *kgo.Record) error { return each(fromClient(r)) })
}

func (f *Follower) readExtent(ctx context.Context, e Extent, each func(*kgo.Record) error) error {
	for _, p := range slices.Sorted(maps.Keys(e)) {
		if err := f.read(ctx, p, e[p], each); err != nil {
			return err
		}
	}
	return nil
}

// read calls each with a partition's records of a range, in order.
func (f *Follower) read(ctx context.Context, partition int32, r Range, each func(*kgo.Record) error) error {
	if r.From >= r.To {
		return nil
	}
	consume := func(at int64) {
		f.client.PurgeTopicsFromConsuming(f.topic)
		f.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: {partition: kgo.NoResetOffset().At(at)}})
	}
	consume(r.From)
	defer f.client.PurgeTopicsFromConsuming(f.topic)
	for next := r.From; next < r.To; {
		fetches := f.waker.poll(ctx, 10_000)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, rec := range fetches.Records() {
			if rec.Partition != partition || rec.Offset < next {
				continue
			}
			if rec.Offset >= r.To {
				return nil
			}
			next = rec.Offset + 1
			if err := each(rec); err != nil {
				return err
			}
		}
		for _, e := range fetches.Errors() { // after the records that came before it
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return fmt.Errorf("reading %s/%d at offset %d: %w", f.topic, partition, next, e.Err)
			}
		}
		if fetches.NumRecords() > 0 {
			continue
		}
		// Nothing came in the time of a poll: offsets of the range may have no records.
		behind, err := f.Gaps(ctx, map[int32]int64{partition: next})
		if err != nil {
			return err
		}
		if at, ok := behind[partition]; ok {
			next = at
			consume(next)
		}
	}
	return nil
}
