package limits

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// FuzzReply has Redis say anything to the writing of two users' states. Either it is an
// error, and nothing is decided. Or each user is decided from the last state that the
// answer gives it, as a judge of its own decides from that state: a user without one has
// been stored.
func FuzzReply(f *testing.F) {
	full := string(encoded(event{id: 1, kind: 2, at: start.UnixMilli() - 1000, keep: seconds(start.UnixMilli()) + 4000}))
	conflict := func(user int, state string) string {
		return fmt.Sprintf(":%d\r\n$%d\r\n%s\r\n", user, len(state), state)
	}
	f.Add([]byte("*0\r\n"))
	f.Add([]byte("*2\r\n" + conflict(1, full)))
	f.Add([]byte("*4\r\n" + conflict(1, full) + conflict(2, full)))
	f.Add([]byte("*4\r\n" + conflict(2, full) + conflict(2, full)))
	f.Add([]byte("*2\r\n" + conflict(1, "")))
	f.Add([]byte("*2\r\n" + conflict(3, full)))
	f.Add([]byte("*2\r\n" + conflict(0, full)))
	f.Add([]byte("*2\r\n" + conflict(-1, full)))
	f.Add([]byte("*2\r\n:9223372036854775807\r\n$0\r\n\r\n"))
	f.Add([]byte("*2\r\n" + conflict(1, full[:len(full)-1])))
	f.Add([]byte("*2\r\n" + conflict(1, "\x09"+full[1:])))
	f.Add([]byte("*2\r\n:1\r\n$-1\r\n"))
	f.Add([]byte("*2\r\n:1\r\n:1\r\n"))
	f.Add([]byte("*2\r\n$1\r\n1\r\n$0\r\n\r\n"))
	f.Add([]byte("*1\r\n:1\r\n"))
	f.Add([]byte("*-1\r\n"))
	f.Add([]byte("+OK\r\n"))
	f.Add([]byte("-OOM command not allowed\r\n"))
	f.Add([]byte("-NOSCRIPT No matching script.\r\n"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, end, ok := shardstest.Saying(reply, "eval")
		if !ok {
			return
		}
		defer end()
		l := limiter(t, client, perUser(1, time.Hour))
		reqs := []*Request{{Owner: "ada", ID: "a", Type: "x", At: start}, {Owner: "bob", ID: "b", Type: "x", At: start}}
		slices.SortFunc(reqs, func(a, b *Request) int { return shards.UserShard(a.Owner) - shards.UserShard(b.Owner) }) // as they are asked
		err := l.Decide(context.Background(), reqs)
		if damaged, ok := errors.AsType[*StateError](err); ok && !strings.Contains(damaged.Error(), "{") {
			t.Errorf("no key is named: %v", err)
		}
		if err != nil {
			return
		}
		said, theirs := shardstest.Asked(t, reply)
		list, isList := said.([]any)
		if theirs != nil || !isList || len(list)%2 != 0 {
			t.Fatalf("taken for an answer; the library says %v, %v", said, theirs)
		}
		states := map[int64]string{}
		for i := 0; i < len(list); i += 2 {
			user, isNumber := list[i].(int64)
			state, isText := list[i+1].(string)
			if !isNumber || !isText || user < 1 || user > 2 {
				t.Fatalf("taken for an answer: %v", list)
			}
			states[user] = state
		}
		for n, r := range reqs {
			state, found := states[int64(n+1)]
			j := newJudge(l.rules)
			if err := j.load([]byte(state), l.keep, start.UnixMilli()); err != nil {
				t.Fatalf("decided from a state that is none: %v", err)
			}
			want := &Request{Owner: r.Owner, ID: r.ID, Type: r.Type, At: r.At}
			j.answer(want)
			if found && j.changed {
				t.Errorf("%s was decided, and what that changed is not stored", r.Owner)
			}
			if !reflect.DeepEqual(r.Decision, want.Decision) {
				t.Errorf("%s: got %+v, want %+v", r.Owner, r.Decision, want.Decision)
			}
		}
	})
}
