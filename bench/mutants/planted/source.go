//go:build planted

package planted

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// plantedSource is a source that does something with each batch before it is
// handed out, or something besides at each commit. Either may be nil.
type plantedSource struct {
	pipeline.Source
	polled func(*pipeline.Batch)
	commit func(ctx context.Context, inner func() error) error
}

func (s plantedSource) Next(ctx context.Context) (*pipeline.Batch, error) {
	b, err := s.Source.Next(ctx)
	if err == nil && s.polled != nil {
		s.polled(b)
	}
	return b, err
}

func (s plantedSource) Commit(ctx context.Context) error {
	inner := func() error { return s.Source.Commit(ctx) }
	if s.commit == nil {
		return inner()
	}
	return s.commit(ctx, inner)
}

// dropLastRecord takes the last record of every batch for done without
// anything being done with it.
func dropLastRecord(s *soil) {
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		if last := len(b.Items) - 1; last > 0 {
			b.Tracker.Done([]*pipeline.Item{&b.Items[last]})
			b.Items = b.Items[:last]
		}
	}}
}

// ignoreExpiry never reads expires_at.
func ignoreExpiry(s *soil) {
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		for i := range b.Items {
			b.Items[i].ExpiresAt = time.Time{}
		}
	}}
}

// offsets are the next offsets to commit, by partition. Safe for concurrent
// use.
type offsets struct {
	mu   sync.Mutex
	next map[push.Partition]int64
}

func newOffsets() *offsets { return &offsets{next: make(map[push.Partition]int64)} }

// raise moves a partition's offset to next, never back.
func (o *offsets) raise(p push.Partition, next int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next[p] = max(o.next[p], next)
}

// take empties it and returns what was in it.
func (o *offsets) take() map[push.Partition]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.next
	o.next = make(map[push.Partition]int64)
	return taken
}

// commitGap commits the newest finished record of a partition, although older
// ones are still open.
func commitGap(s *soil) {
	source, finished := s.Source.(*kafka.Source), newOffsets()
	var mu sync.Mutex
	places := make(map[string]*pipeline.Item) // by id; guarded by mu
	s.Source = plantedSource{source, func(b *pipeline.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for i := range b.Items {
			places[b.Items[i].ID] = &b.Items[i]
		}
	}, func(ctx context.Context, inner func() error) error {
		err := inner()
		if newest := finished.take(); err == nil && len(newest) > 0 {
			err = source.CommitAnyway(ctx, newest)
		}
		return err
	}}
	s.Seen = plantedSeen{s.Seen, func(ids []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if it := places[id]; it != nil {
				finished.raise(it.Partition, it.Offset+1)
			}
		}
	}}
}

// plantedSeen sees the ids of items that have just been finished.
type plantedSeen struct {
	pipeline.Seen
	added func(ids []string)
}

func (s plantedSeen) Add(ctx context.Context, ids []string) error {
	err := s.Seen.Add(ctx, ids)
	s.added(ids)
	return err
}

// former keeps the trackers that a source hands out, and what was last known
// of each.
type former struct {
	mu       sync.Mutex
	trackers map[*pipeline.Tracker]*formerOffsets
}

type formerOffsets struct {
	newest int64     // the next offset after all that was handed out
	since  time.Time // when it was first seen fenced
}

func (f *former) polled(b *pipeline.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.trackers[b.Tracker]
	if o == nil {
		o = &formerOffsets{}
		f.trackers[b.Tracker] = o
	}
	if n := len(b.Items); n > 0 {
		o.newest = b.Items[n-1].Offset + 1
	}
}

// fenced returns the offsets of partitions that were given back: for 3 seconds
// from then on, and from after on.
func (f *former) fenced(after time.Duration, of func(watermark, newest int64) int64) map[push.Partition]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	late := make(map[push.Partition]int64)
	for t, o := range f.trackers {
		watermark, ours := t.Watermark()
		if ours || !t.Draining() {
			continue
		}
		if o.since.IsZero() {
			o.since = time.Now()
		}
		if age := time.Since(o.since); age < after || age > after+3*time.Second {
			continue
		}
		if next := of(watermark, o.newest); next > 0 {
			late[t.Partition()] = next
		}
	}
	return late
}

// commitLate makes every commit contain partitions that were given back.
func commitLate(s *soil, after time.Duration, of func(watermark, newest int64) int64) {
	source, f := s.Source.(*kafka.Source), &former{trackers: make(map[*pipeline.Tracker]*formerOffsets)}
	s.Source = plantedSource{source, f.polled, func(ctx context.Context, inner func() error) error {
		err := inner()
		if late := f.fenced(after, of); err == nil && len(late) > 0 {
			err = source.CommitAnyway(ctx, maps.Clone(late))
		}
		return err
	}}
}

// commitAfterRevoke goes on committing a partition that was given back, as far
// as it had come: back behind what the new owner has committed by then.
func commitAfterRevoke(s *soil) {
	commitLate(s, 500*time.Millisecond, func(watermark, _ int64) int64 { return watermark })
}

// markAfterRevoke marks as done, and commits, what was still open when its
// partition was given back.
func markAfterRevoke(s *soil) {
	commitLate(s, 0, func(_, newest int64) int64 { return newest })
}

// ignoreRevoked sends what is left of a partition although it was given back:
// the pipeline gets a tracker that never drains, and the source's is told by
// and by what is done.
func ignoreRevoked(s *soil) {
	type shadow struct {
		blind *pipeline.Tracker
		open  []*pipeline.Batch // as the source's tracker knows them
		left  bool
	}
	var mu sync.Mutex
	shadows := make(map[*pipeline.Tracker]*shadow) // guarded by mu
	follow := func() {
		mu.Lock()
		defer mu.Unlock()
		for t, sh := range shadows {
			if sh.left {
				continue
			}
			done, _ := sh.blind.Watermark()
			for len(sh.open) > 0 {
				b := sh.open[0]
				var ended []*pipeline.Item
				for len(b.Items) > 0 && b.Items[0].Offset < done {
					ended = append(ended, &b.Items[0])
					b.Items = b.Items[1:]
				}
				t.Done(ended)
				if len(b.Items) > 0 {
					break
				}
				sh.open = sh.open[1:]
			}
			if sh.left = t.Draining(); sh.left {
				for _, b := range sh.open {
					items := make([]*pipeline.Item, len(b.Items))
					for i := range b.Items {
						items[i] = &b.Items[i]
					}
					t.Abandon(items)
				}
			}
		}
	}
	go func() { // ends with the process
		for range time.Tick(5 * time.Millisecond) {
			follow()
		}
	}()
	s.Source = plantedSource{s.Source, func(b *pipeline.Batch) {
		mu.Lock()
		defer mu.Unlock()
		sh := shadows[b.Tracker]
		if sh == nil {
			sh = &shadow{blind: newBlindTracker(b.Partition)}
			shadows[b.Tracker] = sh
		}
		known := *b
		known.Items = append([]pipeline.Item(nil), b.Items...) // keeps each item's place in the source's tracker
		sh.open = append(sh.open, &known)
		b.Tracker = sh.blind
		sh.blind.Admit(b)
	}, func(_ context.Context, inner func() error) error {
		follow()
		return inner()
	}}
}

// newBlindTracker is a tracker that no revoke and no lease reaches.
func newBlindTracker(p push.Partition) *pipeline.Tracker {
	return pipeline.NewTracker(pipeline.TrackerOptions{Partition: p, Capacity: 1 << 30})
}
