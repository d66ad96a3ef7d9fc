package clicks

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Memory keeps reports in memory: for tests and trials. It is safe for concurrent use. It
// does as Store does, but forgets nothing by age.
type Memory struct {
	mu    sync.Mutex
	kept  map[string]map[place]Report // guarded by mu; by user
	notes int                         // guarded by mu; calls of Note that did not fail
	err   error                       // guarded by mu; of every call
}

// place is a report's place among those of its user.
type place struct {
	app, id string
	event   Event
}

// NewMemory makes a Memory.
func NewMemory() *Memory { return &Memory{kept: make(map[string]map[place]Report)} }

// Fail makes every call fail with err from now on; nil = none.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Notes is how often something was noted, repeats included.
func (m *Memory) Notes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notes
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

// Note is that of Store.
func (m *Memory) Note(ctx context.Context, r *Report) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	m.notes++
	at := place{r.App, r.ID, r.Event}
	if m.kept[r.User] == nil {
		m.kept[r.User] = make(map[place]Report)
	}
	if former, there := m.kept[r.User][at]; !there || r.stamp() > former.stamp() {
		m.kept[r.User][at] = *r
	}
	return nil
}

// Of is that of Store.
func (m *Memory) Of(ctx context.Context, k Key) (list []Noted, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for at, r := range m.kept[k.User] {
		if at.app == k.App && at.id == k.ID {
			list = append(list, Noted{r.Event, r.At.UTC()})
		}
	}
	slices.SortFunc(list, func(a, b Noted) int { return cmp.Compare(a.Event, b.Event) })
	return list, nil
}

// Counts is that of Store.
func (m *Memory) Counts(ctx context.Context, q *Question) (list []Count, more bool, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	t := tally{q: q}
	for at, r := range m.kept[q.User] {
		if at.app == q.App {
			t.add(r.Event, r.Type, r.Sender, r.Sent)
		}
	}
	return t.list(), t.more, nil
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
