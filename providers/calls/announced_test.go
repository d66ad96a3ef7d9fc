package calls

import (
	"testing"
	"time"
)

// announcing is the values of an answer with these headers.
func announcing(headers map[string]string) [][]byte {
	values := make([][]byte, len(LimitHeaders()))
	for i, name := range LimitHeaders() {
		values[i] = []byte(headers[name])
	}
	return values
}

func TestAnnouncedLimits(t *testing.T) {
	now := time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC)
	const date = "Thu, 26 Nov 2026 07:00:30 GMT" // the server's clock is half a minute ahead
	for _, tt := range []struct {
		why     string
		headers map[string]string
		left    int
		ends    time.Duration // 0 = none is read
	}{
		{"nothing", nil, 0, 0},
		{"the draft as it is", map[string]string{"ratelimit": `"project";r=100;t=20`}, 100, 20 * time.Second},
		{"the one that leaves the least a second", map[string]string{"ratelimit": `"day";r=3000;t=3600, "burst";r=50;t=10;pk=:YQ==:`}, 3000, time.Hour},
		{"names with commas and semicolons", map[string]string{"ratelimit": `"a,\";r=1;t=1";r=7;t=9`}, 7, 9 * time.Second},
		{"parameters apart, and others", map[string]string{"ratelimit": `"a"; x="t=1;r=2"; t=9; r=7`}, 7, 9 * time.Second},
		{"more than its policy allows", map[string]string{"ratelimit": `"a";r=11;t=9`, "ratelimit-policy": `"b";q=5;w=1, "a";q=10;w=60`}, 0, 0},
		{"as much as it allows", map[string]string{"ratelimit": `"a";r=10;t=9`, "ratelimit-policy": `"a";q=10;w=60`}, 10, 9 * time.Second},
		{"no end", map[string]string{"ratelimit": `"a";r=10`}, 0, 0},
		{"none left", map[string]string{"ratelimit": `"a";r=0;t=9`}, 0, 9 * time.Second},
		{"the older draft", map[string]string{"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "40", "ratelimit-reset": "30"}, 40, 30 * time.Second},
		{"the oldest, in seconds", map[string]string{"x-ratelimit-limit": "100", "x-ratelimit-remaining": "40", "x-ratelimit-reset": "30"}, 40, 30 * time.Second},
		{"a time by the server's clock", map[string]string{"x-ratelimit-remaining": "40", "x-ratelimit-reset": "1795676450"}, 40, 20 * time.Second},
		{"a time in milliseconds", map[string]string{"x-ratelimit-remaining": "40", "x-ratelimit-reset": "1795676450500"}, 40, 20500 * time.Millisecond},
		{"a time that is over", map[string]string{"x-ratelimit-remaining": "40", "x-ratelimit-reset": "1795676400"}, 0, 0},
		{"negative", map[string]string{"x-ratelimit-remaining": "-1", "x-ratelimit-reset": "30"}, 0, 0},
		{"negative time", map[string]string{"x-ratelimit-remaining": "1", "x-ratelimit-reset": "-30"}, 0, 0},
		{"more than the limit", map[string]string{"x-ratelimit-limit": "10", "x-ratelimit-remaining": "11", "x-ratelimit-reset": "30"}, 0, 0},
		{"far away", map[string]string{"x-ratelimit-remaining": "10", "x-ratelimit-reset": "3601"}, 0, 0},
		{"very far away", map[string]string{"x-ratelimit-remaining": "10", "x-ratelimit-reset": "9223372036854775807"}, 0, 0},
		{"absurd", map[string]string{"x-ratelimit-remaining": "9223372036854775807", "x-ratelimit-reset": "30"}, 0, 0},
		{"no number", map[string]string{"x-ratelimit-remaining": "many", "x-ratelimit-reset": "30"}, 0, 0},
		{"words of the draft that are none", map[string]string{"ratelimit": `;;;,,,"";r=;t=`}, 0, 0},
		{"one that cannot be, and one that can", map[string]string{"ratelimit": `"a";r=1;t=99999`, "x-ratelimit-remaining": "4", "x-ratelimit-reset": "2"}, 4, 2 * time.Second},
	} {
		got, ok := readAnnounced(announcing(tt.headers), []byte(date), now)
		if ok != (tt.ends > 0) || got != (Announced{tt.left, tt.ends}) {
			t.Errorf("%s: %+v, %v, want %d within %v", tt.why, got, ok, tt.left, tt.ends)
		}
	}
}

// What is announced is handed on where somebody listens, and costs nothing otherwise.
func TestLimitsAreHandedOn(t *testing.T) {
	var l Limits
	values := announcing(map[string]string{"ratelimit": `"a";r=10;t=9`})
	l.Heard(values, nil) // nobody listens
	var got []Announced
	l.Listen(func(now time.Time, left int, ends time.Duration) {
		if now.IsZero() {
			t.Error("no time is handed on")
		}
		got = append(got, Announced{left, ends})
	})
	l.Heard(values, nil)
	l.Heard(announcing(nil), nil)
	l.Heard(announcing(map[string]string{"ratelimit": "?"}), nil)
	if len(got) != 1 || got[0] != (Announced{10, 9 * time.Second}) {
		t.Errorf("handed on: %+v", got)
	}
	none := announcing(nil)
	if n := testing.AllocsPerRun(100, func() { l.Heard(none, nil) }); n > 0 {
		t.Errorf("an answer without a limit costs %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { readAnnounced(values, nil, time.Time{}) }); n > 0 {
		t.Errorf("an answer with a limit costs %v allocations", n)
	}
}

// FuzzAnnounced holds whatever servers send to the bounds of Announced.
func FuzzAnnounced(f *testing.F) {
	f.Add(`"a";r=10;t=9`, `"a";q=10;w=60`, "5", "30", "Thu, 26 Nov 2026 07:00:30 GMT")
	f.Add(`"\`, `"`, "-", "1795676450500", "")
	f.Fuzz(func(t *testing.T, now, policy, left, reset, date string) {
		values := announcing(map[string]string{"ratelimit": now, "ratelimit-policy": policy, "x-ratelimit-remaining": left, "x-ratelimit-reset": reset})
		a, ok := readAnnounced(values, []byte(date), time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC))
		if ok && (a.Left < 0 || a.Left > mostLeft || a.Ends <= 0 || a.Ends > LongestWait) {
			t.Errorf("%+v is believed", a)
		}
	})
}
