package limits

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// What is stored does not change: these bytes are in people's Redis.
func TestStoredBytesDoNotChange(t *testing.T) {
	at := int64(1_795_262_400_000)
	s := state{
		events: []event{
			{id: 1, kind: 2, at: at, keep: 1_795_266_000, app: 3, lane: 4, channel: 5, flags: 3},
			{id: 6, kind: 7, at: at + 1, keep: 1_795_266_001, flags: deviceFlag, extra: 8},
			{id: 9, kind: 10, at: at + 2, keep: 1_795_266_002, flags: bookedFlag | 1, extra: 11},
		},
		running:  []span{{dayUnit, 1_795_219_200_000, 1_795_305_600_000}},
		counters: append(binary.LittleEndian.AppendUint32([]byte("rulehash"), 1_795_266_003), 1, 0, 'x'),
	}
	for version, want := range map[byte]string{
		1: "01" + "2e99cc255485918e" + "0046fafda1010000" +
			"0100000000000000" + "02000000" + "00000000" +
			"0600000000000000" + "07000000" + "01000000" +
			"0900000000000000" + "0a000000" + "02000000",
		2: "02" + "634d44d9daf5e93c" + "030001" +
			"03" + "0100000000000000" + "02000000" + "0046fafda101" + "d095016b" + "030004000500" +
			"10" + "0600000000000000" + "07000000" + "0146fafda101" + "d195016b" + "000000000000" + "08000000" +
			"09" + "0900000000000000" + "0a000000" + "0246fafda101" + "d295016b" + "000000000000" + "0b000000" +
			"03" + "00df006b" + "8030026b" +
			"72756c6568617368" + "d395016b" + "0100" + "78",
	} {
		got := s.encode(nil, version)
		if hex.EncodeToString(got) != want {
			t.Errorf("version %d:\n%x\nwant\n%s", version, got, want)
		}
	}
}

// previous is the limiter of the release before, which knows version 1 alone: it
// prunes by its own rule, forgets the oldest and counts what lies ahead.
type previous struct {
	client redis.UniversalClient
	max    int
	window int64
}

func (p *previous) decide(t *testing.T, owner, id, kind string, at int64) (bool, error) {
	t.Helper()
	key := shards.LimiterKey(shards.UserShard(owner), owner)
	for {
		stored := stored(t, p.client, owner)
		var s state
		if len(stored) > 0 {
			if stored[0] != 1 {
				return false, errors.New("unknown version")
			}
			if err := s.decode(stored, 1e9); err != nil {
				t.Fatal(err)
			}
		}
		e, n := event{id: idHash(id), kind: typeHash(kind), at: at}, 0
		for _, x := range s.events {
			if x.id == e.id {
				return true, nil
			}
			if x.at > at-p.window {
				n++
			}
		}
		if n >= p.max {
			return false, nil
		}
		s.events = slices.DeleteFunc(append(s.events, e), func(x event) bool { return x.at <= at-p.window-60_000 })
		old := string(stamp(stored))
		script := `local found = redis.call('GET', KEYS[1]) or ''
if string.sub(found, 1, 9) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1`
		ok, err := p.client.Eval(t.Context(), script, []string{key}, old, s.encode(nil, 1), p.window+60_000).Int()
		if err != nil {
			t.Fatal(err)
		}
		if ok == 1 {
			return true, nil
		}
	}
}

// A rolling update: workers of the previous release beside new ones, then new
// ones of which some write version 2. At no time is more allowed than the limit,
// or less, and nobody stalls who does not have to.
func TestRollingUpdate(t *testing.T) {
	client := shardstest.Start(t)
	rule := perUser(30, time.Hour)
	old := &previous{client, 30, time.Hour.Milliseconds()}
	reader, err := New(client, []Rule{rule})
	if err != nil {
		t.Fatal(err)
	}
	writer := limiter(t, client, rule)
	serial := 0
	allowed := map[string]bool{}
	byLimiter := func(l *Limiter) {
		t.Helper()
		for _, id := range []string{fmt.Sprint("n", serial), "n0"} {
			r := &Request{Owner: "u", ID: id, Type: "x", Channel: "push", At: start.Add(time.Duration(serial) * time.Second), State: stored(t, client, "u")}
			if err := l.Decide(t.Context(), []*Request{r}); err != nil {
				t.Fatal(err)
			}
			if r.Allowed {
				allowed[id] = true
			} else if id == "n0" {
				t.Errorf("%s was allowed before", id)
			}
		}
		serial++
	}
	byPrevious := func() {
		t.Helper()
		ok, err := old.decide(t, "u", fmt.Sprint("n", serial), "x", start.Add(time.Duration(serial)*time.Second).UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			allowed[fmt.Sprint("n", serial)] = true
		}
		serial++
	}
	for range 5 { // the first half of the update
		byPrevious()
		byLimiter(reader)
	}
	if s := stored(t, client, "u"); s[0] != 1 {
		t.Fatalf("version %d while the previous release runs", s[0])
	}
	for range 5 { // the second: the option, worker by worker
		byLimiter(reader)
		byLimiter(writer)
	}
	if s := stored(t, client, "u"); s[0] != 2 {
		t.Fatalf("version %d where version 2 stood", s[0])
	}
	for range 20 {
		byLimiter(writer)
		byLimiter(reader)
	}
	if len(allowed) != 30 {
		t.Errorf("%d allowed, want 30", len(allowed))
	}
	before := stored(t, client, "u")
	if _, err := old.decide(t, "u", "late", "x", start.UnixMilli()); err == nil {
		t.Error("the previous release has read version 2")
	}
	if !slices.Equal(before, stored(t, client, "u")) {
		t.Error("the state was changed")
	}
}

