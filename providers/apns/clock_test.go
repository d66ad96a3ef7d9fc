package apns

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

// T-44. One request at a time: a change of the clock then costs exactly the one
// request that detects it.
func TestClockIsCorrectedByDate(t *testing.T) {
	key := newKey(t)
	synctest.Test(t, func(t *testing.T) {
		s, roots := newStrictApple(t, key)
		tokens := source(t, key)
		client, end := s.client(t, roots, "com.example.shop", tokens, 1)
		defer end()
		for _, k := range []struct {
			skew     time.Duration
			refusals int
			why      string
		}{
			{0, 0, "both clocks agree"},
			{2 * time.Hour, 1, "Apple's is two hours ahead: our tokens are old"},
			{-2 * time.Hour, 1, "now it is two hours behind: they are from the future"},
			{0, 1, "and right again"},
			{4 * time.Minute, 0, "a little off does no harm"},
			{-4 * time.Minute, 0, "to either side"},
		} {
			s.turn(k.skew)
			before := s.refusals()
			for range 25 {
				for _, r := range send(t, client, 1) {
					if r.Class != push.Delivered {
						t.Fatalf("%s: %+v", k.why, r)
					}
				}
				time.Sleep(time.Minute)
			}
			if got := s.refusals() - before; got > k.refusals {
				t.Errorf("%s: %d tokens refused, want at most %d", k.why, got, k.refusals)
			}
		}
		if n := s.count("TooManyProviderTokenUpdates"); n != 0 {
			t.Errorf("TooManyProviderTokenUpdates %d times", n)
		}
	})
}

// A worker that starts with a wrong clock, for example after a crash.
func TestWrongClockAtStart(t *testing.T) {
	key := newKey(t)
	for _, skew := range []time.Duration{2 * time.Hour, -2 * time.Hour, 61 * time.Minute, -91 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, roots := newStrictApple(t, key)
			s.turn(skew)
			for restart := range 5 {
				tokens := source(t, key)
				client, end := s.client(t, roots, "com.example.shop", tokens, 4)
				before := s.refusals()
				if r := send(t, client, 1)[0]; r.Class != push.Delivered {
					t.Errorf("skew %v, start %d: %+v", skew, restart, r)
				}
				for _, r := range send(t, client, 100) {
					if r.Class != push.Delivered {
						t.Errorf("skew %v, start %d: %+v", skew, restart, r)
					}
				}
				if got := s.refusals() - before; got > 1 {
					t.Errorf("skew %v, start %d: %d tokens refused", skew, restart, got)
				}
				end()
			}
			if n := s.count("TooManyProviderTokenUpdates"); n != 0 || s.seen() > 2 {
				t.Errorf("skew %v: TooManyProviderTokenUpdates %d times, %d tokens for five starts", skew, n, s.seen())
			}
		})
	}
}

// With many requests in flight over several connections, each of them detects
// the change. They share one new token, and none fails.
func TestClockChangesUnderLoad(t *testing.T) {
	key := newKey(t)
	for _, k := range []struct {
		skew        time.Duration
		everyChange bool
	}{{2 * time.Hour, false}, {-2 * time.Hour, false}, {2 * time.Hour, true}, {-2 * time.Hour, true}} {
		synctest.Test(t, func(t *testing.T) {
			s, roots := newStrictApple(t, key)
			s.everyChange = k.everyChange
			tokens := source(t, key)
			const connections = 4
			client, end := s.client(t, roots, "com.example.shop", tokens, connections)
			defer end()
			send(t, client, 200)
			s.turn(k.skew)
			left := 200
			for round := 0; left > 0; round++ {
				if round > 10 {
					t.Fatalf("%+v: %d of 200 never get through", k, left)
				}
				for _, r := range send(t, client, left) {
					switch {
					case r.Class == push.Delivered:
						left--
					case r.Class != push.Again || r.Halt || r.Scope == push.ScopeRoute:
						t.Fatalf("%+v: %+v", k, r)
					}
				}
			}
			if s.seen() != 2 || tokens.signed != 2 {
				t.Errorf("%+v: %d tokens signed, %d seen, want the old one and the new one", k, tokens.signed, s.seen())
			}
			if n := s.count("TooManyProviderTokenUpdates"); n != 0 && !k.everyChange {
				t.Errorf("%+v: TooManyProviderTokenUpdates %d times", k, n)
			}
		})
	}
}

// Without a Date the clock cannot be corrected. A token from the future halts
// the route. With a token that is too old, each request is tried once more, and
// no new token is made.
func TestWrongClockWithoutADate(t *testing.T) {
	key := newKey(t)
	synctest.Test(t, func(t *testing.T) {
		s, roots := newStrictApple(t, key)
		s.silent = true
		tokens := source(t, key)
		client, end := s.client(t, roots, "com.example.shop", tokens, 1)
		defer end()
		s.turn(-2 * time.Hour)
		if r := send(t, client, 1)[0]; r.Class != push.Again || !r.Halt || r.Scope != push.ScopeRoute || s.refusals() != 1 {
			t.Errorf("%+v after %d refusals", r, s.refusals())
		}
		s.turn(2 * time.Hour)
		if r := send(t, client, 1)[0]; r.Class != push.Again || r.Scope != push.ScopeConnection || s.refusals() != 3 {
			t.Errorf("%+v after %d refusals", r, s.refusals())
		}
		// T-41: if that continues, the route is halted.
		time.Sleep(patience)
		if r := send(t, client, 1)[0]; r.Class != push.Again || r.Scope != push.ScopeRoute || !r.Halt || r.Reason != "ExpiredProviderToken" {
			t.Errorf("five seconds later: %+v", r)
		}
		s.turn(0)
		if r := send(t, client, 1)[0]; r.Class != push.Delivered {
			t.Errorf("with the right clock: %+v", r)
		}
		s.turn(2 * time.Hour)
		if r := send(t, client, 1)[0]; r.Class != push.Again || r.Halt {
			t.Errorf("one refusal after an acceptance: %+v", r)
		}
		if tokens.signed != 1 {
			t.Errorf("signed %d times", tokens.signed)
		}
	})
}

