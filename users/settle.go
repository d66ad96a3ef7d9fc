package users

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// settle does what the open cases ask for. It waits until the topic was read
// to its end: the answer may be there already.
//
// A token claimed by two users is removed from all but its owner, and what
// holds of a part whose latest record does not count is appended behind that
// one, so that compaction keeps it. These cases are closed when what is
// appended here comes back and is applied: so a crash, or a second registry,
// only does it twice. Both only repeat or limit, so what others append
// meanwhile wins.
func (r *Registry) settle(ctx context.Context) error {
	if !r.caughtUp() {
		return nil
	}
	if !r.looked {
		done, err := r.lookAgain(ctx)
		if err != nil {
			return err
		}
		r.looked = done
	}
	for s := range r.shards {
		if st := &r.shards[s]; !st.known || !st.Open {
			continue
		}
		if err := r.settleShard(ctx, s); err != nil {
			return fmt.Errorf("settling the open cases of shard %d: %w", s, err)
		}
	}
	r.startRepair(ctx)
	return nil
}

// maxSettled bounds the cases of a shard that one check settles, so that the work
// after it does not wait for long.
const maxSettled = 1000

func (r *Registry) settleShard(ctx context.Context, s int) error {
	cases, err := r.client.SMembers(ctx, state.OpenKey(s)).Result()
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c string) bool { return r.repair.takes(s, c) })
	r.shards[s].Open = len(cases) > maxSettled
	if len(cases) == 0 {
		return nil
	}
	st := settling{registry: r, shard: s, build: r.shards[s].Version.Build, now: time.Now(), closed: make(map[string]bool)}
	slices.Sort(cases) // those of the quarantine last: its topic may be away for long
	cases = cases[:min(len(cases), maxSettled)]
	values, err := r.valuesOf(ctx, s, cases)
	if err != nil {
		return err
	}
	if st.users, err = r.claimants(ctx, s, cases, values); err != nil {
		return err
	}
	for i, c := range cases {
		if err := st.answer(c, values[i]); err != nil { // it stays open, and stops no other
			r.metrics.errors.Inc()
			r.logger.Error("registry: cannot resolve an open case", "shard", s, "error", err)
		}
	}
	r.shards[s].Open = r.shards[s].Open || st.waits
	if len(st.records) > 0 {
		if err := r.topics.Log.Append(ctx, st.records); err != nil {
			return err
		}
		r.metrics.settled.Add(float64(len(st.records)))
	}
	if err := r.tell(ctx, &st); err != nil || len(st.closed) == 0 {
		return err
	}
	// Fenced: what has changed meanwhile is looked at again.
	fenced, err := r.write(ctx, []*shardWrite{{shard: s, cases: st.closed}})
	if err != nil {
		return err
	}
	_, err = r.reload(ctx, fenced)
	return err
}

// valuesOf reads what each case is about, in one command; nil = nothing.
func (r *Registry) valuesOf(ctx context.Context, s int, cases []string) ([][]byte, error) {
	keys := make([]string, len(cases))
	for i, c := range cases {
		kind, name := record.CutCase(c)
		switch kind {
		case record.Contested:
			keys[i] = state.TokenKey(name)
		case record.Stray:
			_, key, _ := record.CutDate(name)
			_, part, _ := record.PartOf(key)
			keys[i] = state.TokenKey(part.Hash())
		case record.Doubted:
			keys[i] = shards.UserKey(s, name)
		default: // evicted ones need nothing, and get nothing
			user, _, _ := record.PartOf(name)
			keys[i] = shards.UserKey(s, user)
		}
	}
	answer, err := r.client.MGet(ctx, keys...).Result()
	if err == nil && len(answer) != len(keys) {
		err = errReply
	}
	if err != nil {
		return nil, err
	}
	values := make([][]byte, len(answer))
	for i := range answer {
		values[i] = bytesOf(answer[i])
	}
	return values, nil
}

