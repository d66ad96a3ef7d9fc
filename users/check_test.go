package users

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// inProcess is a client of a Redis of the test's own; both go with the test.
func inProcess(t *testing.T) (*redis.Client, *embedded.Redis) {
	t.Helper()
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute}) // the machine may be busy with something else
	t.Cleanup(func() { _ = client.Close() })
	return client, server
}

// What is adopted of a shard: as it is, built anew, or with the follower set
// back to where it is.
func TestAdoptingAShard(t *testing.T) {
	const stale = time.Hour
	build, write := state.Version{Build: 7, Write: 1}, state.Version{Build: 7, Write: 2}
	believed := shardState{Shard: state.Shard{Version: build, Applied: []int64{10, 20}, Ready: true}, known: true, beat: time.UnixMilli(5)}
	found := func(change func(*state.Shard)) state.Shard {
		s := state.Shard{Version: write, Applied: []int64{10, 20}, At: time.Now(), Ready: true, Marker: state.FormatBuild(7)}
		change(&s)
		return s
	}
	old := time.Now().Add(-2 * stale)
	for _, tt := range []struct {
		why        string
		was        shardState
		got        state.Shard
		rebuild    bool
		anew, back bool
	}{
		{"as believed", believed, found(func(*state.Shard) {}), false, false, false},
		{"further", believed, found(func(s *state.Shard) { s.Applied[1] = 21 }), false, false, false},
		{"further, and old", believed, found(func(s *state.Shard) { s.Applied[1], s.At = 21, old }), false, false, false},
		{"behind", believed, found(func(s *state.Shard) { s.Applied[1] = 19 }), false, false, true},
		{"behind, and old", believed, found(func(s *state.Shard) { s.Applied[1], s.At = 19, old }), false, true, false},
		{"wiped", believed, state.Shard{}, false, true, false},
		{"its marker is gone", believed, found(func(s *state.Shard) { s.Marker, s.Ready = "", false }), false, true, false},
		{"a marker of another build", believed, found(func(s *state.Shard) { s.Marker, s.Ready = state.FormatBuild(8), false }), false, true, false},
		{"of another build", believed, found(func(s *state.Shard) { s.Version.Build, s.Marker = 8, state.FormatBuild(8) }), false, false, true},
		{"of another build that is not done", believed, found(func(s *state.Shard) { s.Version.Build, s.Marker, s.Ready = 8, "", false }), false, false, true},
		{"seen first", shardState{}, found(func(*state.Shard) {}), false, false, true},
		{"seen first, and old", shardState{}, found(func(s *state.Shard) { s.At = old }), false, true, false},
		{"seen first, by one who rebuilds", shardState{}, found(func(*state.Shard) {}), true, true, false},
		{"seen again, by one who rebuilds", believed, found(func(*state.Shard) {}), true, false, false},
	} {
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.options.MaxStale, r.options.Rebuild = stale, tt.rebuild
		r.shards[3], r.pos, r.spans = tt.was, []int64{12, 22}, []Span{{0, 100}, {0, 200}}
		r.shards[3].Applied = slices.Clone(tt.was.Applied)
		anew, back := r.adopt(3, tt.got)
		st := &r.shards[3]
		if anew != tt.anew || back != tt.back || st.known == anew || !slices.Equal(st.Applied, tt.got.Applied) {
			t.Errorf("%s: anew %v, set back %v; believes %+v", tt.why, anew, back, *st)
		}
		want := []int64{12, 22}
		if tt.back {
			want = tt.got.Applied
		}
		if !slices.Equal(r.pos, want) || r.seek != tt.back {
			t.Errorf("%s: the follower goes to %v, seeks %v", tt.why, r.pos, r.seek)
		}
		if !st.Ready && !slices.Equal(st.target, []int64{100, 200}) || st.Ready && st.target != nil {
			t.Errorf("%s: to be built up to %v", tt.why, st.target)
		}
		if same := tt.was.known && tt.got.Version.Build == 7; same != (st.beat == believed.beat) {
			t.Errorf("%s: its last beat is %v", tt.why, st.beat)
		}
	}
}

// Of shards that somebody else has written only those that are further are gone on
// with; where writes were lost the follower goes back, and what was wiped is
// looked at soon.
func TestShardsThatOthersHaveWritten(t *testing.T) {
	client, _ := inProcess(t)
	for _, tt := range []struct {
		list, further []int
		recheck, seek bool
	}{
		{[]int{1}, []int{1}, false, false},
		{[]int{2}, nil, true, false},
		{[]int{3}, nil, false, true},
		{[]int{1, 2, 3}, []int{1}, true, true},
		{nil, nil, false, false},
	} {
		r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.had, r.pos, r.spans = 1, []int64{10}, []Span{{0, 100}}
		for s := range 4 {
			r.shards[s] = shardState{known: true, Shard: state.Shard{Ready: true, Version: state.Version{Build: 7, Write: 1}, Applied: []int64{10}}}
		}
		for s, applied := range map[int]int64{1: 11, 3: 9} { // shard 2 is not there
			client.HSet(t.Context(), shards.OffsetsKey(s), "v", state.Version{Build: 7, Write: 2}.String(), "0", applied, "at", time.Now().UnixMilli())
			client.Set(t.Context(), shards.EpochKey(s), state.FormatBuild(7), 0)
		}
		further, err := r.reload(t.Context(), tt.list)
		conflicts := testutil.ToFloat64(r.metrics.conflicts)
		if err != nil || !slices.Equal(further, tt.further) || r.recheck != tt.recheck || r.seek != tt.seek || conflicts != float64(len(tt.list)) {
			t.Errorf("of %v further are %v, looks again %v, goes back %v, %v conflicts, %v", tt.list, further, r.recheck, r.seek, conflicts, err)
		}
	}
}