// A token is used until it is 30 minutes old and never close to the hour (T-44:
// 59 to 61 minutes), over one connection for hours.
func TestTokensOfADay(t *testing.T) {
	key := newKey(t)
	synctest.Test(t, func(t *testing.T) {
		s, roots := newStrictApple(t, key)
		tokens := source(t, key)
		client, end := s.client(t, roots, "com.example.shop", tokens, 2)
		defer end()
		time.Sleep(17 * time.Minute) // not at the start of a half hour
		const minutes = 24 * 60
		for range minutes / 5 {
			if r := send(t, client, 3); r[0].Class != push.Delivered || r[1].Class != push.Delivered || r[2].Class != push.Delivered {
				t.Fatalf("%+v", r)
			}
			time.Sleep(5 * time.Minute)
		}
		if s.refusals() != 0 || s.count("TooManyProviderTokenUpdates") != 0 {
			t.Errorf("%d refused, %d too many", s.refusals(), s.count("TooManyProviderTokenUpdates"))
		}
		if want := minutes/30 + 1; tokens.signed != want || s.seen() != want {
			t.Errorf("%d tokens signed and %d seen in a day, want %d", tokens.signed, s.seen(), want)
		}
	})
}

// One key means one token, for all apps, environments and connections, and for
// another worker that knows nothing of this one.
func TestOneTokenForAppsAndEnvironments(t *testing.T) {
	key := newKey(t)
	synctest.Test(t, func(t *testing.T) {
		s, roots := newStrictApple(t, key)
		tokens, other := source(t, key), source(t, key)
		var ends []func()
		for _, k := range []struct {
			topic  string
			tokens *TokenSource
		}{{"com.example.shop", tokens}, {"com.example.shop", tokens}, {"com.example.news", tokens}, {"com.example.shop", other}} {
			client, end := s.client(t, roots, k.topic, k.tokens, 5)
			ends = append(ends, end)
			for _, r := range send(t, client, 300) {
				if r.Class != push.Delivered {
					t.Fatalf("%+v", r)
				}
			}
		}
		if tokens.signed != 1 || other.signed != 1 || s.seen() != 1 {
			t.Errorf("signed %d and %d times, %d tokens seen; want one each, and the same", tokens.signed, other.signed, s.seen())
		}
		for _, end := range ends {
			end()
		}
	})
}

func TestWhatIsNoReasonToCorrect(t *testing.T) {
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	at := func(d time.Duration) []byte { return []byte(start.Add(d).Format(http.TimeFormat)) }
	for _, k := range []struct {
		why  string
		date []byte
		want time.Duration
	}{
		{"no Date", nil, 0}, {"no date in it", []byte("yesterday"), 0},
		{"four minutes", at(4 * time.Minute), 0}, {"four minutes behind", at(-4 * time.Minute), 0},
		{"six minutes", at(6 * time.Minute), 6 * time.Minute}, {"two hours behind", at(-2 * time.Hour), -2 * time.Hour},
	} {
		s := source(t, newKey(t))
		s.Correct(k.date, start)
		if got := s.theirs(start).Sub(start); got != k.want || s.Settling(start) != (k.want != 0) {
			t.Errorf("%s: corrected by %v, want %v", k.why, got, k.want)
		}
		if k.want == 0 {
			continue
		}
		// Another server, with another Date: ignored for the first 20 minutes.
		s.Correct(at(0), start.Add(time.Minute))
		if got := s.theirs(start).Sub(start); got != k.want {
			t.Errorf("%s: talked out of it, to %v", k.why, got)
		}
		s.Correct(at(21*time.Minute), start.Add(21*time.Minute))
		if got := s.theirs(start).Sub(start); got != 0 {
			t.Errorf("%s: our clock is right again, and is corrected by %v", k.why, got)
		}
	}
}

// A wrong key is not the clock's fault.
func TestWrongKeyHaltsTheRoute(t *testing.T) {
	c := testCodec(t)
	r := answered(403, `{"reason":"InvalidProviderToken"}`)
	now := time.Now()
	r.Header[0].Value = []byte(authorize(t, c.tokens, now))
	r.Answer.Header[answerDate] = []byte(now.UTC().Format(http.TimeFormat))
	if got, next := c.Read(plain(), r); !got.Halt || got.Scope != push.ScopeRoute || next != exchange.Settled || c.tokens.signed != 1 {
		t.Errorf("%+v, %v, signed %d times", got, next, c.tokens.signed)
	}
}
