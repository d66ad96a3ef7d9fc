// Package audiencestest is what every store of members has to pass.
package audiencestest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/fanout"
)

// Store is what audiences.Store and audiences.Memory do.
type Store interface {
	Check(ctx context.Context) error
	Add(ctx context.Context, uses []audiences.Use) (added int, err error)
	Since(ctx context.Context, app, user string) (since time.Time, there bool, err error)
	Page(ctx context.Context, app string, first, end int, after string, limit int) ([]audiences.Member, error)
	Count(ctx context.Context, user string, apps []string) (rows int, err error)
	Forget(ctx context.Context, user string, apps []string) error
}

// Clock is one that tests set.
type Clock struct{ at atomic.Int64 }

// NewClock is a clock that stands at the real time.
func NewClock() *Clock {
	c := &Clock{}
	c.at.Store(time.Now().UnixMilli())
	return c
}

// Now is the time.
func (c *Clock) Now() time.Time { return time.UnixMilli(c.at.Load()).UTC() }

func (c *Clock) move(d time.Duration) { c.at.Add(d.Milliseconds()) }

var names atomic.Int64

// newApp is one that no other test has, also of another run on the same server.
func newApp() string { return fmt.Sprintf("a%x-%x", time.Now().UnixNano(), names.Add(1)) }

// Run tests a store that goes by the clock.
func Run(t *testing.T, s Store, c *Clock) {
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store, *Clock)
	}{{"Repeats", repeats}, {"Pages", pages}, {"Erased", erased}, {"Late", late}, {"Ahead", aheadOf}, {"Texts", texts}, {"Bounds", bounds}, {"Ended", ended}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s, c) })
	}
}

func add(t *testing.T, s Store, want int, uses ...audiences.Use) {
	t.Helper()
	if added, err := s.Add(t.Context(), uses); err != nil || added != want {
		t.Fatalf("added %d of %d, %v; want %d", added, len(uses), err, want)
	}
}

// since is since when a user is a member; zero = is none.
func since(t *testing.T, s Store, app, user string) time.Time {
	t.Helper()
	at, there, err := s.Since(t.Context(), app, user)
	if err != nil || there == at.IsZero() {
		t.Fatalf("%v, there %v: %v", at, there, err)
	}
	return at
}

// repeats: who registers again stays a member since the first time.
func repeats(t *testing.T, s Store, c *Clock) {
	app, at := newApp(), c.Now()
	add(t, s, 1, audiences.Use{App: app, User: "u1", At: at})
	c.move(time.Hour)
	add(t, s, 1, audiences.Use{App: app, User: "u1", At: c.Now()}, audiences.Use{App: app, User: "u2", At: c.Now()})
	if got := since(t, s, app, "u1"); !got.Equal(at) {
		t.Errorf("since %s, want %s", got, at)
	}
	if got := since(t, s, app, "u2"); !got.Equal(c.Now()) {
		t.Errorf("the new one since %s, want %s", got, c.Now())
	}
	if got := since(t, s, newApp(), "u1"); !got.IsZero() {
		t.Errorf("of another app since %s", got)
	}
	if n, err := s.Count(t.Context(), "u1", []string{app, newApp()}); n != 1 || err != nil {
		t.Errorf("%d rows: %v", n, err)
	}
}