// Offsets of another number of partitions are of a topic in which users have moved: who
// believes otherwise takes none of them over.
func TestAShardThatOthersFilledFromAnotherTopic(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		l := looksAgain(t, state.Version{Build: 8, Write: 1}, nil)
		for p := range partitions {
			l.client.HSet(t.Context(), shards.OffsetsKey(l.shard), strconv.Itoa(p), 9)
		}
		l.had, l.pos, l.spans = 2, []int64{5, 5}, []Span{{0, 9}, {0, 9}}
		l.shards[l.shard].Applied = []int64{5, 5}
		further, err := l.reload(t.Context(), []int{l.shard})
		if st := l.shards[l.shard]; !errors.Is(err, errPartitions) || len(further) > 0 || st.Version.Build != 7 || !slices.Equal(l.pos, []int64{5, 5}) {
			t.Errorf("filled from %d partitions instead of 2: %v, further %v; believes %+v", partitions, err, further, st)
		}
	}
}

// A build begins with nothing: no marker, no case and nothing in quarantine is left of the
// one before, and all of the topic is to be applied.
func TestABuildBeginsWithNothing(t *testing.T) {
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil, record.PreferencesKey("ada"))
	if err := l.client.SAdd(t.Context(), state.OpenKey(l.shard), record.Doubted+"ada").Err(); err != nil {
		t.Fatal(err)
	}
	l.pos, l.spans = []int64{50}, []Span{{4, 100}}
	st := &l.shards[l.shard]
	st.Applied, st.Open, st.known = []int64{50}, true, false
	if err := l.begin(t.Context(), []*shardWrite{l.beginning(l.shard, time.Now())}); err != nil {
		t.Fatal(err)
	}
	if !st.known || st.Ready || st.Open || !slices.Equal(st.Applied, []int64{4}) || !slices.Equal(st.target, []int64{100}) {
		t.Errorf("believes %+v", *st)
	}
	if !slices.Equal(l.pos, []int64{4}) || !l.seek {
		t.Errorf("the follower goes to %v, seeks %v", l.pos, l.seek)
	}
	got, err := state.Load(t.Context(), l.client, []int{l.shard})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Version != st.Version || st.Version.Build == 7 || got[0].Marker != "" || got[0].Open || got[0].Unread > 0 || !slices.Equal(got[0].Applied, []int64{4}) {
		t.Errorf("Redis has %+v, believed is %+v", got[0], *st)
	}
}

// Only where it has to go back is the follower told so: it then reads again what it has
// read already.
func TestTheFollowerGoesBackOnlyWhereItMust(t *testing.T) {
	for _, tt := range []struct {
		why           string
		offsets, want []int64
		seek          bool
	}{
		{"where it is", []int64{10, 20}, []int64{10, 20}, false},
		{"further", []int64{11, 21}, []int64{10, 20}, false},
		{"before it, in one partition", []int64{11, 19}, []int64{10, 19}, true},
		{"before it", []int64{0, 0}, []int64{0, 0}, true},
	} {
		r := &Registry{pos: []int64{10, 20}}
		if r.setBack(tt.offsets); !slices.Equal(r.pos, tt.want) || r.seek != tt.seek {
			t.Errorf("%s: it goes to %v, seeks %v; want %v, %v", tt.why, r.pos, r.seek, tt.want, tt.seek)
		}
	}
}

// A shard without news has its offsets written once in each interval, and is called
// current only by who has read all that the topic has.
func TestBeats(t *testing.T) {
	const interval = time.Minute
	began := time.Now().Truncate(time.Millisecond)
	for _, tt := range []struct {
		why     string
		pos     int64
		current bool
	}{{"one record is to be read", 99, false}, {"all is read", 100, true}, {"more is read than the topic had", 101, true}} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		l.options.BeatInterval = interval
		l.pos, l.spans = []int64{tt.pos}, []Span{{0, 100}}
		l.shards[l.shard].beat = began
		for _, beat := range []struct {
			after  time.Duration
			writes bool
		}{{interval - 1, false}, {interval, true}, {2*interval - 1, false}, {2 * interval, true}} {
			before := l.client.HGet(t.Context(), shards.OffsetsKey(l.shard), "v").Val()
			if err := l.beat(t.Context(), began.Add(beat.after)); err != nil {
				t.Fatalf("%s: %v", tt.why, err)
			}
			if now := l.client.HGet(t.Context(), shards.OffsetsKey(l.shard), "v").Val(); (now != before) != beat.writes {
				t.Errorf("%s: after %v the shard is of write %s, was %s", tt.why, beat.after, now, before)
			}
		}
		got, err := state.Load(t.Context(), l.client, []int{l.shard})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Time{}
		if tt.current {
			at = began.Add(2 * interval)
		}
		if !got[0].At.Equal(at) || !slices.Equal(got[0].Applied, []int64{tt.pos}) {
			t.Errorf("%s: applied up to %v, current at %v, want %d and %v", tt.why, got[0].Applied, got[0].At, tt.pos, at)
		}
	}
}
