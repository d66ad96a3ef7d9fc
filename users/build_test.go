package users

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/state"
)

// spanning is a follower that only says what its topic holds.
type spanning struct {
	Follower
	spans []Span
}

func (s spanning) Spans(context.Context) ([]Span, error) { return s.spans, nil }

// What a topic without partitions holds is not nothing: nobody knows, and no shard is built
// from it.
func TestATopicWithoutPartitions(t *testing.T) {
	client, _ := inProcess(t)
	r, err := NewRegistry(client, RegistryTopics{Follower: spanning{}}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.check(t.Context()); !errors.Is(err, errPartitions) {
		t.Errorf("it says %v, want %v", err, errPartitions)
	}
	if n := client.DBSize(t.Context()).Val(); n > 0 {
		t.Errorf("%d keys were written", n)
	}
}

// A shard that has applied what the topic does not hold is of another topic, or Kafka has
// lost records: nothing is written until an operator has looked.
func TestAShardAheadOfItsTopic(t *testing.T) {
	for _, tt := range []struct {
		why   string
		end   int64
		known bool
		ahead bool
	}{
		{"one record is missing", 99, true, true},
		{"as far as the topic", 100, true, false},
		{"behind the topic", 101, true, false},
		{"one record is missing, and it is built anew", 99, false, false},
	} {
		r := &Registry{spans: []Span{{0, 7}, {0, tt.end}}}
		r.shards[3] = shardState{known: tt.known, Shard: state.Shard{Applied: []int64{7, 100}}}
		if err := r.rewound(); errors.Is(err, errRewound) != tt.ahead || (err != nil) != tt.ahead {
			t.Errorf("%s: it says %v", tt.why, err)
		}
	}
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
	l.client.HSet(t.Context(), shards.OffsetsKey(l.shard), "0", 100)
	l.topics.Follower = spanning{spans: []Span{{0, 99}}}
	before := l.client.DBSize(t.Context()).Val()
	if err := l.check(t.Context()); !errors.Is(err, errRewound) {
		t.Errorf("a look says %v, want %v", err, errRewound)
	}
	if now := l.client.DBSize(t.Context()).Val(); now != before {
		t.Errorf("%d keys were written", now-before)
	}
}

// Shards that were filled from another number of partitions are of a topic in which users have
// moved since: who finds them, or a topic that has grown, goes no further.
func TestALookAtAnotherTopic(t *testing.T) {
	for _, tt := range []struct {
		why             string
		had, partitions int // before, and now; the shard was filled from one
		fails           bool
	}{
		{"as it was", 1, 1, false},
		{"as it was, seen first", 0, 1, false},
		{"it has two, seen first", 0, 2, true},
		{"it has two", 1, 2, true},
		{"it had two", 2, 1, true},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		l.had, l.pos, l.shards = tt.had, nil, [shards.Users]shardState{}
		l.topics.Follower = spanning{spans: make([]Span, tt.partitions)}
		l.client.AddHook(failing("evalsha")) // it would begin the shards that are not there
		want := errAny
		if tt.fails {
			want = errPartitions
		}
		if err := l.check(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", tt.why, err, want)
		}
	}
}

// Who is asked to build all shards anew does that once, and not again after each failure.
func TestARebuildIsOfTheFirstLook(t *testing.T) {
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
	l.options.Rebuild = true
	l.topics.Follower = spanning{spans: []Span{{0, 0}}}
	for look := range 2 {
		l.shards, l.pos = [shards.Users]shardState{}, nil // as following begins
		if err := l.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := testutil.ToFloat64(l.metrics.builds); n != shards.Users {
			t.Errorf("after look %d %v builds were begun, want %d", look+1, n, shards.Users)
		}
	}
}

// Of a shard as old as may be nothing is lost yet.
func TestAShardOfTheLastMoment(t *testing.T) {
	for _, older := range []time.Duration{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			r := &Registry{options: DefaultRegistryOptions(), pos: []int64{5}, spans: []Span{{0, 9}}}
			version := state.Version{Build: 7, Write: 1}
			got := state.Shard{Version: version, Applied: []int64{4}, Ready: true, Marker: state.FormatBuild(7), At: time.Now().Add(-r.options.MaxStale - older)}
			if anew, back := r.adopt(3, got); anew != (older > 0) || back != (older == 0) {
				t.Errorf("%v beyond the limit: built anew %v, set back %v", older, anew, back)
			}
		})
	}
}

