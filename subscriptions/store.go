package subscriptions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Tables is a session of Cassandra or Scylla, such as status.Session, in the keyspace that
// has the tables of deploy/cassandra/schema.cql, which reads and writes with LOCAL_QUORUM
// (or ONE where there is one replica). It is safe for concurrent use.
type Tables interface {
	// Exec runs an idempotent statement.
	Exec(ctx context.Context, statement string, values ...any) error
	// Query reads each row into dest, which are pointers, and calls row after it.
	Query(ctx context.Context, statement string, values, dest []any, row func()) error
}

// Options are what a Store is made of.
type Options struct {
	Tables Tables // required; stays the caller's
	// Concurrency is how many queries are in flight at once: 32.
	Concurrency int
	// Fresh is how long a topic that was read is believed: 5 s. Another replica's closing
	// is seen that much later. Below 0 = each is read anew.
	Fresh time.Duration
	Now   func() time.Time // nil = time.Now
	// Most is how many topics a user may have subscribed to at once: MaxTopics.
	Most int
}

// Store keeps topics and subscriptions in Cassandra or Scylla. It is safe for concurrent
// use, and starts nothing. Each statement is tried once: after an error that is none of
// fault.go it may have been applied, and the call may be repeated.
type Store struct {
	tables Tables
	places chan struct{} // each query of a batch in progress has one; never closed
	topics cache
	now    func() time.Time
	most   int // topics of a user
}

// New makes a Store.
func New(o Options) *Store {
	if o.Concurrency == 0 {
		o.Concurrency = 32
	}
	if o.Fresh == 0 {
		o.Fresh = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Most == 0 {
		o.Most = MaxTopics
	}
	return &Store{tables: o.Tables, most: o.Most, places: make(chan struct{}, max(o.Concurrency, 1)), topics: cache{fresh: o.Fresh, now: o.Now}, now: o.Now}
}

// Check reads each table: an error says that one is missing or cannot be read, or lacks a
// column.
func (s *Store) Check(ctx context.Context) error {
	var publishers []string
	if err := s.tables.Query(ctx, "SELECT publishers FROM topics LIMIT 1", nil, []any{&publishers}, func() {}); err != nil {
		return fmt.Errorf("subscriptions: looking at the tables: %w", err)
	}
	for _, statement := range []string{
		"SELECT name FROM topics_by_app LIMIT 1",
		"SELECT user FROM subscriptions LIMIT 1", "SELECT user FROM subscriptions_by_user LIMIT 1",
	} {
		var found string
		if err := s.tables.Query(ctx, statement, nil, []any{&found}, func() {}); err != nil {
			return fmt.Errorf("subscriptions: looking at the tables: %w", err)
		}
	}
	return nil
}

const (
	topicColumns = "name, app, service, priority, security, modes, size, layout, buckets, created_by, created_at, nonce, publishers, closed"
	selectTopic  = "SELECT " + topicColumns + " FROM topics WHERE name = ?"
	selectTopics = "SELECT " + topicColumns + " FROM topics WHERE name IN ?"
	// The name goes into the list of its app first: what is there and made by nobody is not
	// shown, but what is made and not listed would never be found.
	listTopic   = "INSERT INTO topics_by_app (app, name) VALUES (?, ?)"
	selectNames = "SELECT name FROM topics_by_app WHERE app = ? AND name > ? LIMIT ?"
	insertTopic = "INSERT INTO topics (name, app, service, priority, security, modes, size, layout, buckets, created_by, created_at, nonce, publishers) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
	// Nothing but this writes the column, so that no clock of a paxos ballot is compared
	// with one of a gateway.
	closeTopic = "UPDATE topics SET closed = ? WHERE name = ?"
)

// Create makes a topic unless there is one of its name. One with the same settings is
// found, and created is false; ErrConflict tells of other settings, ErrTopicClosed of one
// that was closed. Of two that make it at once one has created it.
func (s *Store) Create(ctx context.Context, t *Topic) (made Topic, created bool, err error) {
	if err := t.Check(); err != nil {
		return Topic{}, false, err
	}
	found, _, err := s.read(ctx, t.Name)
	if err == nil {
		return existing(&found, t)
	}
	if !errors.Is(err, ErrNoTopic) {
		return Topic{}, false, err
	}
	n, nonce := t.asMade(s.now()), rand.Int64()
	if err := s.tables.Exec(ctx, listTopic, n.App, n.Name); err != nil {
		return Topic{}, false, fmt.Errorf("subscriptions: listing a topic: %w", err)
	}
	failed := s.tables.Exec(ctx, insertTopic, n.Name, n.App, n.Service, int8(n.Priority), int8(n.Security), int8(n.Modes), int8(n.Size),
		n.Layout.Number, n.Layout.Buckets, n.CreatedBy, n.CreatedAt, nonce, append([]string{}, n.Publishers...)) // never nil: a null would be a tombstone
	// The statement's own answer has other columns if it was not applied, which the session
	// cannot read. So what is there now says whose it is; also after a time-out, as it comes
	// to those who make one topic at once.
	found, whose, err := s.read(ctx, t.Name)
	switch {
	case err != nil && failed != nil:
		return Topic{}, false, fmt.Errorf("subscriptions: making a topic: %w", failed)
	case errors.Is(err, ErrNoTopic): // made elsewhere, and not here yet
		return Topic{}, false, errors.New("subscriptions: a topic that was made cannot be read yet")
	case err != nil:
		return Topic{}, false, err
	case whose == nonce:
		s.topics.keep(&found)
		return found, true, nil
	}
	return existing(&found, t)
}

// existing is the answer to who makes a topic that there is.
func existing(found, wanted *Topic) (Topic, bool, error) {
	switch {
	case !found.sameSettings(wanted):
		return Topic{}, false, ErrConflict
	case found.State == Closed:
		return Topic{}, false, ErrTopicClosed
	}
	return *found, false, nil
}

// Topic reads a topic, or believes what it has read a moment ago; ErrNoTopic if there is
// none.
func (s *Store) Topic(ctx context.Context, name string) (Topic, error) {
	if err := CheckName(name); err != nil {
		return Topic{}, err
	}
	if t, ok := s.topics.get(name); ok {
		return t, nil
	}
	t, _, err := s.read(ctx, name)
	if err == nil {
		s.topics.keep(&t)
	}
	return t, err
}

// Close closes a topic for new subscribers and messages; ErrNoTopic if there is none. One
// that is closed stays as it was.
func (s *Store) Close(ctx context.Context, name string) (Topic, error) {
	if err := CheckName(name); err != nil {
		return Topic{}, err
	}
	t, _, err := s.read(ctx, name)
	if err != nil || t.State == Closed {
		return t, err
	}
	t.close(s.now())
	if err := s.tables.Exec(ctx, closeTopic, t.ClosedAt, name); err != nil {
		return Topic{}, fmt.Errorf("subscriptions: closing a topic: %w", err)
	}
	s.topics.keep(&t)
	return t, nil
}

// Topics are topics of these apps behind a name, in the order of names, closed ones too;
// none = there are no more. limit is 1 to MaxPage.
func (s *Store) Topics(ctx context.Context, apps []string, after string, limit int) ([]Topic, error) {
	if err := checkPage(limit); err != nil {
		return nil, err
	}
	list := []Topic{}
	for {
		names, last, err := s.names(ctx, apps, after, limit-len(list))
		if err != nil || len(names) == 0 {
			return list, err
		}
		found, err := s.named(ctx, names)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			// A list may have a name that was made for another app, or never.
			if t := found[name]; t != nil && slices.Contains(apps, t.App) {
				list = append(list, *t)
			}
		}
		if after = last; len(list) == limit {
			return list, nil
		}
	}
}

