package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// registered is a registration of a device of FCM as a change; repeats marks it as one that
// was only said again.
func registered(t *testing.T, user, token string, offset int64, repeats bool) change {
	t.Helper()
	value, err := record.DeviceValue(&push.Device{Platform: push.FCM, App: "shop", Token: token, RegisteredAt: time.UnixMilli(1e12)})
	if err != nil {
		t.Fatal(err)
	}
	return changeOf(t, Record{Key: record.DeviceKey(user, push.DeviceHash(push.FCM, token)), Value: value, Repeats: repeats}, offset)
}

func changeOf(t *testing.T, r Record, offset int64) change {
	t.Helper()
	c, err := readChange(0, &FetchedRecord{Record: r, Offset: offset}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func lostUser(shard int, user string) lostKey {
	return lostKey{shard: shard, kase: record.LostUser + user, build: 7}
}

func keysOf(lost ...lostKey) map[string]lostKey {
	keys := map[string]lostKey{}
	for _, l := range lost {
		keys[l.key()] = l
	}
	return keys
}

// Of what is polled the changes of the keys are held, each once: a follower that was set
// back hands out again what was held, or scanned, before.
func TestWhatIsHeldForARebuild(t *testing.T) {
	p := repair{keys: keysOf(lostUser(shards.UserShard("ada"), "ada")), next: []int64{6}}
	var polled []change
	for offset := range int64(9) {
		polled = append(polled, registered(t, []string{"ada", "eve"}[offset%2], "t", offset, false))
	}
	for _, pos := range []int64{3, 7, 6, 9} { // where each poll ends; each begins with the first record
		p.hold(polled[:pos], []int64{pos})
	}
	var held []int64
	for _, c := range p.held {
		held = append(held, c.Offset)
	}
	if !slices.Equal(held, []int64{6, 8}) || !slices.Equal(p.next, []int64{9}) {
		t.Errorf("held are the offsets %v up to %v, want 6 and 8 up to 9", held, p.next)
	}
}

// Who stops a reading waits until it is over, and ends it: else it would go on with the
// follower of the next one.
func TestAReadingIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := repair{keys: keysOf(lostUser(3, "ada")), held: make([]change, 1), cancel: cancel, done: make(chan scanned, 1)}
	over := false
	go func(done chan scanned) {
		defer close(done)
		<-ctx.Done()
		over = true
		done <- scanned{}
	}(p.done)
	p.stop()
	if !over || p.keys != nil || p.held != nil || p.done != nil {
		t.Errorf("the reading is over: %v; left is %+v", over, p)
	}
	p.stop() // none goes on
}

// slow is a follower that needs a while to end.
type slow struct {
	spanning
	reading, ended *bool
}

func (s slow) Seek(context.Context, []int64) error { return nil }
func (s slow) Poll(ctx context.Context) ([]Fetched, error) {
	*s.reading = true
	<-ctx.Done()
	time.Sleep(time.Second)
	*s.ended = true
	return nil, ctx.Err()
}

// A registry that begins to follow anew leaves no reading of the topic behind.
func TestAReadingEndsWithItsFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reading, ended bool
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.topics.Rescan = slow{spanning{spans: []Span{{0, 9}}}, &reading, &ended}
		r.topics.Follower = &breaking{spans: 1}
		r.shards[3] = shardState{known: true}
		r.pos = []int64{9}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.repair.ask(3, record.LostUser, "ada")
		r.startRepair(ctx)
		synctest.Wait()
		if !reading {
			t.Fatal("there is no reading")
		}
		if err := r.follow(ctx); !errors.Is(err, errBroken) || !ended || r.repair.done != nil {
			t.Errorf("it ends with %v, the reading is over: %v", err, ended)
		}
	})
}

// askedOnce is a follower that counts how often it is asked, and fails.
type askedOnce struct {
	Follower
	times *int
}

func (a askedOnce) Spans(context.Context) ([]Span, error) {
	*a.times++
	return nil, errBroken
}

// The topic is read once more only for what can be rebuilt, one reading at a time, and after
// one that failed not before its rest is over.
func TestWhenARebuildBegins(t *testing.T) {
	const known, unknown = 3, 4
	for _, tt := range []struct {
		why    string
		set    func(r *Registry)
		begins bool
	}{
		{"a value is lost", func(r *Registry) { r.repair.ask(known, record.LostUser, "ada") }, true},
		{"nothing is lost", func(*Registry) {}, false},
		{"its shard is begun anew", func(r *Registry) { r.repair.ask(unknown, record.LostUser, "ada") }, false},
		{"another one is rebuilt", func(r *Registry) {
			r.repair.ask(known, record.LostUser, "ada")
			r.repair.keys = keysOf(lostUser(known, "bob"))
		}, false},
		{"a reading has just failed", func(r *Registry) {
			r.repair.ask(known, record.LostUser, "ada")
			r.rescanAt = time.Now().Add(time.Hour)
		}, false},
		{"a reading has failed long ago", func(r *Registry) {
			r.repair.ask(known, record.LostUser, "ada")
			r.rescanAt = time.Now().Add(-time.Hour)
		}, true},
	} {
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		times := 0
		r.topics.Rescan = askedOnce{times: &times}
		r.pos = []int64{9}
		r.shards[known].known = true
		tt.set(r)
		r.startRepair(t.Context())
		if began := r.repair.done != nil; began != tt.begins {
			t.Errorf("%s: a reading has begun: %v", tt.why, began)
		}
		if r.repair.stop(); (times == 1) != tt.begins {
			t.Errorf("%s: the topic was asked %d times", tt.why, times)
		}
	}
}