// pages: each part has its own, and all parts together have all, whatever the page.
func pages(t *testing.T, s Store, c *Clock) {
	app := newApp()
	want := map[string]bool{}
	var uses []audiences.Use
	for i := range 600 {
		user := fmt.Sprintf("user-%d", i)
		want[user] = true
		uses = append(uses, audiences.Use{App: app, User: user, At: c.Now()}, audiences.Use{App: app + "-b", User: user + "b", At: c.Now()})
	}
	add(t, s, len(uses), uses...)
	for _, of := range []struct{ parts, limit int }{{1, 7}, {4, 1000}, {1024, 1}} {
		got := map[string]bool{}
		to := fanout.To{Parts: of.parts}
		for part := range of.parts {
			first, end := to.Slices(part)
			for after, last := "", ""; ; after = last {
				page, err := s.Page(t.Context(), app, first, end, after, of.limit)
				if err != nil || len(page) > of.limit {
					t.Fatalf("%d: %v", len(page), err)
				}
				if len(page) == 0 {
					break
				}
				for _, m := range page {
					if got[m.User] || to.PartOf(m.User) != part || !m.Since.Equal(c.Now()) || last != "" && !inOrder(last, m.User) {
						t.Fatalf("part %d of %d: %+v behind %s", part, of.parts, m, last)
					}
					got[m.User], last = true, m.User
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("in %d parts %d members, want %d", of.parts, len(got), len(want))
		}
	}
}

func inOrder(a, b string) bool {
	if x, y := fanout.SliceOf(a), fanout.SliceOf(b); x != y {
		return x < y
	}
	return a < b
}

// erased: nobody is left of whom nothing may be left, also on pages, and who registers
// afterwards is a member anew.
func erased(t *testing.T, s Store, c *Clock) {
	app, other, user := newApp(), newApp(), "ada"
	add(t, s, 3, audiences.Use{App: app, User: user, At: c.Now()}, audiences.Use{App: other, User: user, At: c.Now()}, audiences.Use{App: app, User: "ben", At: c.Now()})
	c.move(time.Second)
	for range 2 {
		if err := s.Forget(t.Context(), user, []string{app}); err != nil {
			t.Fatal(err)
		}
	}
	if !since(t, s, app, user).IsZero() || since(t, s, other, user).IsZero() || since(t, s, app, "ben").IsZero() {
		t.Error("too much or too little was erased")
	}
	if page, err := s.Page(t.Context(), app, 0, fanout.Slices, "", 10); err != nil || len(page) != 1 || page[0].User != "ben" {
		t.Errorf("%v, %v", page, err)
	}
	// Behind the one who is gone the page goes on.
	first := fanout.SliceOf(user)
	if page, err := s.Page(t.Context(), app, first, first+1, user, 10); err != nil || len(page) != 0 {
		t.Errorf("%v, %v", page, err)
	}
	c.move(time.Second)
	add(t, s, 1, audiences.Use{App: app, User: user, At: c.Now()})
	if got := since(t, s, app, user); !got.Equal(c.Now()) {
		t.Errorf("again since %s", got)
	}
}

// late: a record from before the erasure, read only after it, brings nobody back: neither
// one who was there nor one who was not.
func late(t *testing.T, s Store, c *Clock) {
	app, before := newApp(), c.Now()
	add(t, s, 1, audiences.Use{App: app, User: "ada", At: before})
	c.move(time.Second)
	for _, user := range []string{"ada", "ben"} {
		if err := s.Forget(t.Context(), user, []string{app}); err != nil {
			t.Fatal(err)
		}
	}
	c.move(time.Second)
	for _, user := range []string{"ada", "ben"} {
		if _, err := s.Add(t.Context(), []audiences.Use{{App: app, User: user, At: before}}); err != nil {
			t.Fatal(err)
		}
		if got := since(t, s, app, user); !got.IsZero() {
			t.Errorf("%s is back since %s", user, got)
		}
	}
}

// aheadOf: a record whose clock was ahead, or that has no time, can be erased.
func aheadOf(t *testing.T, s Store, c *Clock) {
	app := newApp()
	for i, at := range []time.Time{c.Now().Add(24 * time.Hour), {}, time.UnixMilli(-1)} {
		user := fmt.Sprint("u", i)
		c.move(time.Second)
		add(t, s, 1, audiences.Use{App: app, User: user, At: at})
		// Who erases has a clock that is behind.
		c.move(-time.Second)
		if err := s.Forget(t.Context(), user, []string{app}); err != nil {
			t.Fatal(err)
		}
		if got := since(t, s, app, user); !got.IsZero() {
			t.Errorf("%d: still there since %s", i, got)
		}
		c.move(2 * time.Second)
		add(t, s, 1, audiences.Use{App: app, User: user, At: c.Now()})
	}
}

// texts: all that may be a user's id is one.
func texts(t *testing.T, s Store, c *Clock) {
	app := newApp()
	users := []string{"'; DROP TABLE app_users; --", "\x01\x00", "Ünïcødé 😀", strings.Repeat("x", audiences.MaxText), " ", "a/b", "%"}
	var uses []audiences.Use
	for _, user := range users {
		uses = append(uses, audiences.Use{App: app, User: user, At: c.Now()})
	}
	add(t, s, len(users), uses...)
	var got []string
	page, err := s.Page(t.Context(), app, 0, fanout.Slices, "", 100)
	for err == nil && len(page) > 0 {
		for _, m := range page {
			got = append(got, m.User)
		}
		page, err = s.Page(t.Context(), app, 0, fanout.Slices, got[len(got)-1], 100)
	}
	slices.Sort(got)
	slices.Sort(users)
	if err != nil || !slices.Equal(got, users) {
		t.Errorf("%q, %v", got, err)
	}
}

// bounds: what cannot be kept is refused, and no page is without bounds.
func bounds(t *testing.T, s Store, c *Clock) {
	app := newApp()
	for _, u := range []audiences.Use{{App: app}, {User: "u"}, {App: app, User: "\xff"}, {App: "\xff", User: "u"}, {App: app, User: strings.Repeat("x", audiences.MaxText+1)}} {
		if _, err := s.Add(t.Context(), []audiences.Use{u}); err == nil {
			t.Errorf("%q of %q was noted", u.User, u.App)
		}
		if _, _, err := s.Since(t.Context(), u.App, u.User); err == nil {
			t.Errorf("%q of %q was looked for", u.User, u.App)
		}
		if err := s.Forget(t.Context(), u.User, []string{u.App}); err == nil {
			t.Errorf("%q of %q was removed", u.User, u.App)
		}
	}
	slice := fanout.SliceOf("u")
	for _, of := range []struct {
		first, end, limit int
		after             string
	}{{-1, 1, 1, ""}, {0, fanout.Slices + 1, 1, ""}, {2, 1, 1, ""}, {0, 1, 0, ""}, {0, 1, audiences.MaxPage + 1, ""}, {slice + 1, fanout.Slices, 1, "u"}, {0, slice, 1, "u"}} {
		if _, err := s.Page(t.Context(), app, of.first, of.end, of.after, of.limit); err == nil {
			t.Errorf("a page %+v", of)
		}
	}
	if n, err := s.Add(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// ended: a call whose time is over says so.
func ended(t *testing.T, s Store, c *Clock) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	app := newApp()
	if _, err := s.Add(ctx, []audiences.Use{{App: app, User: "u", At: c.Now()}}); err == nil {
		t.Error("added")
	}
	if _, err := s.Page(ctx, app, 0, 1, "", 1); err == nil {
		t.Error("a page")
	}
	if s.Forget(ctx, "u", []string{app}) == nil {
		t.Error("removed")
	}
}
