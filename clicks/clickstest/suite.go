// Package clickstest is what every store of reports has to pass.
package clickstest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/clicks"
)

// Store is what clicks.Store and clicks.Memory do.
type Store interface {
	Check(ctx context.Context) error
	Note(ctx context.Context, r *clicks.Report) error
	Of(ctx context.Context, k clicks.Key) ([]clicks.Noted, error)
	Counts(ctx context.Context, q *clicks.Question) ([]clicks.Count, bool, error)
	Count(ctx context.Context, user string) (rows int, err error)
	Forget(ctx context.Context, user string) error
}

var names atomic.Int64

// user is one that no other test has, also of another run on the same server.
func user() string { return fmt.Sprintf("u%x-%x", time.Now().UnixNano(), names.Add(1)) }

// Run tests a store, whose clock is the real one.
func Run(t *testing.T, s Store) {
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"First", first}, {"Repeats", repeats}, {"Timeless", timeless}, {"Counts", counts}, {"Apart", apart}, {"Forget", forget},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// now is the time as it is kept.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// minted is the id of a notification of a time.
func minted(t *testing.T, at time.Time) string {
	t.Helper()
	u, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		u[i] = byte(ms)
	}
	return u.String()
}

// clicked is a click, now, of a notification that was sent so long ago.
func clicked(t *testing.T, user string, ago time.Duration) *clicks.Report {
	t.Helper()
	r := &clicks.Report{Key: clicks.Key{User: user, App: "shop", ID: minted(t, now().Add(-ago))}, Event: clicks.Clicked, Type: "news", Sender: "orders", At: now()}
	r.Sent = clicks.SentAt(r.ID, now())
	return r
}

