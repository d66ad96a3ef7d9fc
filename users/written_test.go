package users

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// What was not read or not written ends the following, which begins anew with what the
// shards have; a shard that somebody else has written is taken over as it is.
func TestStepsOfALookThatFail(t *testing.T) {
	steps := []struct {
		name string
		asks []string // besides the write
		set  func(l *looking)
		do   func(ctx context.Context, l *looking) error
	}{
		{name: "beginning", do: func(ctx context.Context, l *looking) error {
			return l.begin(ctx, []*shardWrite{l.beginning(l.shard, time.Now())})
		}},
		{name: "completing", set: func(l *looking) { l.shards[l.shard].Ready = false; l.shards[l.shard].target = []int64{0} },
			do: func(ctx context.Context, l *looking) error { return l.complete(ctx) }},
		{name: "beating", do: func(ctx context.Context, l *looking) error { return l.beat(ctx, time.Now()) }},
		{name: "releasing", asks: []string{"smembers", "mget"}, do: func(ctx context.Context, l *looking) error {
			done, err := l.lookAgain(ctx)
			if done {
				return errors.Join(err, errors.New("it is done"))
			}
			return err
		}},
		{name: "settling", asks: []string{"smembers", "mget"},
			do: func(ctx context.Context, l *looking) error { return l.settleShard(ctx, l.shard) }},
		{name: "rebuilding", asks: []string{"smembers"}, set: func(l *looking) {
			lost := lostKey{shard: l.shard, kase: record.LostUser + "ada", build: 7}
			done := make(chan scanned, 1)
			done <- scanned{}
			l.repair = repair{keys: map[string]lostKey{lost.key(): lost}, next: slices.Clone(l.pos), cancel: func() {}, done: done}
		}, do: func(ctx context.Context, l *looking) error { return l.finishRepair(ctx) }},
	}
	key, ada := foreignDevice(t, "ada", "token-1", "new")
	for _, step := range steps {
		for _, command := range append([]string{"", "evalsha", "hgetall"}, step.asks...) {
			l := looksAgain(t, state.Version{Build: 7, Write: 2}, map[string][]byte{"ada": knownSince(ada)}, key) // written since
			if err := l.client.SAdd(t.Context(), state.OpenKey(l.shard), record.Doubted+"ada").Err(); err != nil {
				t.Fatal(err)
			}
			l.spans = []Span{{0, 0}}
			if step.set != nil {
				step.set(l)
			}
			l.client.AddHook(failing(command))
			var want error
			if command != "" {
				want = errAny
			}
			err := step.do(t.Context(), l)
			if (err == nil) != (want == nil) || !errors.Is(err, want) {
				t.Errorf("%s, and %q fails: %v, want %v", step.name, command, err, want)
			}
			now := state.Version{Build: 7, Write: 1}
			if want == nil {
				now.Write = 2
			}
			if st := l.shards[l.shard]; st.Version != now || l.repair.done != nil && len(l.repair.keys) != 1 {
				t.Errorf("%s, and %q fails: believed is %+v", step.name, command, st)
			}
		}
	}
}
