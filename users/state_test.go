package users

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
)

// inProcess is a client of a Redis of the test's own; both go with the test.
func inProcess(t *testing.T) (*redis.Client, *embedded.Redis) {
	t.Helper()
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client, server
}

// What is adopted of a shard: as it is, built anew, or with the follower set
// back to where it is.
func TestAdoptingAShard(t *testing.T) {
	const stale = time.Hour
	build, write := version{7, 1}, version{7, 2}
	believed := shardState{known: true, version: build, applied: []int64{10, 20}, ready: true, beat: time.UnixMilli(5)}
	found := func(change func(*shardState)) shardState {
		s := shardState{version: write, applied: []int64{10, 20}, at: time.Now(), ready: true, marker: formatBuild(7)}
		change(&s)
		return s
	}
	old := time.Now().Add(-2 * stale)
	for _, tt := range []struct {
		why        string
		was        shardState
		got        shardState
		rebuild    bool
		anew, back bool
	}{
		{"as believed", believed, found(func(*shardState) {}), false, false, false},
		{"further", believed, found(func(s *shardState) { s.applied[1] = 21 }), false, false, false},
		{"further, and old", believed, found(func(s *shardState) { s.applied[1], s.at = 21, old }), false, false, false},
		{"behind", believed, found(func(s *shardState) { s.applied[1] = 19 }), false, false, true},
		{"behind, and old", believed, found(func(s *shardState) { s.applied[1], s.at = 19, old }), false, true, false},
		{"wiped", believed, shardState{}, false, true, false},
		{"its marker is gone", believed, found(func(s *shardState) { s.marker, s.ready = "", false }), false, true, false},
		{"a marker of another build", believed, found(func(s *shardState) { s.marker, s.ready = formatBuild(8), false }), false, true, false},
		{"of another build", believed, found(func(s *shardState) { s.version.build, s.marker = 8, formatBuild(8) }), false, false, true},
		{"of another build that is not done", believed, found(func(s *shardState) { s.version.build, s.marker, s.ready = 8, "", false }), false, false, true},
		{"seen first", shardState{}, found(func(*shardState) {}), false, false, true},
		{"seen first, and old", shardState{}, found(func(s *shardState) { s.at = old }), false, true, false},
		{"seen first, by one who rebuilds", shardState{}, found(func(*shardState) {}), true, true, false},
		{"seen again, by one who rebuilds", believed, found(func(*shardState) {}), true, false, false},
	} {
		r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.options.MaxStale, r.options.Rebuild = stale, tt.rebuild
		r.shards[3], r.pos, r.spans = tt.was, []int64{12, 22}, []Span{{0, 100}, {0, 200}}
		r.shards[3].applied = slices.Clone(tt.was.applied)
		anew, back := r.adopt(3, tt.got)
		st := &r.shards[3]
		if anew != tt.anew || back != tt.back || st.known == anew || !slices.Equal(st.applied, tt.got.applied) {
			t.Errorf("%s: anew %v, set back %v; believes %+v", tt.why, anew, back, *st)
		}
		want := []int64{12, 22}
		if tt.back {
			want = tt.got.applied
		}
		if !slices.Equal(r.pos, want) || r.seek != tt.back {
			t.Errorf("%s: the follower goes to %v, seeks %v", tt.why, r.pos, r.seek)
		}
		if !st.ready && !slices.Equal(st.target, []int64{100, 200}) || st.ready && st.target != nil {
			t.Errorf("%s: to be built up to %v", tt.why, st.target)
		}
		if same := tt.was.known && tt.got.version.build == 7; same != (st.beat == believed.beat) {
			t.Errorf("%s: its last beat is %v", tt.why, st.beat)
		}
	}
}

