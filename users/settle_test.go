package users

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// Each kind of open case asks for what settles it; what it is about, and cannot
// be read, is rebuilt first, and a case that nobody knows stays.
func TestWhatOpenCasesAskFor(t *testing.T) {
	const build, shard = 7, 3
	d := push.Device{Platform: push.FCM, App: "shop", Token: "tok", Hash: push.DeviceHash(push.FCM, "tok"), RegisteredAt: time.UnixMilli(1000).UTC()}
	user := record.User{User: push.User{Devices: []push.Device{d}}}
	packed := user.Encode(build)
	far := user
	far.Devices = slices.Clone(user.Devices)
	far.Devices[0].RegisteredAt = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) // which JSON does not have
	key := record.DeviceKey("ada", d.Hash)
	unread := applied(t, record.Change{Offset: 9}, key, "{")
	claimed := record.Claims{{User: "ada", At: 1000}, {User: "bob", At: 3000}, {User: "cy", At: 2000}}
	garbage := []byte("garbage")
	for _, tt := range []struct {
		why, kase string
		raw       []byte
		keys      string // of the records for push.users
		told      string // of those for the quarantine
		closed    string
		lost      string // opened for the repair
		fails     error
		waits     bool

		lack, unknown string // claimants without the device, and whose records are not known
	}{
		{why: "a token of three", kase: record.Contested + d.Hash, raw: claimed.Encode(build), keys: "ada cy", waits: true},
		{why: "a token of three, the latest without the device", kase: record.Contested + d.Hash, raw: claimed.Encode(build), lack: "bob", keys: "ada bob", waits: true},
		{why: "a token of three, none with the device", kase: record.Contested + d.Hash, raw: claimed.Encode(build), lack: "ada bob cy", keys: "ada bob cy", waits: true},
		{why: "a token of three, the earliest not known", kase: record.Contested + d.Hash, raw: claimed.Encode(build), unknown: "ada", keys: "ada cy", waits: true},
		{why: "a token of three, the latest not known", kase: record.Contested + d.Hash, raw: claimed.Encode(build), unknown: "bob", waits: true},
		{why: "a token of three, who may own it not known", kase: record.Contested + d.Hash, raw: claimed.Encode(build), lack: "bob", unknown: "cy", waits: true},
		{why: "a token of one", kase: record.Contested + d.Hash, raw: claimed[:1].Encode(build), waits: true},
		{why: "a token of one, without the device", kase: record.Contested + d.Hash, raw: claimed[:1].Encode(build), lack: "ada", waits: true},
		{why: "a token of nobody", kase: record.Contested + d.Hash, waits: true},
		{why: "a token of who knows", kase: record.Contested + d.Hash, raw: garbage, lost: record.LostToken + d.Hash, waits: true},
		{why: "a device that holds", kase: record.Overtaken + key, raw: packed, keys: "ada", waits: true},
		{why: "a device that is not there", kase: record.Overtaken + key, keys: "ada", waits: true},
		{why: "a device of a record that nobody can read", kase: record.Overtaken + key, raw: garbage, lost: record.LostUser + "ada", waits: true},
		{why: "a device that cannot be written", kase: record.Overtaken + key, raw: far.Encode(build), fails: errAny, waits: true},
		{why: "no key", kase: record.Overtaken + "ada", raw: packed, fails: errAny, waits: true},
		{why: "a device too many", kase: record.Evicted + "1000:" + key, keys: "ada", closed: record.Evicted + "1000:" + key},
		{why: "a device too many since who knows", kase: record.Evicted + "x:" + key, fails: record.ErrVersion},
		{why: "a repeated device that nobody claims", kase: record.Stray + "1000:" + key, keys: "ada", closed: record.Stray + "1000:" + key},
		{why: "a repeated device that somebody else claims", kase: record.Stray + "1000:" + key, raw: claimed[1:].Encode(build), keys: "ada", closed: record.Stray + "1000:" + key},
		{why: "a repeated device that its user claims again", kase: record.Stray + "1000:" + key, raw: claimed.Encode(build), closed: record.Stray + "1000:" + key},
		{why: "a repeated device whose claims nobody can read", kase: record.Stray + "1000:" + key, raw: garbage, lost: record.LostToken + d.Hash},
		{why: "a repeated device without a key", kase: record.Stray + "1000:ada", fails: errAny},
		{why: "a repeated device since who knows", kase: record.Stray + "x:" + key, fails: record.ErrVersion},
		{why: "a part in quarantine", kase: record.Quarantined + key, raw: unread.Encode(build), told: "ada="},
		{why: "a part out of quarantine", kase: record.Quarantined + key, raw: packed, told: "ada"},
		{why: "a part of nobody in quarantine", kase: record.Quarantined + "ada", raw: packed, fails: errAny},
		{why: "a record that can be read", kase: record.Doubted + "ada", raw: packed, closed: record.Doubted + "ada"},
		{why: "a record that cannot be read", kase: record.Doubted + "ada", raw: garbage, closed: record.Doubted + "ada", lost: record.LostUser + "ada"},
		{why: "a case that nobody knows", kase: "x:ada", raw: packed, fails: record.ErrVersion},
		{why: "no case", kase: "x", raw: packed, fails: record.ErrVersion},
	} {
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		st := settling{registry: r, shard: shard, build: build, now: time.UnixMilli(5000), closed: map[string]bool{}}
		st.users = map[string]*record.User{"ada": &user, "bob": &user, "cy": &user}
		for _, name := range strings.Fields(tt.lack) {
			st.users[name] = new(record.User)
		}
		for _, name := range strings.Fields(tt.unknown) {
			delete(st.users, name)
		}
		err = st.answer(tt.kase, tt.raw)
		if (err == nil) != (tt.fails == nil) || tt.fails != errAny && !errors.Is(err, tt.fails) {
			t.Errorf("%s: %v, want %v", tt.why, err, tt.fails)
		}
		name := func(records []Record) string {
			var names []string
			for _, r := range records {
				user, part, _ := record.PartOf(r.Key)
				if part.Hash() != d.Hash {
					t.Errorf("%s: record of %q", tt.why, r.Key)
				}
				if r.Value != nil && strings.HasPrefix(tt.kase, record.Quarantined) {
					user += "="
				}
				names = append(names, user)
			}
			return strings.Join(names, " ")
		}
		var closed, lost []string
		for kase, open := range st.closed {
			if open {
				lost = append(lost, kase)
			} else {
				closed = append(closed, kase)
			}
		}
		if name(st.records) != tt.keys || name(st.told) != tt.told || strings.Join(closed, " ") != tt.closed || strings.Join(lost, " ") != tt.lost || st.waits != tt.waits {
			t.Errorf("%s: appends for %q, tells %q, closes %q, asks for %q, waits %v", tt.why, name(st.records), name(st.told), closed, lost, st.waits)
		}
		if asked := len(r.repair.wanted) > 0; asked != (tt.lost != "") {
			t.Errorf("%s: asks for a repair: %v", tt.why, asked)
		}
		for _, rec := range st.records {
			// Who has no device loses the claim, whoever has it all that is not later.
			upTo := int64(3000)
			switch user, _, _ := record.PartOf(rec.Key); {
			case strings.Contains(tt.lack, "cy") && user != "bob":
				upTo = map[string]int64{"ada": 1000, "cy": 2000}[user]
			case tt.lack == "bob" && user == "ada":
				upTo = 2000
			}
			switch holds := tt.why == "a device that holds"; {
			case strings.HasPrefix(tt.kase, record.Contested) && rec.IfNotAfter.UnixMilli() != upTo,
				(strings.HasPrefix(tt.kase, record.Evicted) || strings.HasPrefix(tt.kase, record.Stray)) && (rec.IfNotAfter.UnixMilli() != 1000 || rec.Repeats),
				strings.HasPrefix(tt.kase, record.Overtaken) && !rec.Repeats, (rec.Value != nil) != holds:
				t.Errorf("%s: %+v", tt.why, rec)
			}
		}
	}
}

