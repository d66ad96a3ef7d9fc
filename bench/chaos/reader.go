//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/crowd"
)

// reader fills the ledger of a lane that others write to: with what is in its topic, as
// soon as it is there.
type reader struct {
	ledger  *ledger
	client  *kgo.Client
	admin   *kadm.Client
	callers *callers // who know what becomes of their records
	reading sync.WaitGroup
	stop    context.CancelFunc
	closing sync.Once

	mu   sync.Mutex
	seen map[string]bool // guarded by mu; ids
	next map[int32]int64 // guarded by mu; of each partition
}

func newReader(w *world, l *ledger, c *callers) (*reader, error) {
	client, err := w.kafkaClient(kgo.ConsumeTopics(fleet.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.MetadataMinAge(time.Second), kgo.MetadataMaxAge(2*time.Second)) // there may be more partitions
	if err != nil {
		return nil, fmt.Errorf("reader of the lane: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &reader{ledger: l, client: client, admin: kadm.NewClient(client), callers: c, stop: stop, seen: map[string]bool{}, next: map[int32]int64{}}
	r.reading.Go(func() { r.read(ctx) })
	return r, nil
}

// read reads until ctx ends. A broker that is away is waited for.
func (r *reader) read(ctx context.Context) {
	for ctx.Err() == nil {
		r.client.PollFetches(ctx).EachRecord(r.note)
	}
}

// note writes a record down, with what its call or its user demands of it.
func (r *reader) note(rec *kgo.Record) {
	var value struct {
		ID        string    `json:"id"`
		UserID    string    `json:"user_id"`
		ExpiresAt time.Time `json:"expires_at"`
		Data      struct {
			Call string `json:"call"`
		} `json:"data"`
	}
	l := r.ledger
	e := invariants.Produced{Partition: invariants.Partition{Topic: rec.Topic, ID: rec.Partition}, Offset: rec.Offset, At: rec.Timestamp}
	err := json.Unmarshal(rec.Value, &value)
	e.ID, e.Call, e.Deadline = value.ID, value.Data.Call, value.ExpiresAt
	user, known := l.people.Find(value.UserID)
	fate, sent := r.callers.landed(e.Call)
	if !sent {
		e.User, fate = value.UserID, fateOf(l.people, user)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[e.ID] {
		fate = crowd.IsCopy
	}
	r.seen[e.ID], r.next[rec.Partition] = true, rec.Offset+1
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || !known {
		l.err = fmt.Errorf("%s/%d/%d is none of a gateway's records: %v", rec.Topic, rec.Partition, rec.Offset, err)
		return
	}
	l.size += int64(len(rec.Value))
	l.expect(&e, user, fate)
	l.keep(e)
}

// fateOf is what becomes of a message to a topic, for one of its subscribers: it is of a
// type that nobody has opted out of, and nobody has had so many of.
func fateOf(people *crowd.Crowd, user int) crowd.Fate {
	switch u := people.User(user); {
	case u.Preferences.OptOutAll || len(u.Preferences.Channels) > 0:
		return crowd.IsSuppressed
	case u.Kind == crowd.DeadToken:
		return crowd.DeadEnds
	case u.Kind == crowd.NoDevice:
		return crowd.HasNoDevice
	}
	return crowd.Reaches
}

// catchUp waits until everything is read that is there.
func (r *reader) catchUp(ctx context.Context) error {
	for {
		behind, err := r.behind(ctx)
		if err == nil && behind == "" {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("reading the lane: %w: %s %v", context.Cause(ctx), behind, err)
		}
		hold(ctx, 100*time.Millisecond)
	}
}

// behind names partitions that are not read up to their end.
func (r *reader) behind(ctx context.Context) (string, error) {
	ends, err := r.admin.ListEndOffsets(ctx, fleet.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var late []string
	ends.Each(func(e kadm.ListedOffset) {
		if r.next[e.Partition] < e.Offset {
			late = append(late, fmt.Sprintf("%s/%d is read to %d of %d", e.Topic, e.Partition, r.next[e.Partition], e.Offset))
		}
	})
	return strings.Join(late, ", "), nil
}

// close ends it. It may be called twice, and of none.
func (r *reader) close() {
	if r == nil {
		return
	}
	r.closing.Do(func() {
		r.stop()
		r.reading.Wait()
		r.client.Close()
	})
}
