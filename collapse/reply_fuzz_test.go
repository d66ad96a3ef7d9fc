package collapse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// FuzzReply has Redis say anything to the question for the newest of two collapse keys.
// Only a score that a worker can have written supersedes: of a later notification, with
// another id. Whatever else stands there lets the notification through.
func FuzzReply(f *testing.F) {
	seen := time.UnixMilli(1_790_000_000_000)
	items := make([]*pipeline.Item, 2)
	for i, collapse := range []string{"score", "weather"} {
		items[i] = &pipeline.Item{Message: push.Message{ID: collapse, UserID: "u", App: "shop", CollapseKey: collapse}, FirstSeen: push.At(seen)}
	}
	later := func(id string, after time.Duration) int64 {
		return score(&pipeline.Item{Message: push.Message{ID: id}, FirstSeen: push.At(seen.Add(after))})
	}
	bulk := func(texts ...string) []byte {
		var b []byte
		for _, text := range texts {
			b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(text), text)
		}
		return b
	}
	f.Add(bulk(fmt.Sprint(later("other", time.Second)), fmt.Sprint(later("other", -time.Second))))
	f.Add(bulk(fmt.Sprint(later("score", time.Second)), fmt.Sprint(later("other", 0))))
	f.Add([]byte("$-1\r\n$-1\r\n"))
	for _, text := range []string{"inf", "-inf", "nan", "1e300", "9.2e18", "-1", "0", "0.5", "9007199254740992", "9007199254740991", "x", ""} {
		f.Add(bulk(text, "0"))
	}
	f.Add([]byte(":1\r\n+2\r\n"))
	f.Add([]byte("*0\r\n*0\r\n"))
	f.Add([]byte("-WRONGTYPE Operation against a key\r\n$-1\r\n"))
	f.Add(bulk("1"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, end, ok := shardstest.Saying(reply, "zscore")
		if !ok {
			return
		}
		defer end()
		latest, err := New(client, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		superseded := []bool{true, true}
		if err := latest.Superseded(context.Background(), items, superseded); err != nil {
			if !strings.HasPrefix(err.Error(), "reading the newest notification per collapse key: ") {
				t.Errorf("got %v", err)
			}
			return
		}
		for i, cmd := range scored(reply) {
			s, err := cmd.Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatalf("taken for an answer; the library says %v", err)
			}
			want := err == nil && s == math.Trunc(s) && s > 0 && s < 1<<53 &&
				int64(s)>>idBits > seen.UnixMilli() && int64(s)&idMask != 0 && int64(s)&idMask != score(items[i])&idMask
			if superseded[i] != want {
				t.Errorf("score %v: superseded %v, want %v", s, superseded[i], want)
			}
		}
	})
}

// scored is what the library alone makes of the reply.
func scored(reply []byte) []*redis.FloatCmd {
	client, end, _ := shardstest.Saying(reply, "zscore")
	defer end()
	pipe := client.Pipeline()
	cmds := []*redis.FloatCmd{pipe.ZScore(context.Background(), "a", "b"), pipe.ZScore(context.Background(), "a", "b")}
	_, _ = pipe.Exec(context.Background()) // each command has its own error
	return cmds
}
