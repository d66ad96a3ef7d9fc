package users

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Each kind of open case asks for what settles it; what it is about, and cannot
// be read, is rebuilt first, and a case that nobody knows stays.
func TestWhatOpenCasesAskFor(t *testing.T) {
	const build, shard = 7, 3
	d := deviceOf(push.FCM, "tok", 1000)
	user := stored{User: push.User{Devices: []push.Device{d}}}
	record := user.encode(build)
	far := user
	far.Devices = slices.Clone(user.Devices)
	far.Devices[0].RegisteredAt = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) // which JSON does not have
	unread := stored{kept: kept{unread: []unreadPart{{hash: d.Hash, offset: 9}}}}
	key := DeviceKey("ada", d.Hash)
	claimed := claims{{"ada", 1000}, {"bob", 3000}, {"cy", 2000}}
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
	}{
		{why: "a token of three", kase: contested + d.Hash, raw: claimed.encode(build), keys: "ada cy", waits: true},
		{why: "a token of one", kase: contested + d.Hash, raw: claimed[:1].encode(build), waits: true},
		{why: "a token of nobody", kase: contested + d.Hash, waits: true},
		{why: "a token of who knows", kase: contested + d.Hash, raw: garbage, lost: lostToken + d.Hash, waits: true},
		{why: "a device that holds", kase: overtaken + key, raw: record, keys: "ada", waits: true},
		{why: "a device that is not there", kase: overtaken + key, keys: "ada", waits: true},
		{why: "a device of a record that nobody can read", kase: overtaken + key, raw: garbage, lost: lostUser + "ada", waits: true},
		{why: "a device that cannot be written", kase: overtaken + key, raw: far.encode(build), fails: errAny, waits: true},
		{why: "no key", kase: overtaken + "ada", raw: record, fails: errPart, waits: true},
		{why: "a device too many", kase: evicted + "1000:" + key, keys: "ada", closed: evicted + "1000:" + key},
		{why: "a device too many since who knows", kase: evicted + "x:" + key, fails: ErrVersion},
		{why: "a repeated device that nobody claims", kase: stray + "1000:" + key, keys: "ada", closed: stray + "1000:" + key},
		{why: "a repeated device since who knows", kase: stray + "x:" + key, fails: ErrVersion},
		{why: "a part in quarantine", kase: quarantined + key, raw: unread.encode(build), told: "ada="},
		{why: "a part out of quarantine", kase: quarantined + key, raw: record, told: "ada"},
		{why: "a part of nobody in quarantine", kase: quarantined + "ada", raw: record, fails: errPart},
		{why: "a record that can be read", kase: doubted + "ada", raw: record, closed: doubted + "ada"},
		{why: "a record that cannot be read", kase: doubted + "ada", raw: garbage, closed: doubted + "ada", lost: lostUser + "ada"},
		{why: "a case that nobody knows", kase: "x:ada", raw: record, fails: ErrVersion},
		{why: "no case", kase: "x", raw: record, fails: ErrVersion},
	} {
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		st := settling{registry: r, shard: shard, build: build, now: time.UnixMilli(5000), closed: map[string]bool{}}
		err = st.answer(tt.kase, tt.raw)
		if (err == nil) != (tt.fails == nil) || tt.fails != errAny && !errors.Is(err, tt.fails) {
			t.Errorf("%s: %v, want %v", tt.why, err, tt.fails)
		}
		name := func(records []Record) string {
			var names []string
			for _, r := range records {
				user, hash := PartOf(r.Key)
				if hash != d.Hash {
					t.Errorf("%s: record of %q", tt.why, r.Key)
				}
				if r.Value != nil && strings.HasPrefix(tt.kase, quarantined) {
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
			switch holds := tt.why == "a device that holds"; {
			case strings.HasPrefix(tt.kase, contested) && rec.IfNotAfter.UnixMilli() != 3000,
				(strings.HasPrefix(tt.kase, evicted) || strings.HasPrefix(tt.kase, stray)) && (rec.IfNotAfter.UnixMilli() != 1000 || rec.Repeats),
				strings.HasPrefix(tt.kase, overtaken) && !rec.Repeats, (rec.Value != nil) != holds:
				t.Errorf("%s: %+v", tt.why, rec)
			}
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
	states[known] = shardState{known: true, version: version{build: 7}}
	var p repair
	p.ask(unknown, lostUser, "nobody")
	for i := range maxRepaired + 5 {
		p.ask(known, lostUser, strconv.Itoa(i))
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
