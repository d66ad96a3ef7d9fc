// Package subscriptionstest is what every store of subscriptions has to pass.
package subscriptionstest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Store is what subscriptions.Store and subscriptions.Memory do.
type Store interface {
	Check(ctx context.Context) error
	Create(ctx context.Context, t *subscriptions.Topic) (made subscriptions.Topic, created bool, err error)
	Topic(ctx context.Context, name string) (subscriptions.Topic, error)
	Close(ctx context.Context, name string) (subscriptions.Topic, error)
	Topics(ctx context.Context, apps []string, after string, limit int) ([]subscriptions.Topic, error)
	Apply(ctx context.Context, t *subscriptions.Topic, changes []subscriptions.Change) []subscriptions.Result
	Page(ctx context.Context, topic string, l subscriptions.Layout, slice int, after string, limit int) ([]subscriptions.Subscription, error)
	Run(ctx context.Context, topic string, l subscriptions.Layout, first, last int, after subscriptions.Position, limit int) ([]subscriptions.Subscription, subscriptions.Position, bool, error)
	OfUser(ctx context.Context, user, after string, limit int) ([]subscriptions.Membership, error)
	Subscription(ctx context.Context, topic, user string) (subscriptions.Subscription, error)
}

// start is when the tests' first request is made.
var start = time.Date(2026, 11, 25, 12, 0, 0, 123_456_000, time.UTC)

// names makes names that no other test has, also of another run on the same server.
var names atomic.Int64

// name is a new one.
func name() string { return fmt.Sprintf("t%x-%x", time.Now().UnixNano(), names.Add(1)) }

// Run tests a store. open gives it, with a clock; most is how many topics it lets a user have.
func Run(t *testing.T, most int, open func(t *testing.T, now func() time.Time) Store) {
	at := func() time.Time { return start }
	s := open(t, at)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"Create", create}, {"CreateAtOnce", createAtOnce}, {"Close", closeTopic}, {"Topics", topics}, {"Invalid", invalid},
		{"Join", join}, {"Late", late}, {"SameTime", sameTime}, {"Most", func(t *testing.T, s Store) { mostTopics(t, s, most) }}, {"Slices", pages}, {"Gone", gone}, {"Model", model},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// topic is one that may be made.
func topic(app string) subscriptions.Topic {
	return subscriptions.Topic{Name: name(), App: app, Service: "promotional", Priority: push.Medium, Security: subscriptions.Open,
		Modes: subscriptions.ModesOf(subscriptions.Push, subscriptions.Pull), Size: subscriptions.Small, CreatedBy: "orders"}
}

// made is a topic that is there.
func made(t *testing.T, s Store, change ...func(*subscriptions.Topic)) *subscriptions.Topic {
	t.Helper()
	wanted := topic("shop")
	for _, c := range change {
		c(&wanted)
	}
	got, created, err := s.Create(t.Context(), &wanted)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	return &got
}