// A reading that failed leaves nothing behind that would hold up the next, which has to wait
// as long as any retry may.
func TestAReadingThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan scanned, 1)
		done <- scanned{err: errBroken}
		close(done)
		r.repair = repair{keys: keysOf(lostUser(3, "ada")), cancel: func() {}, done: done}
		if err := r.finishRepair(t.Context()); err != nil {
			t.Error(err)
		}
		if r.repair.keys != nil || r.repair.done != nil || testutil.ToFloat64(r.metrics.errors) != 1 {
			t.Errorf("left is %+v, %v errors were counted", r.repair, testutil.ToFloat64(r.metrics.errors))
		}
		if want := time.Now().Add(r.options.MaxRetryDelay); !r.rescanAt.Equal(want) {
			t.Errorf("the next may be in %v, want %v", time.Until(r.rescanAt), r.options.MaxRetryDelay)
		}
	})
}

// notes is a follower that notes where it is sent.
type notes struct {
	oneRun
	start int64
	sent  *[]int64
}

func (n notes) Spans(context.Context) ([]Span, error) { return []Span{{n.start, n.run.Next}}, nil }
func (n notes) Seek(_ context.Context, offsets []int64) error {
	*n.sent = offsets
	return nil
}

// A rebuild reads the topic from its start, wherever that is by now.
func TestARebuildReadsFromTheStart(t *testing.T) {
	var sent []int64
	_, err := scan(t.Context(), notes{oneRun{run: Fetched{Next: 20}}, 4, &sent}, []int64{20}, keysOf(lostUser(3, "ada")))
	if err != nil || !slices.Equal(sent, []int64{4}) {
		t.Errorf("it begins at %v, %v; want 4", sent, err)
	}
	sent = nil
	if _, err := scan(t.Context(), notes{oneRun{}, 20, &sent}, []int64{20}, nil); err != nil || !slices.Equal(sent, []int64{20}) {
		t.Errorf("of nothing it begins at %v, %v", sent, err)
	}
}

// What was rebuilt is written only into the build, and at the offsets, that it is of. What
// cannot be of use any more is forgotten.
func TestWhichValuesAreWritten(t *testing.T) {
	for _, tt := range []struct {
		why          string
		set          func(l *looking)
		writes, kept bool
	}{
		{"as when it began", func(*looking) {}, true, true},
		{"another build has begun", func(l *looking) { l.shards[l.shard].Version.Build = 8 }, false, false},
		{"the shard is to be begun anew", func(l *looking) { l.shards[l.shard].known = false }, false, false},
		{"another registry has applied more", func(l *looking) { l.shards[l.shard].Applied = []int64{6} }, false, true},
		{"the shard is behind", func(l *looking) { l.shards[l.shard].Applied = []int64{4} }, true, true},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		l.pos = []int64{5}
		l.shards[l.shard].Applied = []int64{5}
		c := registered(t, "ada", "t", 3, false)
		l.repair = repair{keys: keysOf(lostUser(l.shard, "ada")), next: []int64{5}, held: []change{c}}
		tt.set(l)
		writes, err := l.rebuilt(t.Context())
		if err != nil || (len(writes) == 1) != tt.writes || (len(l.repair.keys) == 1) != tt.kept {
			t.Errorf("%s: %d writes, %d keys are left, %v", tt.why, len(writes), len(l.repair.keys), err)
		}
		for _, w := range writes {
			if w.values[0] == nil || !slices.Equal(w.offsets, []int64{5}) {
				t.Errorf("%s: written is %q at %v", tt.why, w.values, w.offsets)
			}
		}
	}
}

// Nothing is written while the follower is where the rebuild is not.
func TestARebuildWaitsForItsFollower(t *testing.T) {
	for _, pos := range []int64{4, 5} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		done := make(chan scanned, 1)
		done <- scanned{}
		close(done)
		l.pos = []int64{pos}
		l.repair = repair{keys: keysOf(lostUser(l.shard, "ada")), next: []int64{5}, cancel: func() {}, done: done}
		if err := l.finishRepair(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waits := len(l.repair.keys) > 0; waits != (pos < 5) || waits == (l.repair.done == nil) || !waits && testutil.ToFloat64(l.metrics.repaired) != 1 {
			t.Errorf("the follower is at %d of 5: it waits %v, left is %+v", pos, waits, l.repair)
		}
	}
}

