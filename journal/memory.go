package journal

import (
	"context"
	"slices"
	"sync"
)

// Memory keeps journals in memory: for tests and trials. It is safe for concurrent use. It
// does as Store does, but forgets nothing by age.
type Memory struct {
	mu   sync.Mutex
	kept map[string][]Entry // guarded by mu; by user, in the order in which they are read
	err  error              // guarded by mu; of every call
}

// NewMemory makes a Memory.
func NewMemory() *Memory { return &Memory{kept: make(map[string][]Entry)} }

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

// Close does nothing.
func (m *Memory) Close() {}

// Put is that of Store.
func (m *Memory) Put(ctx context.Context, entries []Entry) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, e := range entries {
		list := m.kept[e.User]
		at, there := slices.BinarySearchFunc(list, e.Position, func(o Entry, p Position) int { return o.compare(p) })
		if there {
			list[at] = e
			continue
		}
		m.kept[e.User] = slices.Insert(list, at, e)
	}
	return nil
}

// compare is below 0 if p is read before o, and above if behind it.
func (p Position) compare(o Position) int {
	switch {
	case p.Before(o):
		return -1
	case o.Before(p):
		return 1
	}
	return 0
}

// Page is that of Store.
func (m *Memory) Page(ctx context.Context, q *Question) (page []Entry, next *Position, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[string]bool)
	for _, e := range m.kept[q.User] {
		if !q.wants(&e) || seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		e.Kept = 0
		if page = append(page, e); len(page) == q.Limit {
			return page, &page[len(page)-1].Position, nil
		}
	}
	return page, nil, nil
}

// Count is that of Store.
func (m *Memory) Count(ctx context.Context, user string) (rows int, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	return len(m.kept[user]), err
}

// Forget is that of Store.
func (m *Memory) Forget(ctx context.Context, user string) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err == nil {
		delete(m.kept, user)
	}
	return err
}