// settling collects what the cases of one shard require.
type settling struct {
	registry *Registry
	shard    int
	build    uint64
	now      time.Time
	users    map[string]*record.User // claimants of contested tokens
	records  []Record                // for push.users
	told     []Record                // for its quarantine
	closed   map[string]bool         // cases that are done with (false), and new ones (true)
	waits    bool                    // a case is open until a record comes back
}

// answer settles one case; raw is the value that it is about.
func (st *settling) answer(c string, raw []byte) (err error) {
	switch kind, name := record.CutCase(c); kind {
	case record.Contested:
		st.waits = true
		return st.evict(raw, name)
	case record.Overtaken:
		st.waits = true
		return st.repeat(raw, name)
	case record.Evicted:
		removed, err := removal(name)
		if err == nil {
			st.records, st.closed[c] = append(st.records, removed), false
		}
		return err
	case record.Stray:
		return st.unclaimed(raw, c, name)
	case record.Quarantined:
		told, err := st.quarantineRecord(raw, name)
		if err == nil {
			st.told = append(st.told, told)
		}
		return err
	case record.Doubted:
		st.lookAt(raw, name)
		return nil
	}
	return fmt.Errorf("open case: %w", record.ErrVersion)
}

// repeat says what holds of a device; if it cannot be read, after the repair.
func (st *settling) repeat(raw []byte, key string) error {
	user, part, err := record.PartOf(key)
	if err != nil {
		return err
	}
	var u record.User
	if err := u.Decode(raw, st.build); err != nil {
		st.lost(record.LostUser, user, err)
		return nil
	}
	value, err := u.Value(part.Hash())
	switch {
	case errors.Is(err, record.ErrPacked): // push.users has its record
		st.lost(record.LostUser, user, err)
		return nil
	case err != nil:
		return err
	}
	st.records = append(st.records, Record{Key: key, Value: value, Repeats: true})
	return nil
}

// evict removes a token from all but its owner. A former owner who registers
// it once more, and later, keeps it: the removal does not reach that.
func (st *settling) evict(raw []byte, hash string) error {
	cs, err := record.DecodeClaims(raw, st.build)
	if err != nil {
		st.lost(record.LostToken, hash, err)
		return nil
	}
	if len(cs) < 2 {
		return nil // settled
	}
	owner, known := cs.Owner(hash, st.users)
	for _, c := range cs {
		if known && c.User != owner.User { // a later claim than the owner's has no device
			st.records = append(st.records, Record{Key: record.DeviceKey(c.User, hash), IfNotAfter: time.UnixMilli(max(c.At, owner.At))})
		}
	}
	return nil
}

// unclaimed removes a device from a user who does not claim its token, unless the
// user has registered it again since.
func (st *settling) unclaimed(raw []byte, kase, name string) error {
	removed, err := removal(name)
	if err != nil {
		return err
	}
	user, part, err := record.PartOf(removed.Key)
	if err != nil {
		return err
	}
	hash := part.Hash()
	cs, err := record.DecodeClaims(raw, st.build)
	if err != nil {
		st.lost(record.LostToken, hash, err)
		return nil
	}
	st.closed[kase] = false
	if !slices.ContainsFunc(cs, func(c record.Claim) bool { return c.User == user }) {
		st.records = append(st.records, removed)
	}
	return nil
}

// removal makes the record that removes a device as it was registered when its
// case was opened.
func removal(kase string) (Record, error) {
	registered, key, err := record.CutDate(kase)
	return Record{Key: key, IfNotAfter: registered}, err
}

// lookAt looks at a record that a reader could not read.
func (st *settling) lookAt(raw []byte, user string) {
	st.closed[record.Doubted+user] = false
	var u record.User
	if err := u.Decode(raw, st.build); err != nil {
		st.lost(record.LostUser, user, err)
	}
}

// lost makes a value that cannot be read a case for the repair.
func (st *settling) lost(kind, name string, err error) {
	st.registry.logger.Error("registry: a stored record cannot be read and is rebuilt from push.users", "shard", st.shard, "error", err)
	st.closed[kind+name] = true
	st.registry.repair.ask(st.shard, kind, name)
}