// names are the first names behind one in the lists of apps, each once.
func (s *Store) names(ctx context.Context, apps []string, after string, limit int) (names []string, last string, err error) {
	for _, app := range apps {
		var name string
		err := s.tables.Query(ctx, selectNames, []any{app, after, limit}, []any{&name}, func() { names = append(names, name) })
		if err != nil {
			return nil, "", fmt.Errorf("subscriptions: listing topics: %w", err)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if names = names[:min(len(names), limit)]; len(names) > 0 {
		last = names[len(names)-1]
	}
	return names, last, nil
}

// named reads topics by their names, a hundred in a query.
func (s *Store) named(ctx context.Context, names []string) (map[string]*Topic, error) {
	found := make(map[string]*Topic, len(names))
	for part := range slices.Chunk(names, 100) {
		var row topicRow
		err := s.tables.Query(ctx, selectTopics, []any{part}, row.dest(), func() {
			t := row.topic()
			found[t.Name] = &t
		})
		if err != nil {
			return nil, fmt.Errorf("subscriptions: reading topics: %w", err)
		}
	}
	return found, nil
}

// read reads a topic, and who has made it.
func (s *Store) read(ctx context.Context, name string) (t Topic, nonce int64, err error) {
	var row topicRow
	found := false
	err = s.tables.Query(ctx, selectTopic, []any{name}, row.dest(), func() { t, nonce, found = row.topic(), row.nonce, true })
	switch {
	case err != nil:
		return Topic{}, 0, fmt.Errorf("subscriptions: reading a topic: %w", err)
	case !found || t.App == "":
		return Topic{}, 0, ErrNoTopic
	}
	return t, nonce, nil
}

// topicRow is a row of topics.
type topicRow struct {
	name, app, service, createdBy   string
	priority, security, modes, size int8
	layout, buckets                 int
	createdAt, closed               time.Time
	nonce                           int64
	publishers                      []string // null in rows of releases that knew none
}

func (r *topicRow) dest() []any {
	return []any{
		&r.name, &r.app, &r.service, &r.priority, &r.security, &r.modes, &r.size, &r.layout, &r.buckets,
		&r.createdBy, &r.createdAt, &r.nonce, &r.publishers, &r.closed,
	}
}

func (r *topicRow) topic() Topic {
	t := Topic{
		Name: r.name, App: r.app, Service: r.service, Priority: push.Priority(r.priority), Security: Security(r.security), Modes: Modes(r.modes), Size: Size(r.size),
		State: Opened, Layout: Layout{r.layout, r.buckets}, CreatedBy: r.createdBy, CreatedAt: r.createdAt.UTC(), Version: 1,
	}
	if len(r.publishers) > 0 {
		t.Publishers = slices.Clone(r.publishers)
	}
	if !r.closed.IsZero() {
		t.close(r.closed)
	}
	return t
}

func checkPage(limit int) error {
	if limit < 1 || limit > MaxPage {
		return fmt.Errorf("subscriptions: a page of %d, want 1 to %d", limit, MaxPage)
	}
	return nil
}
