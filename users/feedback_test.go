package users

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// oneReport is a source of one report that counts commits.
type oneReport struct {
	value   []byte
	commits int
}

func (s *oneReport) Poll(context.Context) ([][]byte, error) { return [][]byte{s.value}, nil }

func (s *oneReport) Commit(context.Context) error {
	s.commits++
	return nil
}

// ending ends its reader when it asks Redis, which does not answer.
type ending func()

func (ending) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (ending) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (e ending) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		e()
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return ctx.Err()
	}
}

// A report whose device is not removed is not committed, also when the process ends.
func TestReportsThatAreNotDoneAreNotCommitted(t *testing.T) {
	client, _ := inProcess(t)
	ctx, stop := context.WithCancel(t.Context())
	client.AddHook(ending(stop))
	s := &oneReport{value: []byte(`{"user_id":"ada","device":"` + push.DeviceHash(push.FCM, "t") + `","at_ms":1}`)}
	f, err := NewFeedback(client, s, nil, DefaultFeedbackOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(ctx); !errors.Is(err, context.Canceled) || s.commits > 0 {
		t.Errorf("ended with %v and %d commits, want none", err, s.commits)
	}
	if n := testutil.ToFloat64(f.metrics.feedbackErrors); n > 0 {
		t.Errorf("the end was counted as %v errors", n)
	}
}

// A shard that is not built is told apart from an entry that cannot be read: it waits, and
// asks for no repair. So does what Redis does not say: claims of nobody would be the end of
// a report that names no user.
func TestClaimsOfAShardThatIsNotBuilt(t *testing.T) {
	hash := push.DeviceHash(push.FCM, "t")
	claims := record.Claims{{User: "ada", At: 1}}.Encode(7)
	for _, tt := range []struct {
		why     string
		values  []any
		fails   error // what Redis says instead
		unbuilt bool
		entry   bool // errEntry
	}{
		{"as it should be", []any{state.FormatBuild(7), string(claims)}, nil, false, false},
		{"not built", []any{nil, nil}, nil, true, false},
		{"not built, with an entry of before", []any{nil, string(claims)}, nil, true, false},
		{"an entry that cannot be read", []any{state.FormatBuild(7), "garbage"}, nil, false, true},
		{"a marker that cannot be read", []any{"garbage", string(claims)}, nil, false, false},
		{"half an answer", []any{state.FormatBuild(7)}, nil, false, false},
		{"no answer", nil, errAny, false, false},
	} {
		cmd := redis.NewSliceCmd(t.Context())
		cmd.SetVal(tt.values)
		cmd.SetErr(tt.fails)
		cs, err := claimsOf(cmd, hash)
		if _, unbuilt := IsUnbuilt(err); unbuilt != tt.unbuilt || errors.Is(err, errEntry) != tt.entry || (err == nil) != (len(cs) == 1) {
			t.Errorf("%s: %v, %v", tt.why, cs, err)
		}
	}
}

// A token's shard may be complete and its user's not: what is read of the user then says
// nothing of her devices, and the report is not done with.
func TestReportsWaitForTheirUsersShard(t *testing.T) {
	client, _ := inProcess(t)
	hash := push.DeviceHash(push.FCM, "t")
	if shards.UserShard("ada") == state.TokenHome(hash) {
		t.Fatal("both are in one shard")
	}
	if err := client.Set(t.Context(), shards.EpochKey(state.TokenHome(hash)), state.FormatBuild(7), 0).Err(); err != nil {
		t.Fatal(err)
	}
	var log appended
	f, err := NewFeedback(client, nil, &log, DefaultFeedbackOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = f.remove(t.Context(), []report{{UserID: "ada", Device: hash, At: 1}})
	if s, unbuilt := IsUnbuilt(err); !unbuilt || s != shards.UserShard("ada") || len(log) > 0 || testutil.ToFloat64(f.metrics.unknown) > 0 {
		t.Errorf("%v, %d records, %v reports of unknown devices; want that shard %d is not built", err, len(log),
			testutil.ToFloat64(f.metrics.unknown), shards.UserShard("ada"))
	}
}

// lengths notes how many keys each read of users asks for.
type lengths []int

func (*lengths) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*lengths) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *lengths) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if m, is := cmd.(*mget); is {
				*l = append(*l, len(m.Args())-1)
			}
		}
		return next(ctx, cmds)
	}
}

// What a report asks for is its user's devices: a marker and a record, and no limiter
// state, which would be as long again.
func TestReportsAskForNoLimiterStates(t *testing.T) {
	client, _ := inProcess(t)
	var asked lengths
	client.AddHook(&asked)
	hash := push.DeviceHash(push.FCM, "t")
	pipe := client.Pipeline()
	for _, s := range []int{state.TokenHome(hash), shards.UserShard("ada")} {
		pipe.Set(t.Context(), shards.EpochKey(s), state.FormatBuild(7), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := NewFeedback(client, nil, new(appended), DefaultFeedbackOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.remove(t.Context(), []report{{UserID: "ada", Device: hash, At: 1}}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []int{2}) {
		t.Errorf("reads of users ask for %v keys, want one of 2", asked)
	}
}