// What version 1 does not say of an event counts as if it fitted.
func TestPlainEventsCountForEveryRule(t *testing.T) {
	s := state{events: []event{{id: idHash("before"), kind: typeHash("x"), at: start.UnixMilli()}}}
	stored := s.encode(nil, 1)
	for _, r := range []Rule{
		{Name: "app", Apps: []string{"shop"}}, {Name: "lane", Lanes: []string{"promo"}}, {Name: "channel", Channels: []string{"push"}},
		{Name: "priority", Priorities: []uint8{1}}, {Name: "each app", PerApp: true}, {Name: "type", Types: []string{"x"}},
	} {
		r.Per, r.Max, r.Window = PerUser, 1, time.Hour
		rules, err := compile([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		j := newJudge(rules)
		if err := j.load(stored, rules[0].longest(), start.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		q := &Request{ID: "new", Type: "x", App: "shop", Lane: "promo", Channel: "push", Priority: 1, At: start}
		if j.answer(q); q.Allowed {
			t.Errorf("%s: allowed", r.Name)
		}
		q.ID = "before"
		if j.answer(q); !q.Allowed {
			t.Errorf("%s: what was allowed is refused", r.Name)
		}
	}
}

// Version 1 carries what the previous release can read, and New says so.
func TestVersion1CarriesItsRulesAlone(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*Rule)
	}{
		{"algorithm", func(r *Rule) { r.Algorithm = SlidingCounter }},
		{"calendar", func(r *Rule) { r.Algorithm, r.Calendar, r.Window = FixedWindow, Day, 0 }},
		{"device", func(r *Rule) { r.Per = PerDeviceType }},
		{"segment", func(r *Rule) { r.Per, r.Segments = PerSegment, []string{"new"} }},
		{"for segments", func(r *Rule) { r.Segments = []string{"new"} }},
		{"by segment", func(r *Rule) { r.SegmentMax = map[string]int{"new": 1} }},
		{"lane", func(r *Rule) { r.Lanes = []string{"promo"} }},
		{"channel", func(r *Rule) { r.Channels = []string{"push"} }},
		{"app", func(r *Rule) { r.Apps = []string{"shop"} }},
		{"per app", func(r *Rule) { r.PerApp = true }},
		{"priority", func(r *Rule) { r.Priorities = []uint8{1} }},
		{"distinct", func(r *Rule) { r.Per, r.Distinct = PerUserType, []string{"x"} }},
		{"defer", func(r *Rule) { r.Over = Defer }},
		{"critical", func(r *Rule) { r.CountCritical = true }},
		{"personal", func(r *Rule) { r.Personal = true }},
	} {
		r := perUser(1, time.Hour)
		c.change(&r)
		if _, err := New(nil, []Rule{r}); err == nil || !strings.Contains(err.Error(), "rule all needs states of version 2") {
			t.Errorf("%s: %v", c.why, err)
		}
		if _, err := New(nil, []Rule{r}, WriteVersion2()); err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	for _, r := range []Rule{perUser(1, time.Hour), {Name: "t", Per: PerUserType, Types: []string{"x"}, Max: 1, Window: time.Hour, Algorithm: SlidingLog, Over: Drop}} {
		if _, err := New(nil, []Rule{r}); err != nil {
			t.Error(err)
		}
	}
}

// A worker whose rules are few and short neither forgets what others need nor
// lets it expire; nor does it touch counters that it does not know.
func TestWritersDoNotEraseEachOther(t *testing.T) {
	client := shardstest.Start(t)
	day := Rule{Name: "day", Per: PerUser, Max: 2, Window: 24 * time.Hour}
	long, short := limiter(t, client, day), limiter(t, client, Rule{Name: "minute", Per: PerUser, Max: 5, Window: time.Minute})
	key := shards.LimiterKey(shards.UserShard("u"), "u")
	decide := func(l *Limiter, id string, after time.Duration) bool {
		t.Helper()
		r := &Request{Owner: "u", ID: id, Type: "x", At: start.Add(after), State: stored(t, client, "u")}
		if err := l.Decide(t.Context(), []*Request{r}); err != nil {
			t.Fatal(err)
		}
		return r.Allowed
	}
	if !decide(long, "a", 0) || !decide(long, "b", 0) {
		t.Fatal("the first two")
	}
	var s state
	if err := s.decode(stored(t, client, "u"), 0); err != nil {
		t.Fatal(err)
	}
	s.counters = binary.LittleEndian.AppendUint32([]byte("newer it"), seconds(start.UnixMilli())+100_000)
	s.counters = append(s.counters, 2, 0, 'h', 'i')
	s.counters = append(binary.LittleEndian.AppendUint32(append(s.counters, "older it"...), seconds(start.UnixMilli())+3600), 0, 0)
	s.running = []span{{9, start.UnixMilli(), start.Add(24 * time.Hour).UnixMilli()}}
	if err := client.Set(t.Context(), key, s.encode(nil, 2), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if !decide(short, "c", 2*time.Hour) {
		t.Fatal("c")
	}
	if ttl, want := client.PTTL(t.Context(), key).Val(), 100_000*time.Second-2*time.Hour; ttl > want || ttl < want-time.Minute {
		t.Errorf("expires in %v, want %v", ttl, want)
	}
	if err := s.decode(stored(t, client, "u"), 0); err != nil {
		t.Fatal(err)
	}
	if len(s.events) != 3 || len(s.running) != 1 || !strings.HasSuffix(string(s.counters), "hi") || strings.Contains(string(s.counters), "older") {
		t.Errorf("left are %+v", s)
	}
	if decide(long, "d", 3*time.Hour) {
		t.Error("three in a day")
	}
	if !decide(short, "d", 25*time.Hour) {
		t.Fatal("d")
	}
	if err := s.decode(stored(t, client, "u"), 0); err != nil || len(s.events) != 1 {
		t.Errorf("a day later %+v, %v", s.events, err)
	}
}

func TestBrokenClockHeals(t *testing.T) {
	at := start.UnixMilli()
	s := state{events: []event{{id: 2, at: at, keep: seconds(at) + 1}, {id: 3, at: at + 1e11, keep: seconds(at + 1e11), flags: bookedFlag}, {id: 1, at: at + 1e12, keep: 4e9}}}
	s.prune(at)
	if !slices.IsSortedFunc(s.events, func(a, b event) int { return cmp.Compare(a.at, b.at) }) {
		t.Errorf("rules look at events in the order of their times, these are %+v", s.events)
	}
	back := state{}
	if err := back.decode(s.encode(nil, 2), 0); err != nil || len(back.events) != 3 {
		t.Fatal(back, err)
	}
	if e := back.events[1]; e.id != 1 || e.at-at != farFuture.Milliseconds() || int64(e.keep)-at/1000 > 64*24*3600 {
		t.Errorf("the event of a broken clock is %+v", e)
	}
	if e := back.events[2]; e.at != at+1e11 {
		t.Errorf("a booking was moved: %+v", e)
	}
}

// An event is kept as long as a worker with a slow clock may ask about it, and
// not a second longer.
func TestEventsAreForgottenInTime(t *testing.T) {
	at := start.UnixMilli() // noon
	for _, c := range []struct {
		rule Rule
		want time.Duration
		why  string
	}{
		{Rule{Window: time.Hour}, time.Hour, "a window that slides"},
		{Rule{Window: 7 * time.Hour, Algorithm: SlidingCounter}, 10 * time.Hour, "the stretch after its own, which began at 8:00"},
		{Rule{Calendar: Day, Algorithm: FixedWindow}, 36 * time.Hour, "until midnight, and a day more"},
		{Rule{Calendar: Hour, Algorithm: EventSet}, 2 * time.Hour, "an hour more"},
		{Rule{Calendar: Minute, Algorithm: EventSet}, 2 * time.Minute, "a minute more"},
	} {
		c.rule.Name, c.rule.Per, c.rule.Max = "x", PerUser, 1
		rules, err := compile([]Rule{c.rule})
		if err != nil {
			t.Fatal(err)
		}
		j := judge{rules: rules, calendar: calendar{zone: time.UTC, days: &days{}}}
		j.apply(&Request{}, &event{}, false)
		e := j.kept(event{at: at})
		if got := time.Duration(int64(e.keep)-at/1000) * time.Second; got != c.want+skew {
			t.Errorf("%s: kept for %v, want %v", c.why, got, c.want+skew)
		}
		if got := time.Duration(rules[0].longest()) * time.Millisecond; got < c.want+skew {
			t.Errorf("%s: at most for %v", c.why, got)
		}
		s := state{events: []event{e}}
		if s.prune(int64(e.keep)*1000 - 1); len(s.events) != 1 {
			t.Errorf("%s: forgotten while it could count", c.why)
		}
		if s.prune(int64(e.keep) * 1000); len(s.events) != 0 {
			t.Errorf("%s: kept when it counts no more", c.why)
		}
	}
}
