package inbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Topic names a topic of an app. Its messages are kept once, for all who follow it.
type Topic struct{ Name, App string }

// Hash is what news name a topic by, as Key.Hash does with an inbox.
func (t Topic) Hash() uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(t.App) // a hash takes everything
	_, _ = d.Write([]byte{1})   // no inbox has it there
	_, _ = d.WriteString(t.Name)
	return d.Sum64()
}

// MaxFollows is how many topics a page is made of.
const MaxFollows = 100

// Follow is a topic that a user follows.
type Follow struct {
	Topic string
	// Since is from when on: what was accepted before is not for this user.
	Since time.Time
}

// Of one message only the first row is ever written, so that a repeat, which may come much
// later, makes nobody's marks and nobody's time of it other ones.
const (
	insertOfTopic = "INSERT INTO topic_messages (app, topic, period, at, id, type, lane, sender, priority, content, expires) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL ?"
	anyOfTopics = "SELECT topic FROM topic_messages LIMIT 1"
	// The places alone, of all topics by one query: most contents are not shown.
	selectOfTopics = "SELECT topic, at, id, expires, WRITETIME(type) FROM topic_messages " +
		"WHERE app = ? AND topic IN ? AND period = ? AND (at, id) < (?, ?) PER PARTITION LIMIT ?"
	selectMessage = "SELECT type, lane, sender, priority, content, expires FROM topic_messages " +
		"WHERE app = ? AND topic = ? AND period = ? AND at = ? AND id = ?"
)

// CheckTopics is Check for the table of topics' messages, which workers do without.
func (s *Store) CheckTopics(ctx context.Context) error {
	var topic string
	if err := s.tables.Query(ctx, anyOfTopics, nil, []any{&topic}, func() {}); err != nil {
		return fmt.Errorf("inbox: looking at the table of topics' messages: %w", err)
	}
	return nil
}

// PutTopic writes a message to all who follow a topic. Its id is the message's, and its
// time that at which the message was accepted. With nil it is durable; one that is there
// stays as it is. Then it tells those who wait for news, which is best effort.
func (s *Store) PutTopic(ctx context.Context, t Topic, e *Entry) error {
	if err := s.place(ctx); err != nil {
		return err
	}
	now := s.now()
	err := s.tables.Exec(ctx, insertOfTopic, t.App, t.Name, period(e.At), e.At, e.ID, e.Type, e.Lane, e.Sender, int8(e.Priority), e.Content, e.expiry(), s.left(e.At, now))
	s.leave()
	if err != nil {
		return fmt.Errorf("inbox: writing a message of a topic: %w", err)
	}
	_ = s.tell(ctx, []uint64{t.Hash()}, now)
	return nil
}

// timeOf is an expiry of the tables.
func timeOf(expires time.Time) time.Time {
	if expires.UnixMilli() <= 0 {
		return time.Time{}
	}
	return expires.UTC()
}

// expiry is Expires as it is in the tables: a null would be a tombstone.
func (e *Entry) expiry() time.Time {
	if e.Expires.IsZero() {
		return time.UnixMilli(0)
	}
	return e.Expires
}

// topicRows reads the places of topics' messages in a period, want of each topic that has so
// many. All those come that are before the last of such a topic, which may have more.
func (s *Store) topicRows(ctx context.Context, app string, follows []Follow, p int, behind Position, want int) (rows []found, more bool, err error) {
	since := make(map[string]time.Time, len(follows))
	var names []string
	for _, f := range follows {
		if period(f.Since) <= p {
			since[f.Topic] = f.Since
			names = append(names, f.Topic)
		}
	}
	if len(names) == 0 {
		return nil, false, nil
	}
	var topic, id string
	var at, expires time.Time
	var written int64 // in microseconds since 1970
	counts := make(map[string]int, len(names))
	var until Position // behind it a topic may have rows that were not read
	err = s.tables.Query(ctx, selectOfTopics, []any{app, names, p, behind.At, behind.ID, want}, []any{&topic, &at, &id, &expires, &written}, func() {
		counts[topic]++
		if at.Before(since[topic]) {
			return
		}
		one := found{Entry: Entry{Position: Position{at.UTC(), id}, Topic: topic, Expires: timeOf(expires)}, marked: marked{came: time.UnixMicro(written)}}
		rows = append(rows, one)
		if counts[topic] == want && (!more || one.Before(until)) {
			more, until = true, one.Position
		}
	})
	if err != nil {
		return nil, false, fmt.Errorf("inbox: reading topics' messages: %w", err)
	}
	slices.SortFunc(rows, func(a, b found) int { return a.compare(b.Position) })
	if more {
		rows = rows[:1+slices.IndexFunc(rows, func(f found) bool { return f.Position == until })]
	}
	return rows, more, nil
}

// readMessage reads what a topic's message says.
func (s *Store) readMessage(ctx context.Context, app string, e *Entry) error {
	if err := s.place(ctx); err != nil {
		return err
	}
	defer s.leave()
	var row entryRow
	err := s.tables.Query(ctx, selectMessage, []any{app, e.Topic, period(e.At), e.At, e.ID}, row.said(), func() { row.put(e) })
	if err != nil {
		return fmt.Errorf("inbox: reading a topic's message: %w", err)
	}
	return nil
}
