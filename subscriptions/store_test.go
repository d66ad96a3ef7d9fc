package subscriptions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/push"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("no hosts available")

// fakeTables are Tables with the rows of a few statements, which can fail.
type fakeTables struct {
	mu      sync.Mutex
	topics  map[string][]any // guarded by mu; what is read of a topic by its name
	said    []string         // guarded by mu; statements
	failing string           // guarded by mu; statements that begin so fail
	hanging string           // guarded by mu; or end with their context alone
	flying  int              // guarded by mu; statements in progress
	most    int              // guarded by mu
	slow    time.Duration    // guarded by mu; how long a statement takes
}

func (f *fakeTables) do(ctx context.Context, statement string) error {
	f.mu.Lock()
	f.said = append(f.said, statement)
	failing, hanging, slow := f.failing, f.hanging, f.slow
	f.flying++
	f.most = max(f.most, f.flying)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.flying--
		f.mu.Unlock()
	}()
	if hanging != "" && strings.HasPrefix(statement, hanging) {
		<-ctx.Done()
		return ctx.Err()
	}
	if failing != "" && strings.HasPrefix(statement, failing) {
		return errAway
	}
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *fakeTables) Exec(ctx context.Context, statement string, values ...any) error {
	if err := f.do(ctx, statement); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch name, _ := values[0].(string); statement {
	case insertTopic:
		if f.topics[name] == nil {
			f.topics[name] = append(append([]any{}, values...), time.Time{})
		}
	case closeTopic:
		row := f.topics[values[1].(string)]
		row[len(row)-1] = values[0]
	}
	return nil
}

func (f *fakeTables) Query(ctx context.Context, statement string, values, dest []any, row func()) error {
	if err := f.do(ctx, statement); err != nil {
		return err
	}
	if statement != selectTopic {
		return nil
	}
	f.mu.Lock()
	found := f.topics[values[0].(string)]
	f.mu.Unlock()
	if found == nil {
		return nil
	}
	for i, value := range found {
		switch to := dest[i].(type) {
		case *string:
			*to = value.(string)
		case *int8:
			*to = value.(int8)
		case *int:
			*to = value.(int)
		case *int64:
			*to = value.(int64)
		case *time.Time:
			*to = value.(time.Time)
		case *[]string:
			*to = value.([]string)
		}
	}
	row()
	return nil
}

// reads counts the statements that read a topic.
func (f *fakeTables) reads() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.said {
		if s == selectTopic {
			n++
		}
	}
	return n
}

func newFake() *fakeTables { return &fakeTables{topics: map[string][]any{}} }

func offers() *Topic {
	return &Topic{Name: "offers", App: "shop", Service: "promotional", Priority: push.Medium, Security: Open, Modes: ModesOf(Push), Size: Small}
}

// A topic is read once in Fresh, by an injected clock; what is closed here is seen at once,
// and a failure is not remembered.
func TestTopicsAreBelievedForAWhile(t *testing.T) {
	f, now := newFake(), time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s, other := New(Options{Tables: f, Now: clock}), New(Options{Tables: f, Now: clock})
	if _, err := s.Topic(t.Context(), "offers"); !errors.Is(err, ErrNoTopic) {
		t.Fatal(err)
	}
	if _, _, err := other.Create(t.Context(), offers()); err != nil {
		t.Fatal(err)
	}
	get := func(want State, reads int) {
		t.Helper()
		before := f.reads()
		got, err := s.Topic(t.Context(), "offers")
		if err != nil || got.State != want || f.reads()-before != reads {
			t.Errorf("%s after %d reads, %v; want %s after %d", got.State, f.reads()-before, err, want, reads)
		}
	}
	get(Opened, 1) // that there was none was not remembered
	get(Opened, 0)
	now = now.Add(5*time.Second - 1)
	get(Opened, 0)
	if _, err := other.Close(t.Context(), "offers"); err != nil {
		t.Fatal(err)
	}
	get(Opened, 0) // the other one's closing is seen later
	now = now.Add(1)
	f.mu.Lock()
	f.failing = "SELECT"
	f.mu.Unlock()
	if _, err := s.Topic(t.Context(), "offers"); !errors.Is(err, errAway) {
		t.Errorf("away: %v", err)
	}
	f.mu.Lock()
	f.failing = ""
	f.mu.Unlock()
	get(Closed, 1)
	get(Closed, 0)
}

