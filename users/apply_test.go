package users

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// What was polled meets a shard that is not as believed: it is applied once, and never
// before what comes before it.
func TestApplyingToAShardThatWasWritten(t *testing.T) {
	const offset = 5 // of the record, and up to where the shard is believed to have applied all
	for _, tt := range []struct {
		why     string
		at      int64 // up to where it has
		pos     int64 // what the follower is to hand out next
		applied bool
		ends    int64 // up to where it has at the end
	}{
		{"another registry wrote, and applied nothing", offset, offset + 1, true, offset + 1},
		{"another registry has applied it", offset + 1, offset + 1, false, offset + 1},
		{"another registry is further", offset + 2, offset + 1, false, offset + 2},
		{"a copy without the latest writes", offset - 2, offset - 2, false, offset - 2},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 2}, nil)
		l.client.HSet(t.Context(), shards.OffsetsKey(l.shard), "0", tt.at, "at", time.Now().UnixMilli())
		l.pos, l.spans = []int64{offset}, []Span{{0, 100}}
		l.shards[l.shard].Applied = []int64{offset}
		run := Fetched{Next: offset + 1, Records: []FetchedRecord{
			{Record: Record{Key: record.PreferencesKey("ada"), Value: []byte(`{"opt_out_types":["news"]}`)}, Offset: offset}}}
		if err := l.apply(t.Context(), []Fetched{run}); err != nil {
			t.Errorf("%s: %v", tt.why, err)
			continue
		}
		if !slices.Equal(l.pos, []int64{tt.pos}) || l.seek != (tt.pos < offset) {
			t.Errorf("%s: the follower goes to %v, seeks %v, want %d", tt.why, l.pos, l.seek, tt.pos)
		}
		var ada push.User
		if err := NewReader(l.client, false).Fetch(t.Context(), []string{"ada"}, []*push.User{&ada}); err != nil {
			t.Fatal(err)
		}
		got, err := state.Load(t.Context(), l.client, []int{l.shard})
		if err != nil {
			t.Fatal(err)
		}
		if applied := len(ada.Preferences.Types) > 0; applied != tt.applied || got[0].Applied[0] != tt.ends || (l.applied > 0) != tt.applied {
			t.Errorf("%s: applied %v, up to %v, %d were counted", tt.why, applied, got[0].Applied, l.applied)
		}
	}
}

// failing is a Redis that does not do the commands of this name, nor pipelines with one.
type failing string

func (failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != string(f) {
			return next(ctx, cmd)
		}
		cmd.SetErr(errAny)
		return errAny
	}
}

func (f failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == string(f) }) {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errAny)
		}
		return errAny
	}
}

// What was polled is not handed out again by itself. A step of applying it that fails
// ends the following, which begins anew with what the shards have: else what was polled
// would be lost to a shard that it did not reach.
func TestApplyingEndsWithAStepThatFails(t *testing.T) {
	for _, tt := range []struct {
		why, command string
		fails        error
	}{
		{"nothing fails", "", nil},
		{"reading what is changed", "mget", errAny},
		{"writing it", "evalsha", errAny},
		{"reading a shard that somebody else has written", "hgetall", errAny},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 2}, nil)
		l.spans = []Span{{0, 100}}
		l.client.AddHook(failing(tt.command))
		run := Fetched{Next: 1, Records: []FetchedRecord{
			{Record: Record{Key: record.PreferencesKey("ada"), Value: []byte(`{"opt_out_types":["news"]}`)}}}}
		if err := l.apply(t.Context(), []Fetched{run}); !errors.Is(err, tt.fails) {
			t.Errorf("%s: %v, want %v", tt.why, err, tt.fails)
		}
		done := int64(0)
		if tt.fails == nil {
			done = 1
		}
		if st := l.shards[l.shard]; !slices.Equal(st.Applied, []int64{done}) || l.applied != uint64(done) {
			t.Errorf("%s: believed is that %v are applied, and %d counted; want %d", tt.why, st.Applied, l.applied, done)
		}
	}
}
