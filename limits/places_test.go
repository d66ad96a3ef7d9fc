package limits

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// story asks about one user, the state packed in between, and knows the ids.
type story struct {
	t      *testing.T
	judge  judge
	stored []byte
	ids    []string
}

func tell(t *testing.T, rules ...Rule) *story {
	t.Helper()
	return &story{t: t, judge: newJudge(mustCompile(t, rules...))}
}

// rules go on with other ones.
func (s *story) rules(rules ...Rule) { s.judge = newJudge(mustCompile(s.t, rules...)) }

func (s *story) ask(r Request) string {
	s.t.Helper()
	if err := s.judge.load(s.stored, 0, r.At.UnixMilli()); err != nil {
		s.t.Fatal(err)
	}
	if s.judge.answer(&r); s.judge.changed {
		s.stored = s.judge.state.encode(nil, 2)
	}
	s.ids = append(s.ids, r.ID)
	return words(&r)
}

// places are the events of the state in their order; those that wait have a star.
func (s *story) places() string {
	s.t.Helper()
	var st state
	if err := st.decode(s.stored, 0); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for i := range st.events {
		e := &st.events[i]
		name := s.ids[slices.IndexFunc(s.ids, func(id string) bool { return idHash(id) == e.id })]
		switch {
		case e.booked():
			name += "*"
		case e.device():
			name += fmt.Sprint("/", e.extra)
		}
		out = append(out, name+"@"+time.UnixMilli(e.at).Sub(start).String())
	}
	return strings.Join(out, " ")
}