// A read that was begun before a closing does not open a topic again; and names that are
// asked for without end do not fill the memory.
func TestCacheKeepsTheNewer(t *testing.T) {
	now := time.Now()
	c := cache{fresh: time.Second, now: func() time.Time { return now }}
	open := offers().asMade(now)
	closed := open
	closed.close(now)
	c.keep(&closed)
	c.keep(&open)
	if got, ok := c.get("offers"); !ok || got.State != Closed {
		t.Errorf("%v, %v", got.State, ok)
	}
	for i := range 3 * maxCached {
		one := open
		one.Name = fmt.Sprint("t", i)
		c.keep(&one)
		if len(c.topics) > maxCached {
			t.Fatalf("%d topics", len(c.topics))
		}
	}
	fresh := New(Options{Tables: newFake(), Fresh: -1})
	fresh.topics.keep(&open)
	if _, ok := fresh.topics.get("offers"); ok {
		t.Error("it is believed all the same")
	}
}

// Whichever statement of a creation fails, nothing is promised, and a repeat makes it.
func TestACreationFailsHalfway(t *testing.T) {
	for _, failing := range []string{"SELECT name, app", "INSERT INTO topics_by_app", "INSERT INTO topics (", "UPDATE"} {
		f := newFake()
		f.failing = failing
		s := New(Options{Tables: f})
		_, created, err := s.Create(t.Context(), offers())
		if failing == "UPDATE" {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Close(t.Context(), "offers"); !errors.Is(err, errAway) {
				t.Errorf("closing: %v", err)
			}
			if got, err := s.Topic(t.Context(), "offers"); err != nil || got.State != Opened {
				t.Errorf("after a closing that failed: %s, %v", got.State, err)
			}
			continue
		}
		if !errors.Is(err, errAway) || created {
			t.Errorf("%s fails: created %v, %v", failing, created, err)
		}
		f.failing = ""
		if _, created, err := s.Create(t.Context(), offers()); err != nil || !created {
			t.Errorf("again after %s: created %v, %v", failing, created, err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		f.failing = "SELECT user FROM subscriptions_by_user"
		if err := s.Check(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("a table is missing: %v", err)
		}
	}
}

// lostAnswer loses the answer to a creation.
type lostAnswer struct{ *fakeTables }

func (l lostAnswer) Exec(ctx context.Context, statement string, values ...any) error {
	if err := l.fakeTables.Exec(ctx, statement, values...); err != nil || statement != insertTopic {
		return err
	}
	return errAway
}

// Of a creation whose answer is lost, what is there says that it was made.
func TestAnAnswerIsLost(t *testing.T) {
	if made, created, err := New(Options{Tables: lostAnswer{newFake()}}).Create(t.Context(), offers()); err != nil || !created || made.Name != "offers" {
		t.Errorf("created %v, %+v, %v", created, made, err)
	}
}

// A row that a bare UPDATE would have left is no topic.
func TestARowWithoutATopic(t *testing.T) {
	f := newFake()
	f.topics["offers"] = []any{"offers", "", "", int8(0), int8(0), int8(0), int8(0), 0, 0, "", time.Time{}, int64(0), []string(nil), time.Now()}
	if _, err := New(Options{Tables: f}).Topic(t.Context(), "offers"); !errors.Is(err, ErrNoTopic) {
		t.Error(err)
	}
}

// A store that is slow or away within a batch says of each change whether it was made: as
// many as there are places are under way at once, and none is forgotten.
func TestABatchIsCutOff(t *testing.T) {
	topic := offers().asMade(time.Now())
	changes := make([]Change, 100)
	for i := range changes {
		changes[i] = Change{User: fmt.Sprint("u", i), Mode: Push, At: time.Now()}
	}
	made := func(results []Result) (n int) {
		for i, r := range results {
			switch {
			case r.Err == nil && r.Subscription.User != changes[i].User:
				t.Errorf("the result of %s is of %q", changes[i].User, r.Subscription.User)
			case r.Err == nil:
				n++
			}
		}
		return n
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = 100 * time.Millisecond // a change takes three statements
		s := New(Options{Tables: f, Concurrency: 8})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		results := s.Apply(ctx, &topic, changes)
		if n, took := made(results), time.Since(start); n != 24 || took != time.Second || f.most != 8 {
			t.Errorf("%d were made in %v, %d at once", n, took, f.most)
		}
		for _, r := range results[32:] {
			if !errors.Is(r.Err, context.DeadlineExceeded) {
				t.Fatalf("a change that was not begun: %v", r.Err)
			}
		}
		f.slow, f.hanging = 0, "BEGIN"
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := made(s.Apply(ctx, &topic, changes)); n != 0 || f.flying != 0 {
			t.Errorf("%d were made, %d are under way", n, f.flying)
		}
		f.hanging, f.failing = "", "SELECT mode FROM"
		for _, r := range s.Apply(t.Context(), &topic, changes) {
			if !errors.Is(r.Err, errAway) {
				t.Fatalf("his topics cannot be counted: %v", r.Err)
			}
		}
		if f.failing = ""; made(s.Apply(t.Context(), &topic, changes)) != len(changes) {
			t.Error("all again is not all")
		}
	})
}

// A large topic in which nobody is has a thousand empty buckets: several are asked at once.
func TestEmptyBucketsAreAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = 10 * time.Millisecond
		s := New(Options{Tables: f})
		var place Position
		began, calls := time.Now(), 0
		for end := false; !end; calls++ {
			list, next, over, err := s.Run(t.Context(), "news", Layout{Buckets: Slices}, 0, Slices-1, place, MaxPage)
			if err != nil || len(list) > 0 {
				t.Fatalf("%d rows, %v", len(list), err)
			}
			place, end = next, over
		}
		if took := time.Since(began); calls != Slices/mostBuckets || len(f.said) != Slices || f.most != atOnce || took > 2*time.Second {
			t.Errorf("%d calls, %d statements, %d at once, %v", calls, len(f.said), f.most, took)
		}
	})
}

