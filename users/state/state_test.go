package state

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
)

// inProcess is a client of a Redis of the test's own; both go with the test.
func inProcess(t *testing.T) *redis.Client {
	t.Helper()
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// What is not a state of a shard is no state: neither an empty one nor part of
// one.
func TestStatesOfShards(t *testing.T) {
	version := Version{0xfeed, 12}.String()
	for _, tt := range []struct {
		why    string
		fields map[string]string
		want   Shard
		err    error
	}{
		{"nothing", nil, Shard{}, nil},
		{"offsets without a version", map[string]string{"0": "5"}, Shard{}, nil},
		{"a state", map[string]string{"v": version, "at": "7000", "0": "5", "1": "6"},
			Shard{Version: Version{0xfeed, 12}, At: time.UnixMilli(7000), Applied: []int64{5, 6}}, nil},
		{"a version without a write", map[string]string{"v": FormatBuild(1)}, Shard{}, record.ErrVersion},
		{"a write of 0", map[string]string{"v": FormatBuild(1) + ".0"}, Shard{}, record.ErrVersion},
		{"a write that is none", map[string]string{"v": FormatBuild(1) + ".x"}, Shard{}, record.ErrVersion},
		{"a build that is none", map[string]string{"v": "1.1"}, Shard{}, record.ErrVersion},
		{"an offset that is none", map[string]string{"v": version, "0": "x"}, Shard{}, record.ErrCorrupt},
		{"a time that is none", map[string]string{"v": version, "at": ""}, Shard{}, record.ErrCorrupt},
		{"a field that nobody knows", map[string]string{"v": version, "x": "5"}, Shard{}, record.ErrVersion},
		{"a partition below 0", map[string]string{"v": version, "-1": "5"}, Shard{}, record.ErrVersion},
		{"a partition that is missing", map[string]string{"v": version, "0": "5", "2": "6"}, Shard{}, record.ErrCorrupt},
	} {
		got, err := parseState(tt.fields)
		if !errors.Is(err, tt.err) || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.why, got, err, tt.want, tt.err)
		}
	}
	for s, good := range map[string]bool{"00000000000000ff": true, "ff": false, "000000000000000ff": false, "00000000000000fg": false, "": false} {
		if build, err := ParseBuild(s); (err == nil) != good || good && build != 0xff {
			t.Errorf("build %q: %x, %v", s, build, err)
		}
	}
}

// A shard whose state cannot be read is not taken for one that is not there: it
// would be built anew over what a newer registry has written.
func TestLoadingShards(t *testing.T) {
	client := inProcess(t)
	ctx, build := t.Context(), Version{7, 1}
	for _, tt := range []struct {
		why  string
		do   func(redis.Pipeliner)
		good bool
		want Shard
	}{
		{"nothing is there", func(redis.Pipeliner) {}, true, Shard{}},
		{"a shard", func(p redis.Pipeliner) {
			p.HSet(ctx, shards.OffsetsKey(5), "v", build.String(), "0", 3)
			p.Set(ctx, shards.EpochKey(5), FormatBuild(7), 0)
			p.SAdd(ctx, OpenKey(5), "d:ada")
			p.SAdd(ctx, UnreadKey(5), "a", "b")
		}, true, Shard{Version: build, Applied: []int64{3}, Ready: true, Marker: FormatBuild(7), Open: true, Unread: 2}},
		{"a shard that is being built", func(p redis.Pipeliner) { p.HSet(ctx, shards.OffsetsKey(5), "v", build.String(), "0", 3) }, true,
			Shard{Version: build, Applied: []int64{3}}},
		{"another build's marker", func(p redis.Pipeliner) {
			p.HSet(ctx, shards.OffsetsKey(5), "v", build.String())
			p.Set(ctx, shards.EpochKey(5), FormatBuild(8), 0)
		}, true, Shard{Version: build, Applied: []int64{}, Marker: FormatBuild(8)}},
		{"a version of a newer fleet", func(p redis.Pipeliner) { p.HSet(ctx, shards.OffsetsKey(5), "v", "next:1") }, false, Shard{}},
		{"offsets that are none", func(p redis.Pipeliner) { p.Set(ctx, shards.OffsetsKey(5), "x", 0) }, false, Shard{}},
		{"a marker that is none", func(p redis.Pipeliner) { p.HSet(ctx, shards.EpochKey(5), "x", "y") }, false, Shard{}},
		{"a quarantine that is none", func(p redis.Pipeliner) { p.Set(ctx, UnreadKey(5), "x", 0) }, false, Shard{}},
	} {
		client.FlushAll(ctx)
		pipe := client.Pipeline()
		tt.do(pipe)
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := Load(ctx, client, []int{4, 5})
		if (err == nil) != tt.good {
			t.Errorf("%s: %v", tt.why, err)
		}
		if alone, err2 := Load(ctx, client, []int{5}); (err2 == nil) != tt.good || err2 == nil && !reflect.DeepEqual(alone, got[1:]) {
			t.Errorf("%s, with no other shard: %+v, %v", tt.why, alone, err2)
		}
		if err == nil && (!reflect.DeepEqual(got[0], Shard{}) || !reflect.DeepEqual(got[1], tt.want)) {
			t.Errorf("%s: %+v, want %+v", tt.why, got, tt.want)
		}
	}
}

// A token's entry and the shard whose script writes it share a hash tag: a Redis Cluster
// refuses a script whose keys are of several.
func TestTheHomeOfATokenSharesItsTag(t *testing.T) {
	homes := map[int]bool{}
	for i := range 1000 {
		hash := fmt.Sprint("hash-", i)
		home := TokenHome(hash)
		homes[home] = true
		if tag := "{" + shards.UserTag(home) + "}"; !strings.Contains(TokenKey(hash), tag) {
			t.Fatalf("the entry %s is not of shard %d, whose tag is %s", TokenKey(hash), home, tag)
		}
	}
	if len(homes) != shards.Filters {
		t.Errorf("tokens spread over %d homes, want %d", len(homes), shards.Filters)
	}
}

// Each write has a version of its own, by which a script knows that it is not the
// latest one; only the zero value has no text.
func TestVersions(t *testing.T) {
	if got := (Version{}).String(); got != "" {
		t.Errorf("a shard that does not exist has version %q", got)
	}
	first, second := Begin(), Begin()
	if first.Build == second.Build {
		t.Errorf("two builds are both %x", first.Build)
	}
	next := first.Next()
	if next.Build != first.Build || next.Write == first.Write {
		t.Errorf("after %v comes %v", first, next)
	}
	for _, v := range []Version{first, next, {Build: 0, Write: 1}} {
		if got, err := parseVersion(v.String()); err != nil || got != v || v.Write == 0 {
			t.Errorf("%v is read as %v, %v", v, got, err)
		}
	}
}

// Without Redis no shard is taken for one that is not there either.
func TestLoadingShardsWithoutRedis(t *testing.T) {
	client := inProcess(t)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(t.Context(), client, []int{4, 5}); !errors.Is(err, redis.ErrClosed) || got != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
