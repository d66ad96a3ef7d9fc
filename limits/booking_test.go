package limits

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask is one request in a story about one user, and its answer in words:
// "ok", "wait 1h0m0s", "no" or "no RULE".
type ask struct {
	at       time.Duration
	id       string
	priority uint8
	want     string
	why      string
}

func words(r *Request) string {
	switch {
	case r.Allowed:
		return "ok"
	case r.Deferred:
		return "wait " + r.RetryAfter.String()
	case r.Rule != "":
		return "no " + r.Rule
	}
	return "no"
}

// alone judges requests one by one, the state packed in between.
func alone(t *testing.T, rules ...Rule) func(r *Request) {
	t.Helper()
	compiled, err := compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	var stored []byte
	j := newJudge(compiled)
	return func(r *Request) {
		t.Helper()
		if err := j.load(stored, 0, r.At.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		if j.answer(r); j.changed {
			stored = j.state.encode(nil, 2)
		}
	}
}

func TestBookings(t *testing.T) {
	hourly := Rule{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer}
	two := hourly
	two.Max = 2
	daily := Rule{Name: "daily", Per: PerUser, Max: 2, Window: 24 * time.Hour}
	counts := hourly
	counts.CountCritical = true
	const h, m, s = time.Hour, time.Minute, time.Second
	for _, c := range []struct {
		why   string
		rules []Rule
		asks  []ask
	}{
		{"each waits for a place of its own", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""}, {0, "c", 3, "wait 2h0m0s", ""},
			{30 * m, "b", 3, "wait 30m0s", "still the same place"},
			{h, "d", 3, "wait 2h0m0s", "b's place is not for others"},
			{h + 20*s, "b", 3, "ok", "it is due"},
			{h + 25*s, "b", 3, "ok", "and counted once"},
			{2 * h, "c", 3, "ok", "b counts at its place: its delay takes nothing from c"},
		}},
		{"a rule that drops wins", []Rule{hourly, {Name: "three", Per: PerUser, Max: 1, Window: time.Minute}}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "no three", ""}, {2 * m, "b", 3, "wait 58m0s", "it has room again"},
		}},
		{"a place is one that all rules have room for", []Rule{hourly, daily}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""},
			{0, "c", 3, "no daily", "two of the day's two: it drops"},
		}},
		{"a higher priority takes the place", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "low", 1, "wait 1h0m0s", ""}, {0, "high", 4, "wait 1h0m0s", ""},
			{h, "low", 1, "wait 1h0m0s", "it was moved"},
			{h + s, "high", 4, "ok", ""}, {2 * h, "low", 1, "ok", ""},
		}},
		{"also when it does not have to wait", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "low", 1, "wait 1h0m0s", ""}, {h + s, "high", 4, "ok", ""},
			{h + 2*s, "low", 1, "wait 59m59s", ""}, {2*h + s, "low", 1, "ok", ""},
		}},
		{"an equal one does not", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""}, {h + s, "c", 3, "wait 59m59s", ""}, {h + 2*s, "b", 3, "ok", ""},
		}},
		{"critical passes and does not count", []Rule{hourly}, []ask{
			{0, "c1", 5, "ok", ""}, {0, "c2", 5, "ok", ""}, {0, "a", 3, "ok", ""}, {0, "c3", 5, "ok", ""}, {h, "b", 3, "ok", ""},
		}},
		{"or counts and passes", []Rule{counts}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""}, {30 * m, "c", 5, "ok", ""},
			{h, "b", 3, "wait 30m0s", "the critical one has moved it"}, {90 * m, "b", 3, "ok", ""},
		}},
		{"late by minutes, it pushes those behind it", []Rule{two}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "ok", ""}, {0, "c", 3, "wait 1h0m0s", ""}, {0, "d", 3, "wait 1h0m0s", ""},
			{0, "e", 3, "wait 2h0m0s", ""}, {0, "f", 3, "wait 2h0m0s", ""},
			{h + 5*m, "c", 3, "ok", "late, and before those of later places"},
			{h + 5*m, "d", 3, "ok", ""},
			{2 * h, "e", 3, "wait 5m0s", "an hour after c and d"},
			{2*h + 5*m, "e", 3, "ok", ""}, {2*h + 5*m, "f", 3, "ok", ""},
		}},
		{"a jitter and the way back are no delay", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""}, {0, "c", 3, "wait 2h0m0s", ""},
			{h + 2*m, "b", 3, "ok", "it counts at its place"}, {2 * h, "c", 3, "ok", ""},
		}},
		{"later than that it is one", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""}, {0, "c", 3, "wait 2h0m0s", ""},
			{h + 2*m + s, "b", 3, "ok", "it counts now"}, {2 * h, "c", 3, "wait 2m1s", ""},
		}},
		{"later than ten minutes it has no place", []Rule{hourly}, []ask{
			{0, "a", 3, "ok", ""}, {0, "b", 3, "wait 1h0m0s", ""}, {h + 11*m, "c", 3, "ok", ""}, {h + 12*m, "b", 3, "wait 59m0s", ""},
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			judge := alone(t, c.rules...)
			for i, a := range c.asks {
				r := &Request{Owner: "u", ID: a.id, Type: "x", Priority: a.priority, At: start.Add(a.at)}
				if judge(r); words(r) != a.want {
					t.Errorf("%d, %s after %v: %s, want %s: %s", i, a.id, a.at, words(r), a.want, a.why)
				}
			}
		})
	}
}

