package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// crowd is an audience in memory, in the order of slices and users.
type crowd struct {
	mu      sync.Mutex
	members []Member       // guarded by mu; sorted
	reads   int            // guarded by mu
	onRead  func(read int) // called with mu held
	err     error          // guarded by mu
}

func newCrowd(members ...Member) *crowd {
	c := &crowd{members: members}
	c.sort()
	return c
}

// manyUsers are n members.
func manyUsers(n int) []Member {
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{User: fmt.Sprintf("user-%06d", i)}
	}
	return members
}

func (c *crowd) sort() { slices.SortFunc(c.members, compareMembers) }

func compareMembers(a, b Member) int {
	if d := SliceOf(a.User) - SliceOf(b.User); d != 0 {
		return d
	}
	return strings.Compare(a.User, b.User)
}

func (c *crowd) Page(_ context.Context, j *Job, part int, after string, limit int) ([]Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.onRead != nil {
		c.onRead(c.reads)
	}
	if c.err != nil {
		return nil, c.err
	}
	first, end := j.To.Slices(part)
	var page []Member
	for _, m := range c.members {
		slice := SliceOf(m.User)
		if slice >= first && slice < end && (after == "" || compareMembers(m, Member{User: after}) > 0) && len(page) < limit {
			page = append(page, m)
		}
	}
	return page, nil
}

// set changes a member, or adds a new one. The caller holds mu, as onRead does.
func (c *crowd) set(m Member) {
	i := slices.IndexFunc(c.members, func(o Member) bool { return o.User == m.User })
	if i >= 0 {
		c.members[i] = m
		return
	}
	c.members = append(c.members, m)
	c.sort()
}

// ledger is a producer that keeps what is written.
type ledger struct {
	mu      sync.Mutex
	written []Record // guarded by mu
	ack     func(n int, r *Record) error
	hold    bool // guarded by mu; acks wait for release
	waiting []func()
	open    int // guarded by mu; records without an ack
	most    int // guarded by mu; of open
}

func (l *ledger) Produce(records []Record, done func(error)) {
	for i := range records {
		r := records[i]
		r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
		l.mu.Lock()
		var err error
		if l.ack != nil {
			err = l.ack(len(l.written), &r)
		}
		l.written = append(l.written, r)
		l.open++
		l.most = max(l.most, l.open)
		say := func() {
			l.mu.Lock()
			l.open--
			l.mu.Unlock()
			done(err)
		}
		if l.hold {
			l.waiting = append(l.waiting, say)
			l.mu.Unlock()
			continue
		}
		l.mu.Unlock()
		say()
	}
}

// release acknowledges what waits, and reports how much that was.
func (l *ledger) release() int {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, say := range waiting {
		say()
	}
	return len(waiting)
}

// in are the values written to a topic.
func (l *ledger) in(topic string) (values [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.written {
		if r.Topic == topic {
			values = append(values, r.Value)
		}
	}
	return values
}

// receivers are the ids written to the lane, by user, with how often each was.
func (l *ledger) receivers(t *testing.T, topic string) map[string]map[string]int {
	t.Helper()
	by := make(map[string]map[string]int)
	for _, value := range l.in(topic) {
		m := mustDecode(t, value)
		if by[m.UserID] == nil {
			by[m.UserID] = make(map[string]int)
		}
		by[m.UserID][m.ID]++
	}
	return by
}

// laneLag is a lag that tests set.
type laneLag struct {
	mu     sync.Mutex
	lag    int64
	passed int64
	err    error
	asked  int
}

func (l *laneLag) set(lag int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag, l.err = lag, err
}

func (l *laneLag) Lag(context.Context, string) (Backlog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	return Backlog{0: {l.lag, l.passed}}, l.err
}

// world is the stages of a lane over fakes.
type world struct {
	crowd  *crowd
	ledger *ledger
	notes  *Memory
	lag    *laneLag
	limits Limits
	*Emitter
}

func newWorld(members []Member, change ...func(*Limits)) *world {
	w := &world{crowd: newCrowd(members...), ledger: &ledger{}, notes: NewMemory(), lag: &laneLag{},
		limits: Limits{Page: 10, Records: 100, Bytes: 1 << 20, Lag: 1000, Open: 2}}
	for _, c := range change {
		c(&w.limits)
	}
	w.Emitter = NewEmitter("promotional", Options{Audience: w.crowd, Producer: w.ledger, Notes: w.notes, Lag: w.lag, Limits: w.limits,
		Metrics: NewMetrics(nil), Log: slog.New(slog.DiscardHandler)})
	return w
}

// do is the work of one chunk.
func (w *world) do(ctx context.Context, c *Chunk) error {
	return w.Do(ctx, &Work{Topic: ChunksTopic(c.Lane), Value: c.encode()})
}

var errFake = errors.New("fake trouble")

// since is a time around acceptance.
func since(d time.Duration) time.Time { return accepted.Add(d) }
