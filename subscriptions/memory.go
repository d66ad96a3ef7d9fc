package subscriptions

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Memory does what a Store does, in memory: for tests and trials. It is safe for concurrent
// use. The zero Memory is not ready: NewMemory.
type Memory struct {
	now func() time.Time

	mu     sync.RWMutex
	topics map[string]*Topic                // guarded by mu; by name
	people map[string]map[string]membership // guarded by mu; by user and topic
	order  map[string]*[Slices][]string     // guarded by mu; the users of a topic, each slice in order
}

// membership is a row: each column with the time of who wrote it last.
type membership struct {
	mode, priority, since, left cell
}

// cell is a column's value; at is in microseconds, 0 = it is null.
type cell struct{ value, at int64 }

// set writes a value: the later time stands, and of two at one time the higher value, as
// in Cassandra.
func (c *cell) set(value, at int64) {
	if at > c.at || at == c.at && value > c.value {
		*c = cell{value, at}
	}
}

// NewMemory makes an empty one. now nil = time.Now.
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{now: now, topics: map[string]*Topic{}, people: map[string]map[string]membership{}, order: map[string]*[Slices][]string{}}
}

// Check is nil: there are no tables.
func (m *Memory) Check(context.Context) error { return nil }

// Create is that of Store.
func (m *Memory) Create(ctx context.Context, t *Topic) (made Topic, created bool, err error) {
	if err := t.Check(); err != nil {
		return Topic{}, false, err
	}
	if err := ctx.Err(); err != nil {
		return Topic{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := m.topics[t.Name]; found != nil {
		return existing(found, t)
	}
	n := t.asMade(m.now())
	m.topics[t.Name] = &n
	return n, true, nil
}

// Topic is that of Store.
func (m *Memory) Topic(ctx context.Context, name string) (Topic, error) {
	if err := CheckName(name); err != nil {
		return Topic{}, err
	}
	if err := ctx.Err(); err != nil {
		return Topic{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if found := m.topics[name]; found != nil {
		return *found, nil
	}
	return Topic{}, ErrNoTopic
}

// Close is that of Store.
func (m *Memory) Close(ctx context.Context, name string) (Topic, error) {
	if _, err := m.Topic(ctx, name); err != nil {
		return Topic{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.topics[name]
	if found.State != Closed {
		found.close(m.now())
	}
	return *found, nil
}

// Topics is that of Store.
func (m *Memory) Topics(ctx context.Context, apps []string, after string, limit int) ([]Topic, error) {
	if err := checkPage(limit); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := []Topic{}
	for _, t := range m.topics {
		if t.Name > after && slices.Contains(apps, t.App) {
			list = append(list, *t)
		}
	}
	slices.SortFunc(list, func(a, b Topic) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list[:min(limit, len(list))], nil
}

// Apply is that of Store.
func (m *Memory) Apply(ctx context.Context, t *Topic, changes []Change) []Result {
	results := make([]Result, len(changes))
	for i := range changes {
		r := &results[i]
		if r.Err = t.Admits(&changes[i]); r.Err == nil {
			r.Err = ctx.Err()
		}
		if r.Err == nil {
			r.Subscription, r.Err = m.change(t.Name, &changes[i])
		}
	}
	return results
}

func (m *Memory) change(topic string, c *Change) (Subscription, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := m.people[c.User]
	row := rows[topic]
	there := Mode(row.mode.value) != Left
	if c.Mode != Left && !there && room(rows) != nil {
		return Subscription{}, ErrTooMany
	}
	now := row.subscription(c.User)
	at, stamp := c.At.UTC().Truncate(time.Millisecond), c.At.UnixMicro()
	switch {
	case c.Mode == Left:
		row.left.set(at.UnixMilli(), stamp)
		now.Left = at
	case !there:
		row.since.set(at.UnixMilli(), stamp)
		now.Since = at
	}
	row.mode.set(int64(c.Mode), stamp)
	if now.Mode = c.Mode; c.Mode != Left {
		row.priority.set(int64(c.Priority), stamp)
		now.Priority = c.Priority
	}
	m.keep(c.User, topic, row)
	return now, nil
}

// keep stores a row. The caller holds the lock.
func (m *Memory) keep(user, topic string, row membership) {
	rows := m.people[user]
	if rows == nil {
		rows = map[string]membership{}
		m.people[user] = rows
	}
	if _, known := rows[topic]; !known {
		parts := m.order[topic]
		if parts == nil {
			parts = new([Slices][]string)
			m.order[topic] = parts
		}
		part := &parts[Slice(user)]
		i, _ := slices.BinarySearch(*part, user)
		*part = slices.Insert(*part, i, user)
	}
	rows[topic] = row
}

// room is nil if there may be one more topic.
func room(rows map[string]membership) error {
	topics := 0
	for _, row := range rows {
		if Mode(row.mode.value) != Left {
			topics++
		}
	}
	if topics >= MaxTopics {
		return ErrTooMany
	}
	return nil
}

func (r *membership) subscription(user string) Subscription {
	return Subscription{User: user, Mode: Mode(r.mode.value), Priority: push.Priority(r.priority.value), Since: timeOf(r.since.value), Left: timeOf(r.left.value)}
}

// Page is that of Store.
func (m *Memory) Page(ctx context.Context, topic string, l Layout, slice int, after string, limit int) ([]Subscription, error) {
	list, _, _, err := m.Run(ctx, topic, l, slice, slice, Position{slice, after}, limit)
	return list, err
}

// Run is that of Store.
func (m *Memory) Run(ctx context.Context, topic string, l Layout, first, last int, after Position, limit int) (list []Subscription, next Position, end bool, err error) {
	if err := checkRun(l, first, last, limit); err != nil {
		return nil, next, false, err
	}
	if err := ctx.Err(); err != nil {
		return nil, next, false, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	parts := m.order[topic]
	if parts == nil {
		return nil, Position{Slice: last + 1}, true, nil
	}
	for slice := max(first, after.Slice); slice <= last; slice++ {
		users := parts[slice]
		if slice == after.Slice {
			i, found := slices.BinarySearch(users, after.User)
			if found {
				i++
			}
			users = users[i:]
		}
		for _, user := range users {
			row := m.people[user][topic]
			list = append(list, row.subscription(user))
			if len(list) == limit {
				return list, Position{slice, user}, false, nil
			}
		}
	}
	return list, Position{Slice: last + 1}, true, nil
}

// Subscription is that of Store.
func (m *Memory) Subscription(ctx context.Context, topic, user string) (Subscription, error) {
	if err := CheckUser(user); err != nil {
		return Subscription{}, err
	}
	if err := ctx.Err(); err != nil {
		return Subscription{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	row := m.people[user][topic]
	return row.subscription(user), nil
}

// OfUser is that of Store.
func (m *Memory) OfUser(ctx context.Context, user, after string, limit int) ([]Membership, error) {
	if err := CheckUser(user); err != nil {
		return nil, err
	}
	if err := checkPage(limit); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	rows := m.people[user]
	names := make([]string, 0, len(rows))
	for name := range rows {
		if name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	list := []Membership{}
	for _, name := range names[:min(limit, len(names))] {
		row := rows[name]
		one := Membership{Topic: name, Subscription: row.subscription(user)}
		if t := m.topics[name]; t != nil {
			one.App, one.Security = t.App, t.Security
		}
		list = append(list, one)
	}
	return list, nil
}
