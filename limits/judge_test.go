package limits

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// Rules of devices come first, for each delivery; what finds none left, or is
// refused by the user's rules, spends nothing.
func TestDevicesAreDecidedWithTheirUser(t *testing.T) {
	perDevice := Rule{Name: "device", Per: PerDeviceType, Max: 1, Calendar: Day, Algorithm: EventSet, Personal: true}
	daily := Rule{Name: "daily", Per: PerUser, Max: 2, Calendar: Day, Algorithm: FixedWindow}
	judge := alone(t, perDevice, daily)
	for i, c := range []struct {
		id, kind string
		devices  []uint32
		want     string // answer, and the devices that are refused
		why      string
	}{
		{"a", "promo", []uint32{1, 2}, "ok []", "the first for both"},
		{"a", "promo", []uint32{1, 2}, "ok []", "once more"},
		{"b", "promo", []uint32{1, 3}, "ok [1]", "one has had its promo; the notification still counts once"},
		{"c", "promo", []uint32{1, 2, 3}, "no device [1 2 3]", "nothing left"},
		{"d", "order", []uint32{1}, "no daily []", "two of the user's two: refused ones have spent none"},
		{"b", "promo", []uint32{1, 3}, "ok [1]", "what was allowed stays allowed, and what was refused refused"},
	} {
		r := &Request{Owner: "u", ID: c.id, Type: c.kind, Priority: 3, At: start.Add(time.Duration(i) * time.Second)}
		for _, d := range c.devices {
			r.Devices = append(r.Devices, Device{Hash: d})
		}
		judge(r)
		refused := []uint32{}
		for _, d := range r.Devices {
			if d.Refused {
				refused = append(refused, d.Hash)
			}
			if d.Refused != (d.Rule == "device" && d.Current == 1 && d.Limit == 1) {
				t.Errorf("%s: device %+v", c.id, d)
			}
		}
		if got := fmt.Sprint(words(r), " ", refused); got != c.want {
			t.Errorf("%d, %s: %s, want %s: %s", i, c.id, got, c.want, c.why)
		}
	}
	r := &Request{Owner: "u", ID: "d", Type: "order", Priority: 3, At: start.Add(24 * time.Hour), Devices: []Device{{Hash: 1}}}
	if judge(r); !r.Allowed {
		t.Errorf("the day after: %+v; d had spent nothing of device 1", r.Decision)
	}
}