// applied is a user of whom push.users has this record alone, readable or not.
func applied(t *testing.T, c record.Change, key, value string) *record.User {
	t.Helper()
	_ = c.Read(key, []byte(value), time.Now())
	u := new(record.User)
	m := record.Merging{Ready: true, Most: DefaultRegistryOptions().Devices, Cases: map[string]bool{}, Unread: map[string]bool{}}
	m.User(u, &c)
	if u.Empty() {
		t.Fatalf("nothing is kept of %q", key)
	}
	return u
}

// appended is a topic that only takes.
type appended []Record

func (a *appended) Append(_ context.Context, records []Record) error {
	*a = append(*a, records...)
	return nil
}

// A case that waits for its record writes nothing in Redis until then: each write fences
// the other registries.
func TestACaseThatWaitsWritesNothing(t *testing.T) {
	version := state.Version{Build: 7, Write: 1}
	for _, tt := range []struct {
		why, kase string
		records   int
		writes    bool
	}{
		{"what holds of a device is said again", record.Overtaken + record.DeviceKey("ada", push.DeviceHash(push.FCM, "tok")), 1, false},
		{"a doubt about who is not there is over", record.Doubted + "ada", 0, true},
	} {
		l := looksAgain(t, version, nil)
		var topic appended
		l.topics.Log = &topic
		if err := l.client.SAdd(t.Context(), state.OpenKey(l.shard), tt.kase).Err(); err != nil {
			t.Fatal(err)
		}
		if err := l.settleShard(t.Context(), l.shard); err != nil {
			t.Fatalf("%s: %v", tt.why, err)
		}
		now := l.client.HGet(t.Context(), shards.OffsetsKey(l.shard), "v").Val()
		open := l.client.SCard(t.Context(), state.OpenKey(l.shard)).Val()
		if (now != version.String()) != tt.writes || (open == 0) != tt.writes || len(topic) != tt.records {
			t.Errorf("%s: %d records; the shard is of write %s, was %s, with %d open cases", tt.why, len(topic), now, version, open)
		}
	}
}

// errAny stands for an error without a name.
var errAny = errors.New("any")

// One reading rebuilds a bounded number of values, and none of a shard that
// somebody else begins anew.
func TestAReadingRebuildsSoMuch(t *testing.T) {
	states := make([]shardState, shards.Users)
	const known, unknown = 3, 4
	states[known] = shardState{known: true, Shard: state.Shard{Version: state.Version{Build: 7}}}
	var p repair
	p.ask(unknown, record.LostUser, "nobody")
	for i := range maxRepaired + 5 {
		p.ask(known, record.LostUser, strconv.Itoa(i))
	}
	p.take(states)
	if len(p.keys) != maxRepaired || p.wanted != nil {
		t.Errorf("%d values are rebuilt and %d wanted, want %d and none", len(p.keys), len(p.wanted), maxRepaired)
	}
	for key, l := range p.keys {
		if l.shard != known || l.build != 7 {
			t.Fatalf("%s: %+v", key, l)
		}
	}
}
