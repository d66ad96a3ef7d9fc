package users

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// repair rebuilds stored values that cannot be read: users and entries of the
// token index. A second follower reads push.users from its start, beside the
// first, which goes on with all other keys. Changes to these keys that it polls
// meanwhile are kept, and applied on top. It belongs to the registry's
// goroutine; only the reading has one of its own.
//
// Until then each of them is one of the shard's open cases, so if a registry
// dies on the way the next one begins again.
type repair struct {
	wanted map[string]lostKey // what is to be rebuilt next, by its Redis key
	keys   map[string]lostKey // what is being rebuilt; empty = nothing
	next   []int64            // per partition: up to where changes are held, or scanned
	held   []change
	cancel context.CancelFunc
	done   chan scanned // the reading's answer; it closes it. nil = there is no reading
}

// lostKey is a value that cannot be read.
type lostKey struct {
	shard int
	kase  string // the open case about it
	build uint64 // of the shard when its repair began
}

// scanned is what a reading of the topic found.
type scanned struct {
	changes []change // of the keys asked for, in order per partition
	err     error
}

// key is the Redis key that a case is about.
func (l *lostKey) key() string {
	name := l.kase[len(record.LostUser):]
	if strings.HasPrefix(l.kase, record.LostToken) {
		return state.TokenKey(name)
	}
	return shards.UserKey(l.shard, name)
}

// ask adds a key to those that are rebuilt next.
func (p *repair) ask(shard int, kind, name string) {
	l := lostKey{shard: shard, kase: kind + name}
	if key := l.key(); !p.has(key) {
		if p.wanted == nil {
			p.wanted = make(map[string]lostKey)
		}
		p.wanted[key] = l
	}
}

// takes reports whether a case is one for the repair, and asks for it.
func (p *repair) takes(shard int, kase string) bool {
	kind, name := record.CutCase(kase)
	if kind != record.LostUser && kind != record.LostToken {
		return false
	}
	p.ask(shard, kind, name)
	return true
}

// has reports whether the value of this key is being rebuilt.
func (p *repair) has(key string) bool {
	_, ok := p.keys[key]
	return ok
}

// wants reports whether a change is about a user, and whether it is about an entry of
// the token index, that is being rebuilt.
func wants(keys map[string]lostKey, c *change) (user, token bool) {
	_, user = keys[shards.UserKey(c.home, c.User)]
	if c.tokenHome >= 0 {
		_, token = keys[state.TokenKey(c.Hash())]
	}
	return user, token
}

// hold keeps the polled changes to the keys; pos is where the poll has ended in each
// partition.
func (p *repair) hold(changes []change, pos []int64) {
	if len(p.keys) == 0 {
		return
	}
	for i := range changes {
		c := &changes[i]
		if c.Offset < p.next[c.Partition] {
			continue // read before: the follower was set back
		}
		if user, token := wants(p.keys, c); user || token {
			p.held = append(p.held, *c)
		}
	}
	for i := range pos {
		p.next[i] = max(p.next[i], pos[i])
	}
}

// take chooses what is rebuilt next: what is wanted of known shards, as much as
// one reading can rebuild. The rest is forgotten: its cases ask again.
func (p *repair) take(states []shardState) {
	p.keys = make(map[string]lostKey)
	for key, l := range p.wanted {
		st := &states[l.shard]
		if st.known && len(p.keys) < maxRepaired {
			l.build = st.Version.Build
			p.keys[key] = l
		}
	}
	p.wanted = nil
}

// stop ends a reading and forgets everything; the cases stay.
func (p *repair) stop() {
	if p.done != nil {
		p.cancel()
		for range p.done {
		}
	}
	*p = repair{}
}

// maxRepaired bounds the values that one reading of the topic rebuilds, as all
// of their changes are in memory. The rest waits for the next one.
const maxRepaired = 100_000

// startRepair begins to rebuild what is wanted, unless a reading is in
// progress.
func (r *Registry) startRepair(ctx context.Context) {
	p := &r.repair
	if len(p.wanted) == 0 || len(p.keys) > 0 || time.Now().Before(r.rescanAt) {
		return
	}
	if p.take(r.shards[:]); len(p.keys) == 0 {
		return
	}
	p.next = slices.Clone(r.pos)
	ctx, p.cancel = context.WithCancel(ctx)
	p.done = make(chan scanned, 1)
	// The reading's own, as this goroutine goes on with its own.
	done, keys, until, follower := p.done, maps.Clone(p.keys), slices.Clone(r.pos), r.topics.Rescan
	go func() {
		defer close(done)
		changes, err := scan(ctx, follower, until, keys)
		done <- scanned{changes, err}
	}()
}