// Whom a place comes too late for is refused at once. Jitter makes no place one that
// comes too late: half of what is left until the expiry is the most.
func TestExpiryBeforeThePlace(t *testing.T) {
	judge := alone(t, Rule{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer})
	for _, c := range []struct {
		id              string
		expires, jitter time.Duration
		want            string
	}{
		{"a", time.Minute, 0, "ok"},
		{"b", time.Hour - time.Millisecond, 0, "no hourly"},
		{"c", time.Hour - time.Millisecond, time.Second, "no hourly"},
		{"d", time.Hour, time.Second, "wait 1h0m0s"},
		{"e", 2*time.Hour - time.Millisecond, 0, "no hourly"},
		{"f", 2*time.Hour + 20*time.Second, time.Minute, "wait 2h0m10s"},
		{"g", 3*time.Hour + 2*time.Second, time.Second, "wait 3h0m1s"},
		{"h", 4*time.Hour + 3*time.Second, time.Second, "wait 4h0m1s"},
	} {
		r := &Request{Owner: "u", ID: c.id, Priority: 3, At: start, Expires: start.Add(c.expires), Jitter: c.jitter}
		if judge(r); words(r) != c.want {
			t.Errorf("%s: %s, want %s", c.id, words(r), c.want)
		}
	}
	early := &Request{Owner: "u", ID: "f", Priority: 3, At: start.Add(time.Hour), Expires: start.Add(2*time.Hour + 20*time.Second), Jitter: time.Minute}
	if judge(early); words(early) != "wait 1h0m10s" {
		t.Errorf("f before its place: %s", words(early))
	}
}

// 10,000 wait for one user: a bounded number has places, of the highest priority
// and then the youngest, and asking again changes nothing.
func TestBookingsAreBounded(t *testing.T) {
	rules, err := compile([]Rule{{Name: "hourly", Per: PerUser, Max: 2, Window: time.Hour, Over: Defer}})
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(rules)
	var reqs []*Request
	for i := range 10_000 {
		reqs = append(reqs, &Request{Owner: "u", ID: fmt.Sprint(i), Priority: uint8(2 + i%2), At: start, Since: start.Add(time.Duration(i) * time.Second)})
	}
	var first []byte
	for round := range 10 {
		if err := j.load(first, 0, start.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs {
			if j.answer(r); !r.Allowed && !r.Deferred {
				t.Fatalf("%s: %+v", r.ID, r.Decision)
			}
		}
		stored := j.state.encode(nil, 2)
		if round == 0 {
			first = slices.Clone(stored)
		} else if !slices.Equal(first, stored) {
			t.Fatalf("round %d changed the state", round)
		}
	}
	booked := 0
	for _, e := range j.state.events {
		if e.booked() {
			booked++
			if e.priority() != 3 || int64(e.extra) < start.Unix()+10_000-2*maxWaiting {
				t.Errorf("booked %+v", e)
			}
		}
	}
	if booked != maxWaiting || len(j.state.events) != maxWaiting+2 {
		t.Errorf("%d booked of %d events, want %d", booked, len(j.state.events), maxWaiting)
	}
}

// A booking that cannot be sent any more gives its place back.
func TestABookingIsGivenBack(t *testing.T) {
	rule := Rule{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer, Personal: true}
	const h, m = time.Hour, time.Minute
	for _, c := range []struct {
		why  string
		asks []Request
		want string
	}{
		{"moved beyond its expiry", []Request{{ID: "a", At: start}, {ID: "b", At: start, Expires: start.Add(2 * h)},
			{ID: "high", At: start.Add(h + 7*m), Priority: 4}, {ID: "b", At: start.Add(h + 8*m), Expires: start.Add(2 * h)},
			{ID: "c", At: start.Add(2*h + 7*m)}}, "[ok wait 1h0m0s ok no hourly ok]"},
		{"the user wants none any more", []Request{{ID: "a", At: start}, {ID: "b", At: start},
			{ID: "b", At: start.Add(h + 5*m), Personal: []Personal{{Name: "hourly", Max: 0}}}, {ID: "c", At: start.Add(h + 6*m)}},
			"[ok wait 1h0m0s no hourly ok]"},
		{"none any more, and it asks in time", []Request{{ID: "a", At: start}, {ID: "b", At: start},
			{ID: "b", At: start.Add(h), Personal: []Personal{{Name: "hourly", Max: 0}}}, {ID: "c", At: start.Add(h + m)}},
			"[ok wait 1h0m0s no hourly ok]"},
	} {
		judge := alone(t, rule)
		var got []string
		for _, r := range c.asks {
			r.Owner, r.Priority = "u", max(r.Priority, 3)
			judge(&r)
			got = append(got, words(&r))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.why, got, c.want)
		}
	}
}