// What is not a state of a shard is no state: neither an empty one nor part of
// one.
func TestStatesOfShards(t *testing.T) {
	good := version{0xfeed, 12}.String()
	for _, tt := range []struct {
		why    string
		fields map[string]string
		want   shardState
		err    error
	}{
		{"nothing", nil, shardState{}, nil},
		{"offsets without a version", map[string]string{"0": "5"}, shardState{}, nil},
		{"a state", map[string]string{"v": good, "at": "7000", "0": "5", "1": "6"},
			shardState{version: version{0xfeed, 12}, at: time.UnixMilli(7000), applied: []int64{5, 6}}, nil},
		{"a version without a write", map[string]string{"v": formatBuild(1)}, shardState{}, record.ErrVersion},
		{"a write of 0", map[string]string{"v": formatBuild(1) + ".0"}, shardState{}, record.ErrVersion},
		{"a write that is none", map[string]string{"v": formatBuild(1) + ".x"}, shardState{}, record.ErrVersion},
		{"a build that is none", map[string]string{"v": "1.1"}, shardState{}, record.ErrVersion},
		{"an offset that is none", map[string]string{"v": good, "0": "x"}, shardState{}, record.ErrCorrupt},
		{"a time that is none", map[string]string{"v": good, "at": ""}, shardState{}, record.ErrCorrupt},
		{"a field that nobody knows", map[string]string{"v": good, "x": "5"}, shardState{}, record.ErrVersion},
		{"a partition below 0", map[string]string{"v": good, "-1": "5"}, shardState{}, record.ErrVersion},
		{"a partition that is missing", map[string]string{"v": good, "0": "5", "2": "6"}, shardState{}, record.ErrCorrupt},
	} {
		got, err := parseState(tt.fields)
		if !errors.Is(err, tt.err) || err == nil && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.why, got, err, tt.want, tt.err)
		}
	}
	for s, good := range map[string]bool{"00000000000000ff": true, "ff": false, "000000000000000ff": false, "00000000000000fg": false, "": false} {
		if build, err := parseBuild(s); (err == nil) != good || good && build != 0xff {
			t.Errorf("build %q: %x, %v", s, build, err)
		}
	}
}

// A shard whose state cannot be read is not taken for one that is not there: it
// would be built anew over what a newer registry has written.
func TestLoadingShards(t *testing.T) {
	client, _ := inProcess(t)
	ctx, build := t.Context(), version{7, 1}
	for _, tt := range []struct {
		why  string
		do   func(redis.Pipeliner)
		good bool
		want shardState
	}{
		{"nothing is there", func(redis.Pipeliner) {}, true, shardState{}},
		{"a shard", func(p redis.Pipeliner) {
			p.HSet(ctx, shards.OffsetsKey(5), "v", build.String(), "0", 3)
			p.Set(ctx, shards.EpochKey(5), formatBuild(7), 0)
			p.SAdd(ctx, openKey(5), "d:ada")
			p.SAdd(ctx, unreadKey(5), "a", "b")
		}, true, shardState{version: build, applied: []int64{3}, ready: true, marker: formatBuild(7), open: true, unread: 2}},
		{"a shard that is being built", func(p redis.Pipeliner) { p.HSet(ctx, shards.OffsetsKey(5), "v", build.String(), "0", 3) }, true,
			shardState{version: build, applied: []int64{3}}},
		{"another build's marker", func(p redis.Pipeliner) {
			p.HSet(ctx, shards.OffsetsKey(5), "v", build.String())
			p.Set(ctx, shards.EpochKey(5), formatBuild(8), 0)
		}, true, shardState{version: build, applied: []int64{}, marker: formatBuild(8)}},
		{"a version of a newer fleet", func(p redis.Pipeliner) { p.HSet(ctx, shards.OffsetsKey(5), "v", "next:1") }, false, shardState{}},
		{"offsets that are none", func(p redis.Pipeliner) { p.Set(ctx, shards.OffsetsKey(5), "x", 0) }, false, shardState{}},
		{"a marker that is none", func(p redis.Pipeliner) { p.HSet(ctx, shards.EpochKey(5), "x", "y") }, false, shardState{}},
		{"a quarantine that is none", func(p redis.Pipeliner) { p.Set(ctx, unreadKey(5), "x", 0) }, false, shardState{}},
	} {
		client.FlushAll(ctx)
		pipe := client.Pipeline()
		tt.do(pipe)
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := loadShards(ctx, client, []int{4, 5})
		if (err == nil) != tt.good {
			t.Errorf("%s: %v", tt.why, err)
		}
		if err == nil && (!reflect.DeepEqual(got[0], shardState{}) || !reflect.DeepEqual(got[1], tt.want)) {
			t.Errorf("%s: %+v, want %+v", tt.why, got, tt.want)
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
			r.shards[s] = shardState{known: true, ready: true, version: version{7, 1}, applied: []int64{10}}
		}
		for s, applied := range map[int]int64{1: 11, 3: 9} { // shard 2 is not there
			client.HSet(t.Context(), shards.OffsetsKey(s), "v", version{7, 2}.String(), "0", applied, "at", time.Now().UnixMilli())
			client.Set(t.Context(), shards.EpochKey(s), formatBuild(7), 0)
		}
		further, err := r.reload(t.Context(), tt.list)
		if err != nil || !slices.Equal(further, tt.further) || r.recheck != tt.recheck || r.seek != tt.seek {
			t.Errorf("of %v further are %v, looks again %v, goes back %v, %v", tt.list, further, r.recheck, r.seek, err)
		}
	}
}
