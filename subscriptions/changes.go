package subscriptions

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Both tables change by one logged batch: once the server has it, both get it, also if the
// coordinator dies. The time of the request is the timestamp of all that it writes.
// Nothing is deleted, and no column set to null: neither leaves a tombstone.
const (
	join = "BEGIN BATCH USING TIMESTAMP ? " +
		"INSERT INTO subscriptions (topic, layout, bucket, slice, user, mode, priority, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?); " +
		"INSERT INTO subscriptions_by_user (user, topic, app, security, mode, priority, since) VALUES (?, ?, ?, ?, ?, ?, ?); " +
		"APPLY BATCH"
	// renew is the change of one who is there: since when he is stays.
	renew = "BEGIN BATCH USING TIMESTAMP ? " +
		"INSERT INTO subscriptions (topic, layout, bucket, slice, user, mode, priority) VALUES (?, ?, ?, ?, ?, ?, ?); " +
		"INSERT INTO subscriptions_by_user (user, topic, app, security, mode, priority) VALUES (?, ?, ?, ?, ?, ?); " +
		"APPLY BATCH"
	leave = "BEGIN BATCH USING TIMESTAMP ? " +
		"INSERT INTO subscriptions (topic, layout, bucket, slice, user, mode, left) VALUES (?, ?, ?, ?, ?, ?, ?); " +
		"INSERT INTO subscriptions_by_user (user, topic, app, security, mode, left) VALUES (?, ?, ?, ?, ?, ?); " +
		"APPLY BATCH"
	selectOne   = "SELECT mode, priority, since, left FROM subscriptions_by_user WHERE user = ? AND topic = ?"
	selectModes = "SELECT mode FROM subscriptions_by_user WHERE user = ?"
)

// Apply makes changes of a topic's subscribers, each by itself, and says what became of
// each. There may be up to MaxChanges, of different users; of a user who is in there twice
// nobody knows which is made last, unless their times differ. Those that ctx leaves no time
// for have its error.
//
// A user has at most Options.Most topics; of n calls that subscribe him at once each may miss
// what the others are about to write, so that he has at most n-1 more.
func (s *Store) Apply(ctx context.Context, t *Topic, changes []Change) []Result {
	results := make([]Result, len(changes))
	var running sync.WaitGroup
	defer running.Wait()
	for i := range changes {
		if results[i].Err = t.Admits(&changes[i]); results[i].Err != nil {
			continue
		}
		select {
		case s.places <- struct{}{}:
		case <-ctx.Done():
			results[i].Err = context.Cause(ctx)
			continue
		}
		running.Go(func() {
			defer func() { <-s.places }()
			results[i].Subscription, results[i].Err = s.change(ctx, t, &changes[i])
		})
	}
	return results
}

// change makes one change.
func (s *Store) change(ctx context.Context, t *Topic, c *Change) (Subscription, error) {
	now, err := s.one(ctx, c.User, t.Name)
	if err != nil {
		return Subscription{}, err
	}
	there := now.Mode != Left
	if c.Mode != Left && !there {
		if err := s.room(ctx, c.User); err != nil {
			return Subscription{}, err
		}
	}
	at := c.At.UTC().Truncate(time.Millisecond)
	slice := Slice(c.User)
	ofTopic := []any{c.At.UnixMicro(), t.Name, t.Layout.Number, int16(t.Layout.Bucket(slice)), int16(slice), c.User, int8(c.Mode)}
	ofUser := []any{c.User, t.Name, t.App, int8(t.Security), int8(c.Mode)}
	statement, rest := leave, []any{at}
	switch {
	case c.Mode == Left:
		now.Left = at
	case there:
		statement, rest = renew, []any{int8(c.Priority)}
	default:
		statement, rest = join, []any{int8(c.Priority), at}
		now.Since = at
	}
	values := append(append(append(ofTopic, rest...), ofUser...), rest...)
	if err := s.tables.Exec(ctx, statement, values...); err != nil {
		return Subscription{}, fmt.Errorf("subscriptions: changing a subscription: %w", err)
	}
	now.User, now.Mode = c.User, c.Mode
	if c.Mode != Left {
		now.Priority = c.Priority
	}
	return now, nil
}

// Subscription is what a user has to do with a topic. One who never had has left, at no
// time.
func (s *Store) Subscription(ctx context.Context, topic, user string) (Subscription, error) {
	if err := CheckUser(user); err != nil {
		return Subscription{}, err
	}
	found, err := s.one(ctx, user, topic)
	found.User = user
	return found, err
}

// one reads what a user has to do with a topic; without a row he has left.
func (s *Store) one(ctx context.Context, user, topic string) (found Subscription, err error) {
	var row subscriptionRow
	err = s.tables.Query(ctx, selectOne, []any{user, topic}, row.dest(), func() { found = row.subscription() })
	if err != nil {
		return found, fmt.Errorf("subscriptions: reading a subscription: %w", err)
	}
	return found, nil
}

// room is nil if the user may subscribe to one more topic.
func (s *Store) room(ctx context.Context, user string) error {
	var mode int8
	topics := 0
	err := s.tables.Query(ctx, selectModes, []any{user}, []any{&mode}, func() {
		if Mode(mode) != Left {
			topics++
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("subscriptions: counting a user's topics: %w", err)
	case topics >= s.most:
		return ErrTooMany
	}
	return nil
}

// subscriptionRow is what rows of both tables have. Times are in ms; 0 = null.
type subscriptionRow struct {
	mode, priority int8
	since, left    int64
}

func (r *subscriptionRow) dest() []any { return []any{&r.mode, &r.priority, &r.since, &r.left} }

func (r *subscriptionRow) subscription() Subscription {
	return Subscription{Mode: Mode(r.mode), Priority: push.Priority(r.priority), Since: timeOf(r.since), Left: timeOf(r.left)}
}

// timeOf is a time of the tables.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