// Rules that were changed while bookings stand hold for these too: who comes for
// a place that is none any more gets another one.
func TestBookingsOutliveTheirRules(t *testing.T) {
	const h, m = time.Hour, time.Minute
	rule := func(most int, over Over) Rule {
		return Rule{Name: "hourly", Per: PerUser, Max: most, Window: h, Over: over}
	}
	for _, c := range []struct {
		why   string
		rules []Rule
		want  string // of b and c, both booked for an hour after a: at that time, and another hour later
	}{
		{"the same", []Rule{rule(2, Defer)}, "[ok ok ok ok]"},
		{"fewer", []Rule{rule(1, Defer)}, "[wait 59m0s ok ok wait 59m0s]"},
		{"fewer, and the others are dropped", []Rule{rule(1, Drop)}, "[no hourly ok ok no hourly]"},
		{"about something else", []Rule{{Name: "other", Per: PerUser, Types: []string{"x"}, Max: 1, Window: h}}, "[ok ok ok ok]"},
	} {
		before, after := newJudge(mustCompile(t, rule(2, Defer))), newJudge(mustCompile(t, c.rules...))
		var stored []byte
		ask := func(j *judge, id string, at time.Time) string {
			if err := j.load(stored, 0, at.UnixMilli()); err != nil {
				t.Fatal(err)
			}
			r := &Request{Owner: "u", ID: id, Priority: 3, At: at}
			if j.answer(r); j.changed {
				stored = j.state.encode(nil, 2)
			}
			return words(r)
		}
		for _, id := range []string{"a1", "a2"} {
			ask(&before, id, start)
		}
		for _, id := range []string{"b", "c"} {
			if got := ask(&before, id, start); got != "wait 1h0m0s" {
				t.Fatalf("%s is booked: %s", id, got)
			}
		}
		var got []string
		for _, at := range []time.Time{start.Add(h + m), start.Add(2*h + m)} {
			got = append(got, ask(&after, "b", at), ask(&after, "c", at))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.why, got, c.want)
		}
	}
}

