package audiences

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users/record"
)

var errAway = errors.New("no hosts available")

// log is push.users with the one offset that its group has committed.
type log struct {
	t         *testing.T
	runs      [][]Record
	committed int
	polled    int // from the start of the process on
	err       error
}

func (l *log) Poll(ctx context.Context) ([]Record, error) {
	if l.polled == len(l.runs) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	l.polled++
	return l.runs[l.polled-1], nil
}

// Commit is about all that was polled, as it is in Kafka.
func (l *log) Commit(context.Context) error {
	if l.err == nil {
		l.committed = l.polled
	}
	return l.err
}

// restart is another process in place of the one that is gone.
func (l *log) restart() { l.polled = l.committed }

// store is a Memory that notes how it was called.
type store struct {
	*Memory
	calls [][]Use
	then  func() // after each
}

func (s *store) Add(ctx context.Context, uses []Use) (int, error) {
	s.calls = append(s.calls, slices.Clone(uses))
	added, err := s.Memory.Add(ctx, uses)
	if s.then != nil {
		s.then()
	}
	return added, err
}

// fill runs a filler until nothing moves any more, or stop ends it.
func fill(t *testing.T, l *log, s Adder, wait time.Duration) {
	ctx, stop := context.WithTimeout(t.Context(), wait)
	defer stop()
	f := NewFiller(FillerOptions{Source: l, Store: s, Retry: push.Backoff{First: time.Second, Longest: time.Minute}, Metrics: NewMetrics(nil), Log: slog.New(slog.DiscardHandler)})
	if err := f.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
}

// registered is the record of a device.
func registered(t *testing.T, user, app, token string, at time.Time) Record {
	t.Helper()
	d := push.Device{Platform: push.FCM, App: app, Token: token, RegisteredAt: time.Now()}
	if err := record.CheckDevice(&d, time.Now()); err != nil {
		t.Fatal(err)
	}
	value, err := record.DeviceValue(&d)
	if err != nil {
		t.Fatal(err)
	}
	return Record{Key: record.DeviceKey(user, d.Hash), Value: value, At: at}
}

const aToken = "cXyZ0123456789:APA91bExampleTokenOfADevice"

func (s *store) has(t *testing.T, app, user string) bool {
	t.Helper()
	_, there, err := s.Since(t.Context(), app, user)
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// Registrations are noted, each user of an app once, by the latest record; nothing else is.
func TestOnlyRegistrationsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		one := registered(t, "ada", "shop", aToken, now.Add(-time.Hour))
		foreign := registered(t, "eve", "shop", aToken, now)
		foreign.Value = []byte(strings.Replace(string(foreign.Value), `"fcm"`, `"smoke"`, 1))
		later := registered(t, "eve", "shop", aToken, now)
		later.Value = []byte(strings.Replace(string(later.Value), `"v":1`, `"v":99`, 1))
		l := &log{t: t, runs: [][]Record{{
			one, registered(t, "ben", "shop", aToken, now), registered(t, "ada", "news", aToken, now), registered(t, "ada", "shop", aToken+"2", now),
			foreign, later,
			{Key: registered(t, "eve", "shop", aToken, now).Key, At: now}, // a removal
			{Key: record.PreferencesKey("eve"), Value: []byte(`{"v":1}`), At: now},
			{Key: record.ProfileKey("eve"), Value: []byte(`{"v":1,"number":7}`), At: now},
			{Key: "eve/device:x", Value: one.Value}, {Key: "eve", Value: one.Value}, {Key: "", Value: one.Value}, {Key: "/", Value: []byte("{")},
			{Key: one.Key, Value: []byte(`{"v":1,"app":"shop","tok`)},
			{Key: "\xff" + one.Key[3:], Value: one.Value}, // no text: the table could not have it
		}, {registered(t, "\xffeve", "shop", aToken, now)}, {registered(t, "ada", "shop", aToken, now)}}}
		s := &store{Memory: NewMemory(nil)}
		fill(t, l, s, time.Minute)
		want := []Use{{"shop", "ada", now}, {"shop", "ben", now}, {"news", "ada", now}}
		if len(s.calls) != 3 || !slices.Equal(s.calls[0], want) || len(s.calls[1]) != 0 || !slices.Equal(s.calls[2], want[:1]) {
			t.Errorf("noted %v", s.calls)
		}
		if l.committed != 3 {
			t.Errorf("%d of 3 committed", l.committed)
		}
	})
}

// Nothing is committed that is not noted, and nothing else is polled meanwhile, since that
// would be committed with it.
func TestWhatIsNotNotedIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{t: t, runs: [][]Record{{registered(t, "ada", "shop", aToken, time.Now())}, {registered(t, "ben", "shop", aToken, time.Now())}}}
		s := &store{Memory: NewMemory(nil)}
		s.Fail(errAway)
		s.then = func() {
			if l.committed != 0 || l.polled != 1 {
				t.Errorf("%d committed, %d polled", l.committed, l.polled)
			}
			if len(s.calls) == 3 {
				s.Fail(nil)
				s.then = nil
			}
		}
		fill(t, l, s, time.Hour)
		if l.committed != 2 || len(s.calls) != 5 || !s.has(t, "shop", "ada") || !s.has(t, "shop", "ben") {
			t.Errorf("%d committed after %d calls", l.committed, len(s.calls))
		}
	})
}