// full are Tables whose every partition has a few rows, and which take no limit below 1, as
// Cassandra does.
type full struct{ Tables }

func (full) Query(_ context.Context, statement string, values, dest []any, row func()) error {
	limit := values[len(values)-1].(int)
	if statement != selectRun || limit < 1 {
		return fmt.Errorf("invalid: limit %d of %s", limit, statement)
	}
	for n := range min(limit, 5) {
		*dest[0].(*string) = fmt.Sprint("u", values[3], "-", n)
		row()
	}
	return nil
}

// A page that is full at the end of a partition ends there.
func TestAPageThatAPartitionFills(t *testing.T) {
	s := New(Options{Tables: full{}})
	for _, limit := range []int{5, 10, 15, 35} {
		list, next, end, err := s.Run(t.Context(), "news", Layout{Buckets: Slices}, 0, Slices-1, Position{}, limit)
		if err != nil || len(list) != limit || end || next.User != list[limit-1].User {
			t.Errorf("%d rows of %d, then %+v, %t, %v", len(list), limit, next, end, err)
		}
	}
}

// Slices nest in buckets, whatever their count is; and no slice is empty of hashes.
func TestSlicesNestInBuckets(t *testing.T) {
	for _, buckets := range []int{1, 2, 3, 7, 64, 100, 1000, 1023, 1024} {
		l := Layout{1, buckets}
		next := 0
		for bucket := range buckets {
			first, last := l.first(bucket), l.first(bucket+1)-1
			if first != next || last < first {
				t.Fatalf("%d buckets: bucket %d has %d to %d behind %d", buckets, bucket, first, last, next-1)
			}
			for slice := first; slice <= last; slice++ {
				if l.Bucket(slice) != bucket {
					t.Fatalf("%d buckets: slice %d is in %d, want %d", buckets, slice, l.Bucket(slice), bucket)
				}
			}
			next = last + 1
		}
		if next != Slices {
			t.Errorf("%d buckets end at %d", buckets, next)
		}
	}
	count := [Slices]int{}
	for i := range 100 * Slices {
		count[Slice(fmt.Sprint("user-", i))]++
	}
	for slice, n := range count {
		if n < 50 || n > 150 {
			t.Errorf("slice %d has %d of 100", slice, n)
		}
	}
	// These are in fan-outs that are under way: they must never change.
	for user, want := range map[string]int{"u42": 246, "": 957 /* xxhash64 is 0xef46db3751d8e999 */} {
		if got := Slice(user); got != want {
			t.Errorf("%q is in slice %d, want %d", user, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for _, word := range []string{"open", "restricted", "confidential"} {
		if s, ok := ParseSecurity(word); !ok || s.String() != word {
			t.Error(word)
		}
	}
	for _, word := range []string{"small", "medium", "large"} {
		if s, ok := ParseSize(word); !ok || s.String() != word || s.buckets() < 1 {
			t.Error(word)
		}
	}
	for _, word := range []string{"push", "pull"} {
		if m, ok := ParseMode(word); !ok || m.String() != word || !ModesOf(Push, Pull).Has(m) {
			t.Error(word)
		}
	}
	for _, word := range []string{"", "left", "Push", "unknown"} {
		if _, ok := ParseMode(word); ok {
			t.Errorf("%q is a mode", word)
		}
	}
	if got := Mode(9).String() + Security(0).String() + State(0).String(); got != "unknownunknownunknown" {
		t.Error(got)
	}
	if m := ModesOf(Push); m.Has(Pull) || m.Has(Left) || m.Has(7) {
		t.Errorf("%d has all", m)
	}
}