// A booking whose devices are all refused when it comes due gives its place back.
func TestABookingWithoutDevicesIsGivenBack(t *testing.T) {
	judge := alone(t, Rule{Name: "device", Per: PerDeviceType, Max: 1, Window: 10 * time.Hour},
		Rule{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer})
	ask := func(id, kind string, after time.Duration) string {
		r := &Request{Owner: "u", ID: id, Type: kind, Priority: 3, At: start.Add(after), Devices: []Device{{Hash: 1}}}
		judge(r)
		return words(r)
	}
	got := []string{ask("a", "x", 0), ask("b", "y", 0), ask("c", "y", 0), ask("b", "y", time.Hour), ask("d", "z", 2*time.Hour), ask("c", "y", 2*time.Hour), ask("d", "z", 2*time.Hour)}
	if want := "[ok wait 1h0m0s wait 2h0m0s ok wait 1h0m0s no device ok]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// In a full state there is no room for what critical notifications count, or for
// a device that comes later: they pass, as they would otherwise.
func TestAFullStateRefusesNothingThatPasses(t *testing.T) {
	user := Rule{Name: "each", Per: PerUserType, Max: 1, Window: time.Hour, CountCritical: true}
	device := Rule{Name: "device", Per: PerDeviceType, Max: 1, Window: time.Hour, Types: []string{"first", "otp", "only"}}
	full := func(rules ...Rule) *story {
		s := tell(t, rules...)
		s.ask(Request{ID: "first", Type: "first", Priority: 3, At: start, Devices: []Device{{Hash: 1}}})
		for i := len(s.judge.state.events); i < maxEvents; i++ {
			s.judge.insert(&event{id: uint64(i), kind: uint32(i), at: start.UnixMilli(), keep: seconds(start.UnixMilli()) + 60, flags: 3})
		}
		s.stored = s.judge.state.encode(nil, 2)
		return s
	}
	for _, c := range []struct {
		id, kind string
		priority uint8
		rules    []Rule
		want     string
	}{
		{"new", "new", 4, []Rule{user, device}, "no state_full"},
		{"first", "first", 3, []Rule{user, device}, "ok"},
		{"otp", "otp", critical, []Rule{user, device}, "ok"},
		{"new", "only", 3, []Rule{device}, "no state_full"},
		{"new", "new", 3, []Rule{device}, "ok"},
	} {
		s := full(c.rules...)
		if got := s.ask(Request{ID: c.id, Type: c.kind, Priority: c.priority, At: start, Devices: []Device{{Hash: 1}, {Hash: 2}}}); got != c.want || len(s.judge.state.events) != maxEvents {
			t.Errorf("%s: %s, want %s; %d events", c.id, got, c.want, len(s.judge.state.events))
		}
	}
}

func TestWhoseLimitCounts(t *testing.T) {
	rule := Rule{Name: "promos", Per: PerUserType, Max: 3, Window: time.Hour, Personal: true, SegmentMax: map[string]int{"new": 1, "vip": 5}}
	impersonal := rule
	impersonal.Personal = false
	for _, c := range []struct {
		rule     Rule
		personal []Personal
		segments []string
		want     int
		why      string
	}{
		{rule, nil, nil, 3, "the rule's"},
		{rule, nil, []string{"other", "vip", "new"}, 5, "that of the first segment with one"},
		{rule, []Personal{{Name: "promo", Max: 2}}, []string{"vip"}, 2, "the user's, for the type"},
		{rule, []Personal{{Name: "chat", Max: 2}, {Name: "promos", Max: 4}}, []string{"vip"}, 4, "the user's, for the rule"},
		{rule, []Personal{{Name: "promo", Max: 0}}, nil, 0, "none at all"},
		{rule, []Personal{{Name: "promo", Max: -1}}, nil, 0, "nor fewer"},
		{rule, []Personal{{Name: "promo", Max: 1 << 40}}, nil, maxPerRule, "nor more than can be"},
		{impersonal, []Personal{{Name: "promo", Max: 2}}, nil, 3, "the rule does not ask for it"},
	} {
		rules, err := compile([]Rule{c.rule})
		if err != nil {
			t.Fatal(err)
		}
		if got := rules[0].limit(&Request{Personal: c.personal, Segments: c.segments}, &event{kind: typeHash("promo")}); got != c.want {
			t.Errorf("%d, want %d: %s", got, c.want, c.why)
		}
	}
	perUser := rule
	perUser.Per = PerUser
	rules, _ := compile([]Rule{perUser})
	if got := rules[0].limit(&Request{Personal: []Personal{{Name: "promo", Max: 2}}}, &event{kind: typeHash("promo")}); got != 3 {
		t.Errorf("a limit of a type holds for a rule that counts all: %d", got)
	}
	judge := alone(t, Rule{Name: "promos", Per: PerUserType, Max: 3, Window: time.Hour, Personal: true, Over: Defer})
	r := &Request{ID: "a", Type: "promo", At: start, Personal: []Personal{{Name: "promos", Max: 0}}}
	if judge(r); r.Allowed || r.Deferred || r.RetryAfter != 0 || r.Rule != "promos" {
		t.Errorf("with none at all: %+v", r.Decision)
	}
}

// A rule of segments holds for who is in one, and counts what was kept.
func TestSegments(t *testing.T) {
	judge := alone(t, Rule{Name: "week", Per: PerSegment, Segments: []string{"new"}, Max: 2, Window: 7 * 24 * time.Hour},
		Rule{Name: "hour", Per: PerUser, Max: 9, Window: time.Hour})
	for i, c := range []struct {
		segment, want string
		after         time.Duration
	}{
		{"active", "ok", 0}, {"active", "ok", 0}, {"new", "no week", 0}, {"active", "ok", 0},
		{"new", "ok", 2 * time.Hour}, {"new", "ok", 3 * time.Hour}, {"new", "no week", 100 * time.Hour}, {"", "ok", 100 * time.Hour},
	} {
		r := &Request{ID: fmt.Sprint(i), At: start.Add(c.after), Segments: []string{c.segment}, Priority: 3}
		if judge(r); words(r) != c.want || !r.Allowed && r.Dimension != "segment" {
			t.Errorf("%d in %s: %s, want %s (%+v)", i, c.segment, words(r), c.want, r.Decision)
		}
	}
}

// A notification counts on each of its channels by itself.
func TestChannelsCountByThemselves(t *testing.T) {
	judge := alone(t, Rule{Name: "hour", Per: PerUser, Max: 2, Window: time.Hour})
	for i, c := range []struct{ id, channel, want string }{
		{"a", "push", "ok"}, {"a", "pager", "ok"}, {"a", "push", "ok"}, {"a", "mail", "no hour"}, {"b", "push", "no hour"},
	} {
		r := &Request{ID: c.id, Channel: c.channel, Priority: 3, At: start}
		if judge(r); words(r) != c.want {
			t.Errorf("%d, %s on %s: %s, want %s", i, c.id, c.channel, words(r), c.want)
		}
	}
}

// A decision says how things stand.
func TestADecisionExplainsItself(t *testing.T) {
	noon := start
	for _, c := range []struct {
		rule  Rule
		after []time.Duration
		want  Decision
	}{
		{Rule{Name: "x", Per: PerUser, Max: 2, Window: time.Hour}, []time.Duration{0, 10 * time.Minute, 20 * time.Minute},
			Decision{Dimension: "user", Rule: "x", Current: 2, Limit: 2, RetryAfter: 40 * time.Minute, ResetAt: noon.Add(70 * time.Minute)}},
		{Rule{Name: "x", Per: PerUserType, Max: 2, Window: time.Hour, Over: Defer}, []time.Duration{0, 10 * time.Minute, 20 * time.Minute, 20 * time.Minute, 20 * time.Minute},
			Decision{Deferred: true, Dimension: "user_type", Rule: "x", Current: 2, Limit: 2, RetryAfter: 100 * time.Minute, ResetAt: noon.Add(130 * time.Minute)}},
		{Rule{Name: "x", Per: PerUser, Max: 1, Calendar: Day, Algorithm: FixedWindow}, []time.Duration{0, time.Hour},
			Decision{Dimension: "user", Rule: "x", Current: 1, Limit: 1, RetryAfter: 11 * time.Hour, ResetAt: noon.Add(12 * time.Hour)}},
		{Rule{Name: "x", Per: PerUser, Max: 2, Window: time.Hour, Algorithm: SlidingCounter}, []time.Duration{0, 0, 30 * time.Minute},
			Decision{Dimension: "user", Rule: "x", Current: 2, Limit: 2, RetryAfter: time.Hour, ResetAt: noon.Add(2 * time.Hour)}},
	} {
		judge := alone(t, c.rule)
		var r *Request
		for i, after := range c.after {
			r = &Request{ID: fmt.Sprint(i), At: start.Add(after), Priority: 3}
			judge(r)
		}
		if r.Decision != c.want {
			t.Errorf("%+v:\n%+v, want\n%+v", c.rule, r.Decision, c.want)
		}
	}
}

// How things stand is asked without spending anything.
func TestUsageAndPreview(t *testing.T) {
	l := limiter(t, nil, Rule{Name: "device", Per: PerDeviceType, Max: 1, Calendar: Day, Algorithm: EventSet},
		Rule{Name: "hour", Per: PerUser, Max: 3, Window: time.Hour}, Rule{Name: "promos", Per: PerUser, Types: []string{"promo"}, Max: 1, Window: time.Hour})
	at, h := start.UnixMilli(), time.Hour
	state := encoded(event{id: 1, at: at - 1000, keep: seconds(at) + 9999, kind: typeHash("x")},
		event{id: 1, at: at - 1000, keep: seconds(at) + 9999, kind: typeHash("x"), flags: deviceFlag, extra: 7})
	r := &Request{Owner: "u", ID: "new", Type: "x", At: start, State: state, Devices: []Device{{Hash: 7}, {Hash: 8}}}
	uses, err := l.Usage(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := []Use{{"device_type", "device", 7, 1, 1, false, start.Add(12 * h), start.Add(12 * h)}, {"device_type", "device", 8, 0, 1, true, time.Time{}, start},
		{"user", "hour", 0, 1, 3, true, start.Add(h - time.Second), start}}
	if !slices.Equal(uses, want) {
		t.Errorf("%+v, want %+v", uses, want)
	}
	nobody := limiter(t, nil, Rule{Name: "hour", Per: PerUser, Max: 3, Window: time.Hour, Personal: true})
	none := &Request{Owner: "u", ID: "new", Type: "x", At: start, Personal: []Personal{{Name: "hour", Max: 0}}}
	if uses, err := nobody.Usage(t.Context(), none); err != nil || len(uses) != 1 || uses[0].Room || !uses[0].FreeAt.IsZero() {
		t.Errorf("a limit of none: %+v, %v", uses, err)
	}
	for range 9 {
		if err := l.Preview(t.Context(), r); err != nil || !r.Allowed || !r.Devices[0].Refused || r.Devices[1].Refused {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	r.State = []byte{3}
	if _, err := l.Usage(t.Context(), r); err == nil {
		t.Error("an unknown version was read")
	}
	if err := l.Preview(t.Context(), r); err == nil {
		t.Error("an unknown version was read")
	}
}

// 32 workers at once on 100 users: no user gets more than the limit, or less.
// Each asks its batch three times, every time until it is decided.
func TestWorkersAtOnceAreExact(t *testing.T) {
	client := shardstest.Start(t)
	const limit, workers, users = 5, 32, 100
	rules := []Rule{{Name: "all", Per: PerUser, Max: limit, Window: time.Hour}, {Name: "day", Per: PerUserType, Max: 4, Calendar: Day, Algorithm: EventSet}}
	var mu sync.Mutex
	allowed := map[string]map[string]string{} // by user: id to type
	var wg sync.WaitGroup
	for w := range workers {
		l := limiter(t, client, rules...)
		wg.Go(func() {
			reqs := make([]*Request, users)
			for u := range users {
				reqs[u] = &Request{Owner: fmt.Sprint("u", (u+w)%users), ID: fmt.Sprint(w), Type: []string{"a", "b"}[w%2], At: start}
			}
			for round := range 3 {
				for {
					// Contention is an error, after which the stage repeats.
					err := l.Decide(t.Context(), reqs)
					if err == nil {
						break
					}
					if !strings.Contains(err.Error(), "kept changing") {
						t.Error(err)
						return
					}
				}
				mu.Lock()
				for _, r := range reqs {
					if allowed[r.Owner] == nil {
						allowed[r.Owner] = map[string]string{}
					}
					if _, before := allowed[r.Owner][r.ID]; before && !r.Allowed {
						t.Errorf("round %d: %s of %s was allowed before", round, r.ID, r.Owner)
					}
					if r.Allowed {
						allowed[r.Owner][r.ID] = r.Type
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for u := range users {
		owner := fmt.Sprint("u", u)
		types := map[string]int{}
		for _, kind := range allowed[owner] {
			types[kind]++
		}
		if len(allowed[owner]) != limit || types["a"] > 4 || types["b"] > 4 {
			t.Errorf("%s got %d, %v; want %d", owner, len(allowed[owner]), types, limit)
		}
		var s state
		if err := s.decode(stored(t, client, owner), 0); err != nil || len(s.events) != limit {
			t.Errorf("%s has %d events, %v", owner, len(s.events), err)
		}
	}
}

// The same batch ten times changes nothing, whatever its answers were.
func TestTheSameBatchTenTimes(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, Rule{Name: "hour", Per: PerUser, Max: 2, Window: time.Hour, Over: Defer},
		Rule{Name: "type", Per: PerUserType, Types: []string{"t1"}, Max: 1, Calendar: Day, Algorithm: EventSet},
		Rule{Name: "device", Per: PerDeviceType, Max: 1, Calendar: Day, Algorithm: FixedWindow})
	var reqs []*Request
	for i := range 3000 {
		reqs = append(reqs, &Request{Owner: fmt.Sprint("u", i%300), ID: fmt.Sprint(i), Type: fmt.Sprint("t", i/300%4), Priority: uint8(1 + i%7%4),
			At: start.Add(time.Duration(i) * time.Millisecond), Devices: []Device{{Hash: uint32(i % 2)}, {Hash: 2}}})
	}
	var answers []Decision
	var states []string
	for round := range 10 {
		if err := l.Decide(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		for i, r := range reqs {
			state := ""
			if i < 300 {
				state = string(stored(t, client, r.Owner))
			}
			if round == 0 {
				answers, states = append(answers, r.Decision), append(states, state)
				continue
			}
			if r.Allowed != answers[i].Allowed && answers[i].Allowed {
				t.Fatalf("round %d, %s: %+v, at first %+v", round, r.ID, r.Decision, answers[i])
			}
			if state != states[i] {
				t.Fatalf("round %d changed the state of %s", round, r.Owner)
			}
		}
	}
	kinds := map[string]int{}
	for _, a := range answers {
		kinds[strings.Fields(words(&Request{Decision: a}))[0]]++
	}
	if kinds["ok"] == 0 || kinds["wait"] == 0 || kinds["no"] == 0 {
		t.Errorf("answers are %v", kinds)
	}
}