func create(t *testing.T, s Store) {
	wanted := topic("shop")
	if _, err := s.Topic(t.Context(), wanted.Name); !errors.Is(err, subscriptions.ErrNoTopic) {
		t.Fatalf("before it is made: %v", err)
	}
	got, created, err := s.Create(t.Context(), &wanted)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	expected := wanted
	expected.State, expected.Version, expected.Layout = subscriptions.Opened, 1, subscriptions.Layout{Number: 1, Buckets: 1}
	expected.CreatedAt = start.Truncate(time.Millisecond)
	if !reflect.DeepEqual(got, expected) {
		t.Errorf("made\n%+v\nwant\n%+v", got, expected)
	}
	again, created, err := s.Create(t.Context(), &wanted)
	if err != nil || created || !reflect.DeepEqual(again, expected) {
		t.Errorf("the same again: created %v, %v, %+v", created, err, again)
	}
	other := wanted
	other.CreatedBy = "support"
	if again, created, err = s.Create(t.Context(), &other); err != nil || created || !reflect.DeepEqual(again, expected) {
		t.Errorf("the same by another sender: created %v, %v, %+v", created, err, again)
	}
	for why, change := range map[string]func(*subscriptions.Topic){
		"app":      func(t *subscriptions.Topic) { t.App = "bank" },
		"service":  func(t *subscriptions.Topic) { t.Service = "critical" },
		"priority": func(t *subscriptions.Topic) { t.Priority = push.High },
		"security": func(t *subscriptions.Topic) { t.Security = subscriptions.Restricted },
		"modes":    func(t *subscriptions.Topic) { t.Modes = subscriptions.ModesOf(subscriptions.Push) },
		"size":     func(t *subscriptions.Topic) { t.Size = subscriptions.Large },
		"list of publishers": func(t *subscriptions.Topic) {
			t.Security, t.Publishers = subscriptions.Restricted, []string{"orders"}
		},
	} {
		other := wanted
		change(&other)
		if _, _, err := s.Create(t.Context(), &other); !errors.Is(err, subscriptions.ErrConflict) {
			t.Errorf("another %s: %v", why, err)
		}
	}
	if read, err := s.Topic(t.Context(), wanted.Name); err != nil || !reflect.DeepEqual(read, expected) {
		t.Errorf("read %+v, %v", read, err)
	}
	closed := topic("shop")
	closed.Security, closed.Publishers = subscriptions.Restricted, []string{"orders", "support"}
	if _, created, err := s.Create(t.Context(), &closed); err != nil || !created {
		t.Errorf("one with publishers: created %v, %v", created, err)
	}
	if read, err := s.Topic(t.Context(), closed.Name); err != nil || !slices.Equal(read.Publishers, closed.Publishers) {
		t.Errorf("its publishers are read as %v, %v", read.Publishers, err)
	}
}

// Of those who make one topic at once, one has made it, and those who want another are told.
// A server may answer that it could not tell; who repeats then may find what he has made.
func createAtOnce(t *testing.T, s Store) {
	wanted := topic("shop")
	var made, found, conflicts, repeats atomic.Int32
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() {
			own := wanted
			if i%3 == 2 {
				own.Priority = push.Low
			}
			var created bool
			var err error
			for range 20 {
				if _, created, err = s.Create(t.Context(), &own); err == nil || errors.Is(err, subscriptions.ErrConflict) {
					break
				}
				repeats.Add(1)
			}
			switch {
			case errors.Is(err, subscriptions.ErrConflict):
				conflicts.Add(1)
			case err != nil:
				t.Error(err)
			case created:
				made.Add(1)
			default:
				found.Add(1)
			}
		})
	}
	callers.Wait()
	if made.Load() > 1 || made.Load() == 0 && repeats.Load() == 0 || conflicts.Load() != 4 && conflicts.Load() != 8 {
		t.Errorf("%d made it, %d found it, %d found another, with %d repeats", made.Load(), found.Load(), conflicts.Load(), repeats.Load())
	}
}

func closeTopic(t *testing.T, s Store) {
	if _, err := s.Close(t.Context(), name()); !errors.Is(err, subscriptions.ErrNoTopic) {
		t.Errorf("closing none: %v", err)
	}
	open := made(t, s)
	in := s.Apply(t.Context(), open, []subscriptions.Change{{User: "u1", Mode: subscriptions.Push, At: start}})
	if in[0].Err != nil {
		t.Fatal(in[0].Err)
	}
	for range 2 { // again is the same
		closed, err := s.Close(t.Context(), open.Name)
		if err != nil || closed.State != subscriptions.Closed || closed.Version != 2 || !closed.ClosedAt.Equal(start.Truncate(time.Millisecond)) {
			t.Errorf("closed %+v, %v", closed, err)
		}
	}
	read, err := s.Topic(t.Context(), open.Name)
	if err != nil || read.State != subscriptions.Closed {
		t.Errorf("read %+v, %v", read, err)
	}
	if _, _, err := s.Create(t.Context(), open); !errors.Is(err, subscriptions.ErrTopicClosed) {
		t.Errorf("making it again: %v", err)
	}
	results := s.Apply(t.Context(), &read, []subscriptions.Change{
		{User: "u1", Mode: subscriptions.Left, At: start.Add(time.Second)}, {User: "u2", Mode: subscriptions.Push, At: start},
	})
	if results[0].Err != nil || !errors.Is(results[1].Err, subscriptions.ErrTopicClosed) {
		t.Errorf("leaving %v, joining %v", results[0].Err, results[1].Err)
	}
}