// What was scanned may lack what compaction took away, and what only repeats it counts. What
// came meanwhile is judged as in a complete shard: a repeat of what is not there does not
// count, nor a repeated removal of what is. That is so also at the second try.
func TestRepeatsInARebuild(t *testing.T) {
	hash := func(token string) string { return push.DeviceHash(push.FCM, token) }
	l := looksAgain(t, state.Version{Build: 7, Write: 2}, nil) // written since, so that the first write is fenced
	l.pos, l.shards[l.shard].Applied = []int64{9}, []int64{0}
	home := state.TokenHome(hash("old"))
	l.shards[home] = shardState{known: true, Shard: state.Shard{Ready: true, Version: state.Version{Build: 7, Write: 1}, Applied: []int64{0}}}
	l.client.HSet(t.Context(), shards.OffsetsKey(home), "v", state.Version{Build: 7, Write: 2}.String(), "0", "0")
	l.client.Set(t.Context(), shards.EpochKey(home), state.FormatBuild(7), 0)
	if home == l.shard {
		t.Fatal("the token is in its user's shard")
	}
	done := make(chan scanned, 1)
	done <- scanned{changes: []change{registered(t, "ada", "old", 1, true)}}
	close(done)
	late := []change{
		changeOf(t, Record{Key: record.DeviceKey("ada", hash("old")), Repeats: true}, 6),
		registered(t, "ada", "late", 7, true),
	}
	entry := lostKey{shard: home, kase: record.LostToken + hash("old"), build: 7}
	l.repair = repair{keys: keysOf(lostUser(l.shard, "ada"), entry), next: []int64{9}, held: late, cancel: func() {}, done: done}
	for range 2 {
		if err := l.finishRepair(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if l.repair.keys != nil || l.repair.held != nil || l.repair.done != nil {
		t.Errorf("left is %+v", l.repair)
	}
	var ada push.User
	if err := NewReader(l.client, false).Fetch(t.Context(), []string{"ada"}, []*push.User{&ada}); err != nil {
		t.Fatal(err)
	}
	if len(ada.Devices) != 1 || ada.Devices[0].Token != "old" {
		t.Errorf("ada has %+v, want the one that was scanned", ada.Devices)
	}
	raw, err := l.client.Get(t.Context(), state.TokenKey(hash("old"))).Bytes()
	if claims, err2 := record.DecodeClaims(raw, 7); err != nil || err2 != nil || len(claims) != 1 {
		t.Errorf("the token's claims are %v, %v, %v; want ada's", claims, err, err2)
	}
}

// A rebuild of some values of a shard says nothing of its others, and nothing of a shard that
// has to wait.
func TestARebuildTouchesNoOtherValue(t *testing.T) {
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
	l.pos = []int64{9}
	bob, token := neighbour("bob"), "t"
	home := state.TokenHome(push.DeviceHash(push.FCM, token))
	other := "" // a token of the same home
	for i := 0; other == ""; i++ {
		if s := fmt.Sprint("t", i); state.TokenHome(push.DeviceHash(push.FCM, s)) == home {
			other = s
		}
	}
	ready := shardState{known: true, Shard: state.Shard{Ready: true, Version: state.Version{Build: 7, Write: 1}, Applied: []int64{0}}}
	waits := shards.UserShard("eve")
	if waits == home || waits == l.shard || home == l.shard {
		t.Fatal("two of the three shards are one")
	}
	l.shards[home], l.shards[waits] = ready, ready
	l.shards[waits].Applied = []int64{10} // another registry is further
	lost := []lostKey{lostUser(l.shard, "ada"), lostUser(l.shard, bob), lostUser(waits, "eve"),
		{shard: home, kase: record.LostToken + push.DeviceHash(push.FCM, other), build: 7}}
	l.repair = repair{keys: keysOf(lost...), next: []int64{9}, held: []change{
		registered(t, "ada", token, 1, false), registered(t, bob, token, 2, false), // whose entry is not lost
		registered(t, "eve", "e", 3, false), registered(t, neighbour("cy"), other, 4, false)}} // whose record is not lost
	writes, err := l.rebuilt(t.Context())
	if err != nil || len(writes) != 2 {
		t.Fatalf("%d writes, %v; want one of each shard that does not wait", len(writes), err)
	}
	for _, w := range writes {
		keys := slices.Sorted(slices.Values(w.keys))
		want, cases := []string{lost[3].key()}, map[string]bool{lost[3].kase: false}
		if w.shard == l.shard {
			want = slices.Sorted(slices.Values([]string{lost[0].key(), lost[1].key()}))
			key := func(user string) string { return record.DeviceKey(user, push.DeviceHash(push.FCM, token)) }
			cases = map[string]bool{lost[0].kase: false, lost[1].kase: false, record.Overtaken + key("ada"): false, record.Overtaken + key(bob): false}
		}
		if !slices.Equal(keys, want) || !maps.Equal(w.cases, cases) || slices.ContainsFunc(w.values, func(v []byte) bool { return v == nil }) {
			t.Errorf("shard %d: written are %q with the cases %v, want %q and %v", w.shard, keys, w.cases, want, cases)
		}
	}
}
