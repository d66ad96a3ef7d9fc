package audiences

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
)

// Memory keeps members in memory: for tests and trials. It is safe for concurrent use, and
// does as Store does.
type Memory struct {
	now func() time.Time

	mu   sync.Mutex
	rows map[key]row // guarded by mu; also of those who were erased
	err  error       // guarded by mu; of every call
}

type key struct{ app, user string }

// row is what was written last.
type row struct {
	since   time.Time
	written int64 // as WRITETIME
	erased  int64 // when it was removed last; 0 = never
}

func (r row) there() bool { return r.written > r.erased }

// NewMemory makes a Memory. now nil = time.Now.
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{now: now, rows: make(map[key]row)}
}

// Fail makes every call fail with err from now on; nil = none.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// begin locks, and says whether the call is to fail; the caller unlocks.
func (m *Memory) begin(ctx context.Context) error {
	m.mu.Lock()
	return cmp.Or(m.err, ctx.Err())
}

// Check is that of Store.
func (m *Memory) Check(ctx context.Context) error {
	defer m.mu.Unlock()
	return m.begin(ctx)
}

// Add is that of Store.
func (m *Memory) Add(ctx context.Context, uses []Use) (added int, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	for i := range uses {
		u := &uses[i]
		if err := checkNames(u.App, u.User); err != nil {
			return added, err
		}
		k := key{u.App, u.User}
		r := m.rows[k]
		if r.there() {
			continue
		}
		now := m.now()
		added++
		if written := u.written(now); written > r.written {
			r.since, r.written = now.UTC().Truncate(time.Millisecond), written
		}
		m.rows[k] = r
	}
	return added, nil
}

// Since is that of Store.
func (m *Memory) Since(ctx context.Context, app, user string) (since time.Time, there bool, err error) {
	err = m.begin(ctx)
	defer m.mu.Unlock()
	if err = cmp.Or(err, checkNames(app, user)); err != nil {
		return time.Time{}, false, err
	}
	if r := m.rows[key{app, user}]; r.there() {
		return r.since, true, nil
	}
	return time.Time{}, false, nil
}

// Page is that of Store.
func (m *Memory) Page(ctx context.Context, app string, first, end int, after string, limit int) ([]Member, error) {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	if err = cmp.Or(err, checkPage(first, end, limit, fanout.Slices)); err != nil {
		return nil, err
	}
	if at := fanout.SliceOf(after); after != "" && (at < first || at >= end) {
		return nil, errors.New("audiences: a page behind a user of other slices")
	}
	var page []Member
	for k, r := range m.rows {
		at := fanout.SliceOf(k.user)
		if k.app == app && r.there() && at >= first && at < end && (after == "" || inOrder(k.user, after) > 0) {
			page = append(page, Member{k.user, r.since})
		}
	}
	slices.SortFunc(page, func(a, b Member) int { return inOrder(a.User, b.User) })
	return page[:min(limit, len(page))], nil
}

// inOrder compares users as they lie in slices.
func inOrder(a, b string) int {
	return cmp.Or(cmp.Compare(fanout.SliceOf(a), fanout.SliceOf(b)), cmp.Compare(a, b))
}

// Count is that of Store.
func (m *Memory) Count(ctx context.Context, user string, apps []string) (rows int, err error) {
	for _, app := range apps {
		_, there, err := m.Since(ctx, app, user)
		if err != nil {
			return rows, err
		}
		if there {
			rows++
		}
	}
	return rows, nil
}

// Forget is that of Store.
func (m *Memory) Forget(ctx context.Context, user string, apps []string) error {
	err := m.begin(ctx)
	defer m.mu.Unlock()
	for _, app := range apps {
		if err = cmp.Or(err, checkNames(app, user)); err != nil {
			return err
		}
		k := key{app, user}
		r := m.rows[k]
		r.erased = max(m.now().UnixMicro(), r.written)
		m.rows[k] = r
	}
	return err
}