func mustCompile(t *testing.T, rules ...Rule) []rule {
	t.Helper()
	compiled, err := compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// With nothing but bookings in the state, the one that goes may be the first.
func TestTheFirstBookingGoes(t *testing.T) {
	rules, err := compile([]Rule{{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer, Personal: true}})
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(rules)
	for i := range maxWaiting {
		at := start.Add(time.Duration(i)*time.Hour + time.Minute)
		j.insert(&event{id: uint64(i), at: at.UnixMilli(), keep: seconds(at.UnixMilli()) + 600, flags: bookedFlag | 3, extra: uint32(i)})
	}
	r := &Request{ID: "new", Priority: 3, At: start}
	if j.answer(r); words(r) != "ok" || len(j.state.events) != maxWaiting || j.state.events[0].id == 0 {
		t.Errorf("%s, %d events, the first %+v", words(r), len(j.state.events), j.state.events[0])
	}
	for _, c := range []struct {
		id, want string
		since    time.Time
		events   int
		why      string
	}{
		{"old", "wait 128h1m0s", time.Unix(2, 0), maxWaiting + 1, "the last place"},
		{"older", "wait 129h1m0s", time.Unix(1, 0), maxWaiting + 1, "it has no place: it asks anew when the last is past"},
		{"young", "wait 1h0m0s", time.Time{}, maxWaiting + 1, "the place of the oldest"},
	} {
		r := &Request{ID: c.id, Priority: 3, At: start, Since: c.since}
		if j.answer(r); words(r) != c.want || len(j.state.events) != c.events {
			t.Errorf("%s: %s, %d events, want %s: %s", c.id, words(r), len(j.state.events), c.want, c.why)
		}
	}
	if e := j.state.events[j.find(&event{id: idHash("young"), channel: shortHash("")})]; int64(e.extra) != start.Unix() || !e.booked() {
		t.Errorf("without a time it waits since now: %+v", e)
	}
	before := slices.Clone(j.state.events)
	j.changed = false
	for why, r := range map[string]*Request{
		"a place too late":                 {ID: "late", Priority: 4, At: start, Expires: start.Add(time.Hour - 1)},
		"a limit of one's own: no place":   {ID: "none", Priority: 3, At: start, Personal: []Personal{{Name: "hourly", Max: 0}}},
		"and one that came first, by that": {ID: "none", Priority: 3, At: start, Since: time.Unix(1, 0), Personal: []Personal{{Name: "hourly", Max: 0}}},
	} {
		if j.answer(r); words(r) != "no hourly" || !slices.Equal(j.state.events, before) || j.changed {
			t.Errorf("%s: %s, %d events, changed %v: it takes nobody's place", why, words(r), len(j.state.events), j.changed)
		}
	}
}

// Each of the rules that a notification is about has a bounded number of bookings, also
// where one has them in common with others.
func TestBookingsOfRulesThatOverlapAreBounded(t *testing.T) {
	hourly := Rule{Per: PerUser, Max: 1, Window: time.Hour, Over: Defer}
	rules := []Rule{hourly, hourly, hourly}
	for i, types := range [][]string{{"a", "b"}, {"b", "c"}, {"b", "d"}} {
		rules[i].Name, rules[i].Types = types[0]+types[1], types
	}
	compiled, err := compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	j, asked := newJudge(compiled), 0
	for _, kind := range []string{"a", "c", "d", "b", "c", "b", "a"} {
		for range 200 {
			asked++
			r := &Request{ID: fmt.Sprint(asked), Type: kind, Priority: 3, At: start, Since: start.Add(time.Duration(asked) * time.Second)}
			if j.answer(r); !r.Allowed && !r.Deferred {
				t.Fatalf("%s of type %s: %s", r.ID, kind, words(r))
			}
		}
		for i := range compiled {
			booked := 0
			for k := range j.state.events {
				if e := &j.state.events[k]; e.booked() && compiled[i].covers(e) {
					booked++
				}
			}
			if booked > maxWaiting {
				t.Errorf("after %d, the last of type %s: %d bookings of rule %s", asked, kind, booked, compiled[i].name)
			}
		}
	}
}

// What a batch of different priorities ends with does not depend on their order,
// and at no moment is there more than the limit.
func TestPlacesGoByPriority(t *testing.T) {
	judge := alone(t, Rule{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer})
	order := []uint8{1, 3, 2, 4, 1, 4, 2, 3}
	ask := func(i int, at time.Duration) string {
		r := &Request{Owner: "u", ID: fmt.Sprint("n", i), Priority: order[i], At: start.Add(at)}
		judge(r)
		return words(r)
	}
	judge(&Request{Owner: "u", ID: "first", Priority: 3, At: start})
	for i := range order {
		ask(i, 0)
	}
	var sent []uint8
	for hour := 1; hour <= len(order); hour++ {
		for i := range order {
			if slices.Contains(sent, 10*order[i]+uint8(i)) {
				continue
			}
			if got := ask(i, time.Duration(hour)*time.Hour); got == "ok" {
				sent = append(sent, 10*order[i]+uint8(i))
			} else if !strings.HasPrefix(got, "wait") {
				t.Fatalf("hour %d: %s", hour, got)
			}
		}
		if len(sent) != hour {
			t.Fatalf("after hour %d: sent %v", hour, sent)
		}
	}
	for i, x := range sent {
		if want := []uint8{4, 4, 3, 3, 2, 2, 1, 1}[i]; x/10 != want {
			t.Errorf("sent in the order %v", sent)
		}
	}
}
