package inbox

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Memory keeps inboxes in memory: for tests and trials. It is safe for concurrent use. It
// does as Store does, but forgets nothing by age.
type Memory struct {
	now func() time.Time

	mu      sync.Mutex
	inboxes map[Key]*kept        // guarded by mu
	topics  map[Topic]*kept      // guarded by mu; without marks
	news    map[uint64]time.Time // guarded by mu; the latest of each key
	err     error                // guarded by mu; of every call
}

type kept struct {
	entries []keptEntry // in the order in which they are read
	upTo    upTo
}

type keptEntry struct {
	Entry
	marked
}

// NewMemory makes a Memory. now may be nil.
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{now: now, inboxes: make(map[Key]*kept), topics: make(map[Topic]*kept), news: make(map[uint64]time.Time)}
}

// Fail makes every call fail with err from now on; nil = none.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// begin locks and reports whether the call is to fail; the caller unlocks.
func (m *Memory) begin(ctx context.Context) error {
	m.mu.Lock()
	if m.err != nil {
		return m.err
	}
	return ctx.Err()
}

// Check is that of Store.
func (m *Memory) Check(ctx context.Context) error {
	defer m.mu.Unlock()
	return m.begin(ctx)
}

// CheckTopics is that of Store.
func (m *Memory) CheckTopics(ctx context.Context) error { return m.Check(ctx) }

func (m *Memory) inbox(k Key) *kept {
	b := m.inboxes[k]
	if b == nil {
		b = &kept{}
		m.inboxes[k] = b
	}
	return b
}

// find is where an entry is or belongs.
func (b *kept) find(p Position) (int, bool) {
	return slices.BinarySearchFunc(b.entries, p, func(e keptEntry, p Position) int { return e.compare(p) })
}

// Put is that of Store.
func (m *Memory) Put(ctx context.Context, entries []Addressed) []error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	errs := make([]error, len(entries))
	for i := range entries {
		if errs[i] = err; err != nil {
			continue
		}
		e := &entries[i]
		b := m.inbox(e.Key)
		at, there := b.find(e.Position)
		if !there {
			b.entries = slices.Insert(b.entries, at, keptEntry{})
		}
		now := keptEntry{e.Entry, b.entries[at].marked}
		now.Shown, now.came = b.entries[at].Shown, m.now()
		now.Content = slices.Clone(e.Content)
		b.entries[at] = now
		m.tell(e.Key)
	}
	return errs
}

// tell keeps news. The caller holds the lock.
func (m *Memory) tell(k Key) { m.news[k.Hash()] = m.now() }

// PutTopic is that of Store.
func (m *Memory) PutTopic(ctx context.Context, t Topic, e *Entry) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	b := m.topics[t]
	if b == nil {
		b = &kept{}
		m.topics[t] = b
	}
	if at, there := b.find(e.Position); !there {
		one := *e
		one.Content = slices.Clone(e.Content)
		b.entries = slices.Insert(b.entries, at, keptEntry{one, marked{came: m.now()}})
	}
	m.news[t.Hash()] = m.now()
	return nil
}

// OfTopic are the messages of a topic, the newest first.
func (m *Memory) OfTopic(t Topic) (list []Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.topics[t]; b != nil {
		for i := range b.entries {
			list = append(list, b.entries[i].Entry)
		}
	}
	return list
}

// Page is that of Store.
func (m *Memory) Page(ctx context.Context, k Key, follows []Follow, behind Position, limit int) ([]Entry, bool, error) {
	if err := checkPage(follows, limit); err != nil {
		return nil, false, err
	}
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	b := m.merged(k, follows)
	from, there := b.find(behind)
	if there {
		from++
	}
	var page []Entry
	bytes := 0
	for i := from; i < len(b.entries); i++ {
		e := b.entries[i].Entry
		if e.Type == "" { // a mark of what is not there
			continue
		}
		if bytes += len(e.Content); len(page) == limit || bytes > MaxBytes && len(page) > 0 {
			return page, false, nil
		}
		e.Read = b.entries[i].isRead(e.At, b.upTo)
		page = append(page, e)
	}
	return page, len(page) < limit, nil
}

// Unread is that of Store.
func (m *Memory) Unread(ctx context.Context, k Key, follows []Follow) (n int, more bool, err error) {
	if err := checkPage(follows, MaxPage); err != nil {
		return 0, false, err
	}
	err = m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return 0, false, err
	}
	b, looks := m.merged(k, follows), 0
	for i := range b.entries {
		e := b.entries[i].Entry
		if e.Type == "" {
			continue
		}
		if e.Read = b.entries[i].isRead(e.At, b.upTo); e.unseen(m.now()) {
			n++
		}
		if looks++; n == MostUnread || looks == mostLooks {
			return n, true, nil
		}
	}
	return n, false, nil
}

// merged is an inbox with what is of topics. The caller holds the lock.
func (m *Memory) merged(k Key, follows []Follow) *kept {
	own := m.inbox(k)
	b := &kept{slices.Clone(own.entries), own.upTo}
	for _, f := range follows {
		of := m.topics[Topic{f.Topic, k.App}]
		if of == nil {
			continue
		}
		for _, e := range of.entries {
			if e.At.Before(f.Since) {
				continue
			}
			e.Topic = f.Topic
			at, there := b.find(e.Position)
			switch {
			case !there:
				b.entries = slices.Insert(b.entries, at, e)
			case b.entries[at].Type == "": // marks of it
				e.read, e.unread, e.Shown = b.entries[at].read, b.entries[at].unread, b.entries[at].Shown
				b.entries[at] = e
			}
		}
	}
	return b
}

// Mark is that of Store.
func (m *Memory) Mark(ctx context.Context, k Key, marks *Marks) error {
	if err := marks.Check(); err != nil {
		return err
	}
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	b := m.inbox(k)
	b.each(marks.Read, func(e *keptEntry) { e.read = later(e.read, marks.At) })
	b.each(marks.Unread, func(e *keptEntry) { e.unread = later(e.unread, marks.At) })
	if up := marks.UpTo.At; up.After(b.upTo.at) || up.Equal(b.upTo.at) && marks.At.After(b.upTo.set) {
		b.upTo = upTo{up, marks.At}
	}
	m.tell(k)
	return nil
}

// Show is that of Store.
func (m *Memory) Show(ctx context.Context, k Key, shown []Position, at time.Time) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	m.inbox(k).each(shown, func(e *keptEntry) { e.Shown = later(e.Shown, at.UTC().Truncate(time.Millisecond)) })
	return nil
}

// each changes entries, which are made if they are not there, as rows are.
func (b *kept) each(positions []Position, change func(*keptEntry)) {
	for _, p := range positions {
		at, there := b.find(p)
		if !there {
			b.entries = slices.Insert(b.entries, at, keptEntry{Entry: Entry{Position: p}})
		}
		change(&b.entries[at])
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Count is that of Store.
func (m *Memory) Count(ctx context.Context, k Key) (rows int, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	b := m.inboxes[k]
	if err != nil || b == nil {
		return 0, err
	}
	if rows = len(b.entries); !b.upTo.at.IsZero() {
		rows++
	}
	return rows, nil
}

// Forget is that of Store.
func (m *Memory) Forget(ctx context.Context, k Key) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err == nil {
		delete(m.inboxes, k)
	}
	return err
}

// News is that of Store.
func (m *Memory) News(ctx context.Context) ([]Line, error) {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var lines []Line
	for key, at := range m.news {
		if m.now().Sub(at) <= newsBack {
			lines = append(lines, Line{key, at})
		}
	}
	return lines, nil
}