// Whatever takes a place, those that it outranks have another one from then on, and
// not only when they come.
func TestWhoIsDisplacedHasAPlaceAtOnce(t *testing.T) {
	const h, m = time.Hour, time.Minute
	hourly := Rule{Name: "hourly", Per: PerUser, Max: 1, Window: h, Over: Defer}
	counts, two := hourly, hourly
	counts.CountCritical, two.Max = true, 2
	ys := Rule{Name: "ys", Per: PerUser, Types: []string{"y"}, Max: 1, Window: h, Over: Defer}
	everyTwo := ys
	everyTwo.Window = 2 * h
	for _, c := range []struct {
		why   string
		rules []Rule
		asks  []Request
		want  string
	}{
		{"by one that waits", []Rule{hourly}, []Request{{ID: "a"}, {ID: "low", Priority: 1}, {ID: "high", Priority: 4}},
			"a@0s high*@1h0m0s low*@2h0m0s"},
		{"by one that goes", []Rule{hourly}, []Request{{ID: "a"}, {ID: "low", Priority: 1}, {ID: "high", Priority: 4, At: start.Add(h + m)}},
			"high@1h1m0s low*@2h1m0s"},
		{"by a critical one that counts", []Rule{counts}, []Request{{ID: "a"}, {ID: "low", Priority: 1}, {ID: "otp", Priority: 5, At: start.Add(30 * m)}},
			"a@0s otp@30m0s low*@1h30m0s"},
		{"the higher of them first", []Rule{hourly}, []Request{{ID: "a"}, {ID: "one", Priority: 1}, {ID: "two", Priority: 2}, {ID: "four", Priority: 4}},
			"a@0s four*@1h0m0s two*@2h0m0s one*@3h0m0s"},
		{"the higher of them first, also where it waits for later", []Rule{hourly, everyTwo}, []Request{{ID: "y1", Type: "y"}, {ID: "one", Priority: 1}, {ID: "y2", Type: "y", Priority: 2}, {ID: "four", Priority: 4}},
			"y1@0s four*@1h0m0s y2*@2h0m0s one*@3h0m0s"},
		{"each by its own rules", []Rule{two, ys}, []Request{{ID: "y1", Type: "y"}, {ID: "x1"}, {ID: "x2", Priority: 1}, {ID: "y2", Type: "y", Priority: 4}},
			"y1@0s x1@0s y2*@1h0m0s x2*@1h0m0s"},
		{"what it was displaced by stands", []Rule{two, ys}, []Request{{ID: "y1", Type: "y"}, {ID: "x1"}, {ID: "y2", Type: "y", Priority: 1}, {ID: "y3", Type: "y", Priority: 4}},
			"y1@0s x1@0s y3*@1h0m0s y2*@2h0m0s"},
	} {
		s := tell(t, c.rules...)
		for _, r := range c.asks {
			if r.Priority = max(r.Priority, 1); r.At.IsZero() {
				r.At = start
			}
			s.ask(r)
		}
		if got := s.places(); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}

// One whose place is none any more, by rules that allow less, gets the next one for
// itself, and moves those behind it.
func TestAPlaceThatIsNoneAnyMore(t *testing.T) {
	const h = time.Hour
	rule := Rule{Name: "hourly", Per: PerUser, Max: 2, Window: h, Over: Defer}
	s := tell(t, rule)
	for _, id := range []string{"a1", "a2", "b", "c", "d", "e"} {
		s.ask(Request{ID: id, Priority: 3, At: start})
	}
	if got, want := s.places(), "a1@0s a2@0s b*@1h0m0s c*@1h0m0s d*@2h0m0s e*@2h0m0s"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	rule.Max = 1
	s.rules(rule)
	if got := s.ask(Request{ID: "b", Priority: 3, At: start.Add(h)}); got != "wait 1h0m0s" {
		t.Errorf("b: %s", got)
	}
	if got, want := s.places(), "a1@0s a2@0s c*@1h0m0s b*@2h0m0s d*@3h0m0s e*@4h0m0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// One that comes for its place and has no device left to go to leaves it, also where
// nothing but the place is known any more.
func TestAPlaceWithoutDevicesIsFree(t *testing.T) {
	rules := []Rule{{Name: "hourly", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer}, {Name: "device", Per: PerDeviceType, Max: 1, Window: time.Hour, Personal: true}}
	s := tell(t, rules...)
	s.ask(Request{ID: "a", At: start})
	waits := Request{ID: "waits", At: start, Devices: []Device{{Hash: 1}}}
	s.ask(waits)
	if got, want := s.places(), "a@0s waits*@1h0m0s"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	waits.At, waits.Personal = start.Add(62*time.Minute), []Personal{{Name: "device", Max: 0}}
	if got := s.ask(waits); got != "no device" {
		t.Errorf("it comes: %s", got)
	}
	if got := s.places(); got != "" {
		t.Errorf("left are %s, want none", got)
	}
}

// A place may be as far ahead as the longest window.
func TestTheFarthestPlace(t *testing.T) {
	s := tell(t, Rule{Name: "month", Per: PerUser, Max: 1, Window: maxWindow, Over: Defer})
	got := []string{s.ask(Request{ID: "a", At: start}), s.ask(Request{ID: "b", At: start}), s.ask(Request{ID: "c", At: start})}
	if want := "[ok wait 744h0m0s no month]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// Critical notifications pass rules of devices too, count there if the rule says so,
// and a device counts once, however often it is named.
func TestWhatPassesRulesOfDevices(t *testing.T) {
	s := tell(t, Rule{Name: "device", Per: PerDeviceType, Max: 2, Window: time.Hour, CountCritical: true})
	one := []Device{{Hash: 1}}
	for _, c := range []struct {
		id       string
		priority uint8
		devices  []Device
		want     string
	}{
		{"twice", 3, []Device{{Hash: 1}, {Hash: 1}}, "ok"}, {"second", 3, one, "ok"}, {"third", 3, one, "no device"},
		{"otp", 5, one, "ok"}, {"otp", 5, one, "ok"},
	} {
		if got := s.ask(Request{ID: c.id, Priority: c.priority, At: start, Devices: slices.Clone(c.devices)}); got != c.want {
			t.Errorf("%s: %s, want %s", c.id, got, c.want)
		}
	}
	if got, want := s.places(), "twice/1@0s second/1@0s otp/1@0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The window that runs to its end after a change of zone is one in which the rule has
// counted something: not one of a place that is booked, nor of another rule's
// notification. It is known for as long as the window after it may begin there.
func TestWhichWindowsRun(t *testing.T) {
	kathmandu := zone(t, "Asia/Kathmandu") // a day there begins at 18:15 UTC
	at := func(day, hour int) time.Time { return start.Add(time.Duration(24*day+hour-12) * time.Hour) }
	day := Rule{Name: "day", Per: PerUser, Algorithm: FixedWindow, Max: 1, Calendar: Day, Over: Defer, Types: []string{"promo"}}
	all := Rule{Name: "all", Per: PerUser, Max: 9, Window: 72 * time.Hour}
	for _, c := range []struct {
		why  string
		asks []Request
		want string
	}{
		{"a booking's does not", []Request{{ID: "a", Type: "promo", At: at(0, 12)}, {ID: "b", Type: "promo", At: at(0, 13)},
			{ID: "b", Type: "promo", At: at(1, 0), Zone: kathmandu}, {ID: "c", Type: "promo", At: at(1, 19), Zone: kathmandu}}, "[ok wait 11h0m0s ok ok]"},
		{"another rule's does not", []Request{{ID: "x", Type: "order", At: at(0, 12)},
			{ID: "a", Type: "promo", At: at(0, 17), Zone: kathmandu}, {ID: "b", Type: "promo", At: at(0, 19), Zone: kathmandu}}, "[ok ok ok]"},
		{"one that has ended is known", []Request{{ID: "a", Type: "promo", At: at(0, 20)}, {ID: "x", Type: "order", At: at(1, 1)},
			{ID: "b", Type: "promo", At: at(1, 2), Zone: kathmandu}}, "[ok ok ok]"},
	} {
		s := tell(t, day, all)
		var got []string
		for _, r := range c.asks {
			r.Priority = 3
			got = append(got, s.ask(r))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.why, got, c.want)
		}
	}
}