// scan reads the topic from its start up to these offsets, and returns the
// changes of the keys.
func scan(ctx context.Context, f Follower, until []int64, keys map[string]lostKey) ([]change, error) {
	spans, err := f.Spans(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the start of push.users: %w", err)
	}
	if len(spans) != len(until) {
		return nil, fmt.Errorf("%w (it had %d, now %d)", errPartitions, len(until), len(spans))
	}
	pos := make([]int64, len(spans))
	for i := range spans {
		pos[i] = spans[i].Start
	}
	if err := f.Seek(ctx, slices.Clone(pos)); err != nil {
		return nil, fmt.Errorf("seeking in push.users: %w", err)
	}
	var changes []change
	for behind(pos, until) {
		fetched, err := f.Poll(ctx)
		if err != nil {
			return nil, fmt.Errorf("polling push.users: %w", err)
		}
		now := time.Now()
		for i := range fetched {
			run := &fetched[i]
			for j := range run.Records {
				c, _ := readChange(run.Partition, &run.Records[j], now) // said when it was read first
				if c.User == "" || c.Offset >= until[c.Partition] {
					continue
				}
				if user, token := wants(keys, &c); user || token {
					changes = append(changes, c)
				}
			}
			pos[run.Partition] = max(pos[run.Partition], run.Next)
		}
	}
	return changes, nil
}

func behind(pos, until []int64) bool {
	for i := range pos {
		if pos[i] < until[i] {
			return true
		}
	}
	return false
}

// finishRepair writes what was rebuilt, as soon as it is as new as what the
// shards have applied.
func (r *Registry) finishRepair(ctx context.Context) error {
	p := &r.repair
	select {
	case got, ok := <-p.done:
		if !ok {
			break // scanned before, and not written yet
		}
		if got.err != nil {
			// It holds up nobody else. The cases ask again.
			p.stop()
			r.rescanAt = time.Now().Add(r.options.MaxRetryDelay)
			r.metrics.errors.Inc()
			r.logger.Error("registry: reading push.users from its start to rebuild values failed, retrying",
				"error", got.err, "in", r.options.MaxRetryDelay)
			return ctx.Err()
		}
		for i := range p.held {
			p.held[i].late = true
		}
		p.held = append(got.changes, p.held...)
		p.cancel()
	default: // it goes on, or none was begun
		return nil
	}
	if !slices.Equal(p.next, r.pos) {
		return nil // the follower was set back
	}
	writes, err := r.rebuilt(ctx)
	if err != nil {
		return err
	}
	fenced, err := r.write(ctx, writes)
	if err != nil {
		return fmt.Errorf("writing what was rebuilt: %w", err)
	}
	for _, w := range writes {
		if slices.Contains(fenced, w.shard) {
			continue
		}
		r.metrics.repaired.Add(float64(len(w.keys)))
		for _, key := range w.keys {
			delete(p.keys, key)
		}
	}
	if _, err = r.reload(ctx, fenced); err == nil && len(p.keys) == 0 {
		r.logger.Info("registry: values that could not be read are rebuilt")
		p.stop()
	}
	return err
}

// rebuilt makes the writes of the rebuilt values, for shards that have applied no
// more than the repair knows. Values of an earlier build are left out for good.
func (r *Registry) rebuilt(ctx context.Context) ([]*shardWrite, error) {
	p := &r.repair
	users, tokens := map[string]*record.User{}, map[string]record.Claims{}
	by := make(map[int]*shardWrite)
	m := make(map[int]*record.Merging)
	for key, l := range p.keys {
		st := &r.shards[l.shard]
		if st.Version.Build != l.build || !st.known {
			delete(p.keys, key)
			continue
		}
		if behind(r.pos, st.Applied) || by[l.shard] != nil {
			continue
		}
		by[l.shard] = r.offsetsOf(l.shard)
		m[l.shard] = &record.Merging{Open: true, Most: r.options.Devices, Cases: map[string]bool{}, Unread: map[string]bool{}}
	}
	for i := range p.held {
		c := &p.held[i]
		user, token := wants(p.keys, c)
		if of := m[c.home]; user && of != nil {
			if users[c.User] == nil {
				users[c.User] = new(record.User)
			}
			of.Ready = c.late
			of.User(users[c.User], &c.Change)
		}
		if c.tokenHome < 0 {
			continue
		}
		if of := m[c.tokenHome]; token && of != nil {
			of.Ready = c.late
			hash := c.Hash()
			tokens[hash] = of.Token(tokens[hash], &c.Change)
		}
	}
	var writes []*shardWrite
	for s, w := range by {
		w.cases, w.unread = m[s].Cases, m[s].Unread
		old, err := r.client.SMembers(ctx, state.UnreadKey(s)).Result()
		if err != nil {
			return nil, err
		}
		for key, l := range p.keys {
			if l.shard != s {
				continue
			}
			w.cases[l.kase] = false
			u := users[nameIn(key)]
			if u == nil {
				u = new(record.User)
			}
			w.set(key, u, tokens[nameIn(key)], l.build)
			if key[0] == 'u' {
				w.forgetUnread(nameIn(key), u, old)
			}
		}
		writes = append(writes, w)
	}
	return writes, nil
}

// forgetUnread takes the parts of a user out of quarantine that are not in u's.
func (w *shardWrite) forgetUnread(user string, u *record.User, old []string) {
	for _, key := range old {
		of, part, err := record.PartOf(key)
		if err != nil || of != user {
			continue
		}
		if _, aside := u.Aside(part); !aside {
			w.unread[key], w.cases[record.Quarantined+key] = false, true
		}
	}
}