func note(t *testing.T, s Store, reports ...*clicks.Report) {
	t.Helper()
	for _, r := range reports {
		if err := s.Note(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// of is what is noted, as a text.
func of(t *testing.T, s Store, k clicks.Key) string {
	t.Helper()
	list, err := s.Of(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, n := range list {
		text += fmt.Sprint(n.Event, " ", n.At.Format(time.RFC3339Nano), "; ")
	}
	return text
}

// count is what is counted in the last so many days, as a text.
func count(t *testing.T, s Store, user, app, sender string, days int) string {
	t.Helper()
	list, more, err := s.Counts(t.Context(), &clicks.Question{User: user, App: app, Sender: sender, From: now().AddDate(0, 0, 1-days), To: now()})
	if err != nil || more {
		t.Fatal(more, err)
	}
	text := ""
	for _, c := range list {
		text += fmt.Sprintf("%s %s %d %d; ", c.Day.Format(time.DateOnly), c.Type, c.Clicked, c.Unsubscribed)
	}
	return text
}

// day is how a day stands in a text of count.
func day(ago time.Duration) string { return now().Add(-ago).Format(time.DateOnly) }

// Of a notification the first report of an event stands, in whatever order they are
// written, and one of another event stands beside it.
func first(t *testing.T, s Store) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		r := clicked(t, user(), 2*time.Hour)
		begin := r.Sent.Add(time.Second)
		for _, i := range order {
			one := *r
			one.At = begin.Add(time.Duration(i) * time.Millisecond)
			note(t, s, &one)
		}
		if got, want := of(t, s, r.Key), "CLICKED "+begin.Format(time.RFC3339Nano)+"; "; got != want {
			t.Errorf("written in the order %v: %s, want %s", order, got, want)
		}
		gone := *r
		gone.Event, gone.At = clicks.Unsubscribed, begin.Add(time.Hour)
		note(t, s, &gone)
		if got, want := of(t, s, r.Key), "CLICKED "+begin.Format(time.RFC3339Nano)+"; UNSUBSCRIBED "+gone.At.Format(time.RFC3339Nano)+"; "; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	none := clicks.Key{User: user(), App: "shop", ID: minted(t, now())}
	if got := of(t, s, none); got != "" {
		t.Errorf("of nothing is noted %s", got)
	}
}

// Reported by many at once and again days later, it counts once.
func repeats(t *testing.T, s Store) {
	r := clicked(t, user(), 40*24*time.Hour)
	var all sync.WaitGroup
	for i := range 20 {
		one := *r
		one.At = r.Sent.Add(time.Duration(i) * 48 * time.Hour)
		all.Go(func() {
			if err := s.Note(t.Context(), &one); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, want := count(t, s, r.User, "shop", "", 60), r.Sent.Format(time.DateOnly)+" news 1 0; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := of(t, s, r.Key), "CLICKED "+r.Sent.Format(time.RFC3339Nano)+"; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if rows, err := s.Count(t.Context(), r.User); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// An id without a time may be accepted twice, on two days: it counts once, on the day of
// the copy that was clicked first.
func timeless(t *testing.T, s Store) {
	u := user()
	a := clicks.Report{Key: clicks.Key{User: u, App: "shop", ID: "order-17"}, Event: clicks.Clicked, Type: "news", Sender: "orders"}
	a.Sent = clicks.SentAt(a.ID, now().Add(-72*time.Hour))
	a.At = a.Sent.Add(time.Minute)
	b := a
	b.Sent, b.At = now().Add(-24*time.Hour), now()
	note(t, s, &a, &b, &a)
	list, _, err := s.Counts(t.Context(), &clicks.Question{User: u, App: "shop", From: now().AddDate(0, 0, -10), To: now()})
	if err != nil || len(list) != 1 || list[0].Clicked != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if got := of(t, s, a.Key); len(got) == 0 {
		t.Error("not noted")
	}
}

// Counts are of types and days, in the days that are asked for, also where these lie in
// many partitions.
func counts(t *testing.T, s Store) {
	const full = 24 * time.Hour
	u := user()
	offer := clicked(t, u, 35*full)
	offer.Type, offer.Sender = "offer", "campaigns"
	gone := *offer
	gone.Event = clicks.Unsubscribed
	note(t, s, clicked(t, u, 0), clicked(t, u, 0), clicked(t, u, full), clicked(t, u, 35*full), offer, &gone, clicked(t, u, 80*full))
	for _, tt := range []struct {
		sender string
		days   int
		want   string
	}{
		{"", 1, day(0) + " news 2 0; "},
		{"", 2, day(0) + " news 2 0; " + day(full) + " news 1 0; "},
		{"", 35, day(0) + " news 2 0; " + day(full) + " news 1 0; "},
		{"", 36, day(0) + " news 2 0; " + day(full) + " news 1 0; " + day(35*full) + " news 1 0; " + day(35*full) + " offer 1 1; "},
		{"campaigns", 81, day(35*full) + " offer 1 1; "},
		{"orders", 81, day(0) + " news 2 0; " + day(full) + " news 1 0; " + day(35*full) + " news 1 0; " + day(80*full) + " news 1 0; "},
		{"nobody", 81, ""},
	} {
		if got := count(t, s, u, "shop", tt.sender, tt.days); got != tt.want {
			t.Errorf("of sender %q in %d days\n%s\nwant\n%s", tt.sender, tt.days, got, tt.want)
		}
	}
	past, _, err := s.Counts(t.Context(), &clicks.Question{User: u, App: "shop", From: now().AddDate(0, 0, -36), To: now().AddDate(0, 0, -35)})
	if err != nil || len(past) != 2 || past[0].Day.Format(time.DateOnly) != day(35*full) {
		t.Errorf("of two days in the past: %+v, %v", past, err)
	}
}

// Users, apps and notifications are apart, also where a text ends in the beginning of
// another one, and whatever bytes an id has.
func apart(t *testing.T, s Store) {
	a := clicked(t, user(), 0)
	other := *a
	other.App = "bank"
	longer := *a
	longer.User += "0"
	odd := *a
	odd.ID = `ü"'~ %s`
	note(t, s, a, &other, &longer, &odd)
	for _, r := range []*clicks.Report{a, &other, &longer, &odd} {
		if got := of(t, s, r.Key); got != "CLICKED "+r.At.Format(time.RFC3339Nano)+"; " {
			t.Errorf("%+v: %s", r.Key, got)
		}
	}
	if got, want := count(t, s, a.User, "shop", "", 2), day(0)+" news 2 0; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := count(t, s, a.User, "bank", "", 2), day(0)+" news 1 0; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A user who is erased has nothing, of no time and no app, and others keep theirs.
func forget(t *testing.T, s Store) {
	u, other := user(), user()
	bank, noTime, ahead := clicked(t, u, 0), clicked(t, u, 0), clicked(t, u, -time.Minute)
	bank.App, noTime.ID = "bank", "order-17"
	all := []*clicks.Report{clicked(t, u, 0), clicked(t, u, 50*24*time.Hour), clicked(t, u, 364*24*time.Hour), bank, noTime, ahead}
	kept := clicked(t, other, 0)
	note(t, s, append(slices.Clone(all), kept)...)
	if rows, err := s.Count(t.Context(), u); err != nil || rows != len(all) {
		t.Errorf("%d rows, %v", rows, err)
	}
	for range 2 {
		if err := s.Forget(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if rows, err := s.Count(t.Context(), u); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
	for _, r := range all {
		if got := of(t, s, r.Key); got != "" {
			t.Errorf("%+v: %s", r.Key, got)
		}
	}
	if got := of(t, s, kept.Key); got == "" {
		t.Error("another user has nothing any more")
	}
}