// The marker says that all is there of which the topic said, when the build began, that it
// holds it. A shard that has its marker, or is to be begun anew, is left alone: each write
// fences the other registries.
func TestAShardIsCompleteWithAllOfItsTopic(t *testing.T) {
	for _, tt := range []struct {
		why          string
		known, ready bool
		applied, pos []int64
		marks        bool
	}{
		{"all is applied", true, false, []int64{5, 7}, []int64{5, 7}, true},
		{"all is read, and nothing of it was the shard's", true, false, []int64{0, 0}, []int64{5, 7}, true},
		{"more is read", true, false, []int64{5, 7}, []int64{6, 9}, true},
		{"it is further than what is read", true, false, []int64{5, 7}, []int64{0, 0}, true},
		{"a record of the first is missing", true, false, []int64{4, 7}, []int64{4, 7}, false},
		{"a record of the last is missing", true, false, []int64{5, 6}, []int64{5, 6}, false},
		{"it is complete already", true, true, []int64{5, 7}, []int64{5, 7}, false},
		{"it is to be begun anew", false, false, []int64{5, 7}, []int64{5, 7}, false},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		l.client.Del(t.Context(), shards.EpochKey(l.shard))
		l.had, l.pos = 2, tt.pos
		st := &l.shards[l.shard]
		st.known, st.Ready, st.Applied = tt.known, tt.ready, slices.Clone(tt.applied)
		if !tt.ready {
			st.target = []int64{5, 7}
		}
		if err := l.complete(t.Context()); err != nil {
			t.Fatalf("%s: %v", tt.why, err)
		}
		marker := l.client.Get(t.Context(), shards.EpochKey(l.shard)).Val()
		version := l.client.HGet(t.Context(), shards.OffsetsKey(l.shard), "v").Val()
		if wrote := version != (state.Version{Build: 7, Write: 1}).String(); wrote != tt.marks || (marker == state.FormatBuild(7)) != tt.marks {
			t.Errorf("%s: wrote %v, the marker is %q", tt.why, wrote, marker)
		}
		if st.Ready != (tt.marks || tt.ready) || st.Ready && st.target != nil {
			t.Errorf("%s: believed is %+v", tt.why, *st)
		}
	}
}

// A build that another registry has begun first is taken over, and only what was begun here
// is counted and told.
func TestABuildThatSomebodyElseBegan(t *testing.T) {
	l := looksAgain(t, state.Version{Build: 7, Write: 2}, nil) // written since
	var said bytes.Buffer
	l.logger = slog.New(slog.NewTextHandler(&said, nil))
	l.pos, l.spans = []int64{9}, []Span{{0, 9}}
	l.client.HSet(t.Context(), shards.OffsetsKey(l.shard), "at", time.Now().UnixMilli())
	theirs, ours := &l.shards[l.shard], &l.shards[(l.shard+1)%shards.Users]
	theirs.known = false
	now := time.Now()
	if err := l.begin(t.Context(), []*shardWrite{l.beginning(l.shard, now), l.beginning((l.shard+1)%shards.Users, now)}); err != nil {
		t.Fatal(err)
	}
	if theirs.Version != (state.Version{Build: 7, Write: 2}) || !theirs.known || !theirs.Ready || theirs.beat.Equal(now) {
		t.Errorf("of the shard that somebody else has begun believed is %+v", *theirs)
	}
	if !ours.known || ours.Ready || !slices.Equal(ours.target, []int64{9}) || !ours.beat.Equal(now) {
		t.Errorf("of the shard begun here believed is %+v", *ours)
	}
	if builds, lost := testutil.ToFloat64(l.metrics.builds), testutil.ToFloat64(l.metrics.conflicts); builds != 1 || lost != 1 {
		t.Errorf("%v builds and %v conflicts were counted, want one of each", builds, lost)
	}
	if strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "shards=1") {
		t.Errorf("it says %q, want that one shard is built", said.String())
	}
	said.Reset()
	if err := l.begin(t.Context(), nil); err != nil || said.Len() > 0 {
		t.Errorf("of no builds it says %q, %v", said.String(), err)
	}
}