func topics(t *testing.T, s Store) {
	shop, bank := "shop-"+name(), "bank-"+name()
	var of = map[string][]string{}
	for i := range 7 {
		one := topic([]string{shop, bank}[i%2])
		made(t, s, func(t *subscriptions.Topic) { *t = one })
		of[one.App] = append(of[one.App], one.Name)
		of[""] = append(of[""], one.Name)
		taken := one
		taken.App = bank // who fails to take a name does not list it
		if taken.App != one.App {
			if _, _, err := s.Create(t.Context(), &taken); !errors.Is(err, subscriptions.ErrConflict) {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Close(t.Context(), of[shop][0]); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why  string
		apps []string
		want []string
	}{{"one app", []string{shop}, of[shop]}, {"two apps", []string{bank, shop}, of[""]}, {"no such app", []string{name()}, nil}, {"none", nil, nil}} {
		slices.Sort(tt.want)
		for _, limit := range []int{1, 2, 3, 100} {
			var got []string
			for after := ""; ; {
				page, err := s.Topics(t.Context(), tt.apps, after, limit)
				if err != nil || len(page) > limit {
					t.Fatalf("%s: %d, %v", tt.why, len(page), err)
				}
				for _, one := range page {
					got = append(got, one.Name)
					after = one.Name
				}
				if len(page) < limit {
					break
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s, %d a page: %q, want %q", tt.why, limit, got, tt.want)
			}
		}
	}
	for _, limit := range []int{0, -1, subscriptions.MaxPage + 1} {
		if _, err := s.Topics(t.Context(), []string{shop}, "", limit); err == nil {
			t.Errorf("a page of %d", limit)
		}
	}
}

// What breaks a rule is refused by every call, with the field.
func invalid(t *testing.T, s Store) {
	open := made(t, s, func(t *subscriptions.Topic) { t.Modes = subscriptions.ModesOf(subscriptions.Push) })
	field := func(err error) string {
		var invalid *subscriptions.InvalidError
		if !errors.As(err, &invalid) {
			return fmt.Sprint(err)
		}
		fields := make([]string, 0, 2)
		for _, f := range invalid.Faults {
			fields = append(fields, f.Field)
		}
		return strings.Join(fields, " ")
	}
	for _, tt := range []struct {
		why    string
		change subscriptions.Change
		want   string
	}{
		{"nobody", subscriptions.Change{Mode: subscriptions.Push}, "user"},
		{"a user of 129 bytes", subscriptions.Change{User: strings.Repeat("u", 129), Mode: subscriptions.Push}, "user"},
		{"a user that is no text", subscriptions.Change{User: "a\xff", Mode: subscriptions.Push}, "user"},
		{"a user with a line end who leaves", subscriptions.Change{User: "a\nb"}, "user"},
		{"a mode that the topic has not", subscriptions.Change{User: "u", Mode: subscriptions.Pull}, "mode"},
		{"no mode", subscriptions.Change{User: "u", Mode: 7}, "mode"},
		{"above the topic's priority", subscriptions.Change{User: "u", Mode: subscriptions.Push, Priority: push.High}, "priority"},
		{"all at once", subscriptions.Change{Mode: 7, Priority: 9}, "user mode priority"},
	} {
		tt.change.At = start
		if got := field(s.Apply(t.Context(), open, []subscriptions.Change{tt.change})[0].Err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
	if _, _, err := s.Create(t.Context(), &subscriptions.Topic{Name: "../x"}); field(err) != "name app service_type metadata/priority metadata/security modes size" {
		t.Errorf("a topic of nothing: %v", err)
	}
	if _, err := s.Topic(t.Context(), "A"); field(err) != "name" {
		t.Errorf("a name with a capital: %v", err)
	}
	if _, err := s.Close(t.Context(), ""); field(err) != "name" {
		t.Errorf("no name: %v", err)
	}
	if _, err := s.OfUser(t.Context(), "", "", 1); field(err) != "user" {
		t.Errorf("the topics of nobody: %v", err)
	}
	if _, err := s.Subscription(t.Context(), open.Name, ""); field(err) != "user" {
		t.Errorf("the subscription of nobody: %v", err)
	}
	if _, err := s.OfUser(t.Context(), "u", "", 0); err == nil {
		t.Error("a page of nothing")
	}
	for _, l := range []subscriptions.Layout{{Number: 1}, {Number: 1, Buckets: -1}, {Number: 1, Buckets: subscriptions.Slices + 1}} {
		if _, err := s.Page(t.Context(), open.Name, l, 0, "", 1); err == nil {
			t.Errorf("a layout of %d buckets", l.Buckets)
		}
	}
	if _, err := s.Page(t.Context(), open.Name, open.Layout, subscriptions.Slices, "", 1); err == nil {
		t.Error("a slice that there is not")
	}
}

// one is what a topic has of a user, from the side of the topic; it must be the same from
// the user's.
func one(t *testing.T, s Store, of *subscriptions.Topic, user string) subscriptions.Subscription {
	t.Helper()
	var found subscriptions.Subscription
	page, err := s.Page(t.Context(), of.Name, of.Layout, subscriptions.Slice(user), "", subscriptions.MaxPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range page {
		if p.User == user {
			found = p
		}
	}
	var theirs subscriptions.Subscription
	list, err := s.OfUser(t.Context(), user, "", subscriptions.MaxPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.Topic == of.Name {
			if theirs = m.Subscription; m.App != of.App || m.Security != of.Security {
				t.Errorf("the user's list has app %s and security %s", m.App, m.Security)
			}
		}
	}
	if found != theirs {
		t.Errorf("the topic has %+v, the user %+v", found, theirs)
	}
	alone, err := s.Subscription(t.Context(), of.Name, user)
	if found.User == "" {
		theirs.User = user // who has no row is told by name
	}
	if err != nil || alone != theirs {
		t.Errorf("by itself it is %+v, %v; in lists %+v", alone, err, theirs)
	}
	return found
}

// apply makes one change and says what it made of it.
func apply(t *testing.T, s Store, of *subscriptions.Topic, c subscriptions.Change) subscriptions.Subscription {
	t.Helper()
	r := s.Apply(t.Context(), of, []subscriptions.Change{c})
	if r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	return r[0].Subscription
}

func join(t *testing.T, s Store) {
	of, user := made(t, s), "ü/"+name()
	ms := start.Truncate(time.Millisecond)
	for i, step := range []struct {
		why    string
		change subscriptions.Change
		want   subscriptions.Subscription
	}{
		{"joins", subscriptions.Change{Mode: subscriptions.Push}, subscriptions.Subscription{Mode: subscriptions.Push, Since: ms}},
		{"the same again", subscriptions.Change{Mode: subscriptions.Push}, subscriptions.Subscription{Mode: subscriptions.Push, Since: ms}},
		{"another mode and priority", subscriptions.Change{Mode: subscriptions.Pull, Priority: push.Low}, subscriptions.Subscription{Mode: subscriptions.Pull, Priority: push.Low, Since: ms}},
		{"leaves", subscriptions.Change{}, subscriptions.Subscription{Mode: subscriptions.Left, Priority: push.Low, Since: ms, Left: ms.Add(3 * time.Second)}},
		{"leaves again", subscriptions.Change{}, subscriptions.Subscription{Mode: subscriptions.Left, Priority: push.Low, Since: ms, Left: ms.Add(4 * time.Second)}},
		{"joins again", subscriptions.Change{Mode: subscriptions.Push}, subscriptions.Subscription{Mode: subscriptions.Push, Since: ms.Add(5 * time.Second), Left: ms.Add(4 * time.Second)}},
	} {
		step.change.User, step.want.User, step.change.At = user, user, start.Add(time.Duration(i)*time.Second)
		if got := apply(t, s, of, step.change); got != step.want {
			t.Errorf("%s: answered\n%+v\nwant\n%+v", step.why, got, step.want)
		}
		if got := one(t, s, of, user); got != step.want {
			t.Errorf("%s: stored\n%+v\nwant\n%+v", step.why, got, step.want)
		}
	}
}

// What comes late changes nothing that a later request has set.
func late(t *testing.T, s Store) {
	of := made(t, s)
	for _, tt := range []struct {
		why   string
		order []subscriptions.Change // At in seconds
		want  subscriptions.Mode
	}{
		{"left before he joins", []subscriptions.Change{{Mode: subscriptions.Left}}, subscriptions.Left},
		{"a join that comes after the leave that followed it", []subscriptions.Change{{Mode: subscriptions.Left, At: second(2)}, {Mode: subscriptions.Push, At: second(1)}}, subscriptions.Left},
		{"a leave that comes after the join that followed it", []subscriptions.Change{{Mode: subscriptions.Push, At: second(2)}, {Mode: subscriptions.Left, At: second(1)}}, subscriptions.Push},
		{"a repeat of the first after the second", []subscriptions.Change{{Mode: subscriptions.Push, At: second(1)}, {Mode: subscriptions.Pull, At: second(2)}, {Mode: subscriptions.Push, At: second(1)}}, subscriptions.Pull},
		{"a microsecond counts", []subscriptions.Change{{Mode: subscriptions.Left, At: second(1).Add(time.Microsecond)}, {Mode: subscriptions.Push, At: second(1)}}, subscriptions.Left},
	} {
		user := name()
		for _, c := range tt.order {
			if c.User = user; c.At.IsZero() {
				c.At = start
			}
			apply(t, s, of, c)
		}
		if got := one(t, s, of, user); got.Mode != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got.Mode, tt.want)
		}
	}
}

func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

// Of two changes at one time the one that stands does not depend on which is made first.
func sameTime(t *testing.T, s Store) {
	of := made(t, s)
	changes := []subscriptions.Change{
		{Mode: subscriptions.Left}, {Mode: subscriptions.Push, Priority: push.Medium}, {Mode: subscriptions.Pull, Priority: push.Low},
	}
	for _, a := range changes {
		for _, b := range changes {
			var got [2]subscriptions.Subscription
			for i, order := range [][]subscriptions.Change{{a, b}, {b, a}} {
				user := name()
				for _, c := range order {
					c.User, c.At = user, start
					apply(t, s, of, c)
				}
				got[i] = one(t, s, of, user)
				got[i].User = ""
			}
			if got[0] != got[1] {
				t.Errorf("%s and %s: %+v, the other way %+v", a.Mode, b.Mode, got[0], got[1])
			}
		}
	}
}

// A user has at most so many topics. Who has them may still change and leave them.
func mostTopics(t *testing.T, s Store, most int) {
	user := name()
	app := name()
	var joining sync.WaitGroup
	const atOnce = 16
	for part := range atOnce {
		joining.Go(func() {
			for i := part; i < most; i += atOnce {
				of := topic(app) // none of the lists needs it to be made
				of.Layout = subscriptions.Layout{Number: 1, Buckets: 1}
				of.State = subscriptions.Opened
				of.Name = fmt.Sprintf("%s.%d", app, i)
				if r := s.Apply(t.Context(), &of, []subscriptions.Change{{User: user, Mode: subscriptions.Push, At: start}}); r[0].Err != nil {
					t.Errorf("topic %d: %v", i, r[0].Err)
				}
			}
		})
	}
	joining.Wait()
	more := made(t, s)
	first := *more
	first.Name = app + ".0"
	if r := s.Apply(t.Context(), more, []subscriptions.Change{{User: user, Mode: subscriptions.Push, At: start}}); !errors.Is(r[0].Err, subscriptions.ErrTooMany) {
		t.Errorf("one more: %v", r[0].Err)
	}
	if got := apply(t, s, &first, subscriptions.Change{User: user, Mode: subscriptions.Pull, At: second(1)}); got.Mode != subscriptions.Pull {
		t.Errorf("another mode of one that he has: %+v", got)
	}
	apply(t, s, more, subscriptions.Change{User: user, Mode: subscriptions.Left, At: second(1)})
	apply(t, s, &first, subscriptions.Change{User: user, Mode: subscriptions.Left, At: second(2)})
	apply(t, s, more, subscriptions.Change{User: user, Mode: subscriptions.Push, At: second(2)})
	var seen []string
	for after := ""; ; {
		list, err := s.OfUser(t.Context(), user, after, 1+most/3)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			seen = append(seen, m.Topic)
			after = m.Topic
		}
		if len(list) < 1+most/3 {
			break
		}
	}
	if len(seen) != most+1 || !slices.IsSorted(seen) {
		t.Errorf("his list has %d topics, sorted %v", len(seen), slices.IsSorted(seen))
	}
}

// Every subscriber is on one page of his slice, whatever the buckets are, and all of them
// are in a run over all slices.
func pages(t *testing.T, s Store) {
	var users []string
	for i := range 300 {
		users = append(users, fmt.Sprintf("user-%d", i))
	}
	for _, size := range []subscriptions.Size{subscriptions.Small, subscriptions.Medium, subscriptions.Large} {
		of := made(t, s, func(t *subscriptions.Topic) { t.Size = size })
		var changes []subscriptions.Change
		for _, u := range users {
			changes = append(changes, subscriptions.Change{User: u, Mode: subscriptions.Push, At: start})
		}
		for _, r := range s.Apply(t.Context(), of, changes) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		for i, part := range []struct{ first, last int }{{0, subscriptions.Slices - 1}, {1023, 1023}, {7, 6}, {100, 611}} {
			if i == 3 && size == subscriptions.Large { // whose queries are as many as slices
				continue
			}
			want := map[string]bool{}
			for _, u := range users {
				if slice := subscriptions.Slice(u); slice >= part.first && slice <= part.last {
					want[u] = true
				}
			}
			for _, limit := range []int{1, 7, 300, 301} {
				if limit != 300 && size != subscriptions.Small { // it takes a query for each bucket and row
					continue
				}
				seen := map[string]bool{}
				var before subscriptions.Position
				for end := false; !end; {
					list, next, ended, err := s.Run(t.Context(), of.Name, of.Layout, part.first, part.last, before, limit)
					if err != nil || len(list) > limit {
						t.Fatalf("%d, %v", len(list), err)
					}
					for _, one := range list {
						if seen[one.User] {
							t.Fatalf("%s is there twice", one.User)
						}
						seen[one.User] = true
					}
					if end = ended; !end && next == before {
						t.Fatalf("no way on from %+v", next)
					}
					before = next
				}
				if len(seen) != len(want) {
					t.Errorf("%s, %d to %d, %d a page: %d of %d", size, part.first, part.last, limit, len(seen), len(want))
				}
				for u := range want {
					if !seen[u] {
						t.Errorf("%s is not there", u)
					}
				}
			}
		}
		slice := subscriptions.Slice(users[0])
		var got []string
		for after := ""; ; {
			page, err := s.Page(t.Context(), of.Name, of.Layout, slice, after, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			after = page[0].User
			got = append(got, after)
		}
		if !slices.IsSorted(got) || !slices.Contains(got, users[0]) {
			t.Errorf("%s: slice %d has %q", size, slice, got)
		}
	}
}

// Who has given up is told so, for each change.
func gone(t *testing.T, s Store) {
	of := made(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, r := range s.Apply(ctx, of, []subscriptions.Change{{User: "a", Mode: subscriptions.Push, At: start}, {Mode: subscriptions.Push}, {User: "c", Mode: subscriptions.Push, At: start}}) {
		var invalid *subscriptions.InvalidError
		if i == 1 && !errors.As(r.Err, &invalid) || i != 1 && !errors.Is(r.Err, context.Canceled) {
			t.Errorf("change %d: %v", i, r.Err)
		}
	}
	if _, err := s.OfUser(ctx, "a", "", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("the topics of a user: %v", err)
	}
	if _, err := s.Subscription(ctx, of.Name, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a subscription: %v", err)
	}
	if _, err := s.Topics(ctx, []string{"shop"}, "", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("topics: %v", err)
	}
}
