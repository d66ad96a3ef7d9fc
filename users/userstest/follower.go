package userstest

import (
	"context"
	"slices"

	"github.com/pushfleet/pushfleet/users"
)

// Follower reads a Topic from offsets of its own. It implements
// users.Follower.
type Follower struct {
	topic *Topic
	// Most is how many records of a partition one Poll returns; 0 = all.
	Most int
	pos  []int64
}

// NewFollower makes a follower of t.
func NewFollower(t *Topic) *Follower { return &Follower{topic: t, pos: make([]int64, len(t.Ends()))} }

// Spans implements users.Follower.
func (f *Follower) Spans(ctx context.Context) ([]users.Span, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ends := f.topic.Ends()
	spans := make([]users.Span, len(ends))
	for p := range spans {
		spans[p].End = ends[p]
	}
	return spans, nil
}

// Seek implements users.Follower.
func (f *Follower) Seek(ctx context.Context, offsets []int64) error {
	f.pos = slices.Clone(offsets)
	return ctx.Err()
}

// Poll implements users.Follower.
func (f *Follower) Poll(ctx context.Context) ([]users.Fetched, error) {
	for {
		fetched, grown := f.read()
		if len(fetched) > 0 {
			return fetched, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-grown:
		}
	}
}

func (f *Follower) read() ([]users.Fetched, <-chan struct{}) {
	t := f.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	var fetched []users.Fetched
	for p, records := range t.partitions {
		if p >= len(f.pos) || f.pos[p] >= t.ends[p] { // not sought: it grew since
			continue
		}
		run := users.Fetched{Partition: int32(p), Next: t.ends[p]}
		for _, r := range records {
			if r.Offset < f.pos[p] {
				continue
			}
			if f.Most > 0 && len(run.Records) == f.Most {
				run.Next = r.Offset
				break
			}
			r.Value = slices.Clone(r.Value)
			run.Records = append(run.Records, r)
		}
		f.pos[p] = run.Next
		fetched = append(fetched, run)
	}
	return fetched, t.grown
}

// Reports is a push.feedback in memory. It implements users.FeedbackSource.
type Reports struct {
	values    chan [][]byte
	Committed chan int // how many values each commit covered
	open      int
}

// NewReports makes an empty one.
func NewReports() *Reports {
	return &Reports{values: make(chan [][]byte, 100), Committed: make(chan int, 100)}
}

// Add adds one batch of reports, at most 100 batches unread.
func (r *Reports) Add(values ...string) {
	batch := make([][]byte, len(values))
	for i, v := range values {
		batch[i] = []byte(v)
	}
	r.values <- batch
}

// Poll implements users.FeedbackSource.
func (r *Reports) Poll(ctx context.Context) ([][]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case batch := <-r.values:
		r.open += len(batch)
		return batch, nil
	}
}

// Commit implements users.FeedbackSource.
func (r *Reports) Commit(ctx context.Context) error {
	r.Committed <- r.open
	r.open = 0
	return ctx.Err()
}