// A process that dies between the rows and the commit leaves what another one does again,
// and since when somebody is a member stays.
func TestDeathBetweenRowsAndCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{t: t, runs: [][]Record{{registered(t, "ada", "shop", aToken, time.Now())}, {registered(t, "ben", "shop", aToken, time.Now())}}, err: errAway}
		s := &store{Memory: NewMemory(nil)}
		fill(t, l, s, time.Minute) // it commits nothing, and polls nothing more
		first, there, err := s.Since(t.Context(), "shop", "ada")
		if !there || err != nil || s.has(t, "shop", "ben") || l.committed != 0 || l.polled != 1 {
			t.Errorf("%v, %v; %d committed, %d polled", there, err, l.committed, l.polled)
		}
		l.err = nil
		l.restart()
		time.Sleep(time.Hour)
		fill(t, l, s, time.Minute)
		if again, _, err := s.Since(t.Context(), "shop", "ada"); err != nil || !again.Equal(first) || !s.has(t, "shop", "ben") || l.committed != 2 {
			t.Errorf("since %s, then %s: %v; %d committed", first, again, err, l.committed)
		}
	})
}

// An erasure stands, although the records from before it are read once more, as they are
// when the table is filled anew; a registration behind it counts.
func TestErasedUsersStayAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{t: t, runs: [][]Record{{registered(t, "ada", "shop", aToken, time.Now()), registered(t, "ben", "shop", aToken, time.Now())}}}
		s := &store{Memory: NewMemory(nil)}
		fill(t, l, s, time.Minute)
		if err := s.Forget(t.Context(), "ada", []string{"shop"}); err != nil {
			t.Fatal(err)
		}
		l.committed = 0 // the group's offsets were removed
		l.restart()
		fill(t, l, s, time.Minute)
		if s.has(t, "shop", "ada") || !s.has(t, "shop", "ben") {
			t.Error("the erased one is back, or the other is gone")
		}
		l.runs = append(l.runs, []Record{registered(t, "ada", "shop", aToken, time.Now())})
		fill(t, l, s, time.Minute)
		if !s.has(t, "shop", "ada") {
			t.Error("who registered again is no member")
		}
	})
}

// Who registers after an erasure is a member, also when a record from a clock that is behind
// comes in the same poll, as one that comes in the next changes nothing.
func TestClocksOfRegistrationsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{Memory: NewMemory(nil)}
		if err := s.Forget(t.Context(), "ada", []string{"shop"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		fill(t, &log{t: t, runs: [][]Record{{registered(t, "ada", "shop", aToken, time.Now()), registered(t, "ada", "shop", aToken+"2", time.Now().Add(-20*time.Second))}}}, s, time.Minute)
		if !s.has(t, "shop", "ada") {
			t.Error("who registered after the erasure is no member")
		}
	})
}

// tables fail from the nth statement on, as a process that dies there does.
type tables struct {
	left int
	said []string
}

func (d *tables) Exec(_ context.Context, statement string, _ ...any) error {
	if d.left--; d.left < 0 {
		return errAway
	}
	d.said = append(d.said, statement)
	return nil
}

func (d *tables) Query(ctx context.Context, statement string, _, _ []any, _ func()) error {
	return d.Exec(ctx, statement)
}

// A table that fails somewhere is told of, wherever that is, and what is there already is
// counted.
func TestTablesThatFail(t *testing.T) {
	uses := []Use{{App: "shop", User: "u1"}, {App: "shop", User: "u2"}, {App: "shop", User: "u3"}}
	for left := range 2 * len(uses) {
		s := New(Options{Tables: &tables{left: left}, Concurrency: 1})
		if added, err := s.Add(t.Context(), uses); !errors.Is(err, errAway) || added != left/2 {
			t.Errorf("%d statements: %d added, %v", left, added, err)
		}
	}
	d := &tables{left: 2 * len(uses)}
	if added, err := New(Options{Tables: d, Concurrency: 1}).Add(t.Context(), uses); err != nil || added != len(uses) {
		t.Errorf("%d added, %v", added, err)
	}
	for left, do := range []func(*Store) error{
		func(s *Store) error { return s.Check(t.Context()) },
		func(s *Store) error { return s.Forget(t.Context(), "u1", []string{"shop"}) },
	} {
		for n := range left + 1 {
			if err := do(New(Options{Tables: &tables{left: n}})); !errors.Is(err, errAway) {
				t.Errorf("%d, %d statements: %v", left, n, err)
			}
		}
	}
}
