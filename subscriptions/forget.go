package subscriptions

import (
	"context"
	"errors"
	"fmt"
)

const (
	selectWritten = "SELECT topic, WRITETIME(mode) FROM subscriptions_by_user WHERE user = ? AND topic > ? LIMIT ?"
	deleteBoth    = "BEGIN BATCH USING TIMESTAMP ? " +
		"DELETE FROM subscriptions WHERE topic = ? AND layout = ? AND bucket = ? AND slice = ? AND user = ?; " +
		"DELETE FROM subscriptions_by_user WHERE user = ? AND topic = ?; " +
		"APPLY BATCH"
	deleteOne = "DELETE FROM subscriptions_by_user USING TIMESTAMP ? WHERE user = ? AND topic = ?"
)

// Count is how many rows there are of a user, one for each topic that he is in or has left.
func (s *Store) Count(ctx context.Context, user string) (topics int, err error) {
	err = s.eachWritten(ctx, user, func(string, int64) error {
		topics++
		return nil
	})
	return topics, err
}

// Forget removes a user from all topics, without a trace of what he has left: for an
// erasure, and for nothing else, as each row becomes a tombstone. What he subscribes to
// after the call holds. It may be repeated.
func (s *Store) Forget(ctx context.Context, user string) error {
	return s.eachWritten(ctx, user, func(name string, written int64) error {
		// No clock of a gateway that was ahead keeps a row from being deleted.
		at := max(s.now().UnixMicro(), written)
		t, err := s.Topic(ctx, name)
		switch {
		case errors.Is(err, ErrNoTopic):
			err = s.tables.Exec(ctx, deleteOne, at, user, name)
		case err != nil:
			return err
		default:
			slice := Slice(user)
			err = s.tables.Exec(ctx, deleteBoth, at, name, t.Layout.Number, int16(t.Layout.Bucket(slice)), int16(slice), user, user, name)
		}
		if err != nil {
			return fmt.Errorf("subscriptions: removing a user from a topic: %w", err)
		}
		return nil
	})
}

// eachWritten calls do with each topic of a user, and when its row was written, in
// microseconds since 1970.
func (s *Store) eachWritten(ctx context.Context, user string, do func(topic string, written int64) error) error {
	if err := CheckUser(user); err != nil {
		return err
	}
	type row struct {
		topic   string
		written int64
	}
	for after := ""; ; {
		var one row
		var page []row
		err := s.tables.Query(ctx, selectWritten, []any{user, after, MaxPage}, []any{&one.topic, &one.written}, func() { page = append(page, one) })
		if err != nil {
			return fmt.Errorf("subscriptions: reading a user's topics: %w", err)
		}
		for _, r := range page {
			if err := do(r.topic, r.written); err != nil {
				return err
			}
			after = r.topic
		}
		if len(page) < MaxPage {
			return nil
		}
	}
}
