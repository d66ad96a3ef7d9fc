package users_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// bulkReply is the answer to an MGET; nil is a value that is not there.
func bulkReply(values ...[]byte) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(values))
	for _, v := range values {
		if v == nil {
			b = append(b, "$-1\r\n"...)
			continue
		}
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(v), v)
	}
	return b
}

// FuzzReply has Redis say anything to a read of two users. The answer is read by
// code of our own, without the library's allocations: what it takes for an answer
// must be one to the library as well, and value k belong to owner k.
func FuzzReply(f *testing.F) {
	const marker = "00000000feedbeef"
	ada, bob := userWith("ada-token"), userWith("bob-token")
	packed := func(u *push.User) []byte { return record.Encode(nil, u, 0xfeedbeef) }
	good := bulkReply([]byte(marker), packed(ada), packed(bob), []byte("limit of ada"), nil)
	f.Add(good)
	f.Add(bulkReply([]byte(marker), nil, packed(bob), nil, []byte("limit of bob")))
	f.Add(bulkReply([]byte(marker), packed(ada), []byte("no record"), nil, nil))
	f.Add(bulkReply(nil, packed(ada), packed(bob), nil, nil))
	f.Add(bulkReply([]byte("newer"), nil, nil, nil, nil))
	f.Add(bulkReply([]byte(marker), packed(ada), packed(bob)))
	f.Add(bulkReply([]byte(marker), record.Encode(nil, ada, 7), packed(bob), nil, nil)) // of another build
	f.Add(bulkReply([]byte(marker), packed(ada), packed(bob), nil, nil, nil))
	f.Add(good[:len(good)-1])
	f.Add(bytes.Replace(good, []byte("$-1\r\n"), []byte("_\r\n"), 1))
	f.Add(bytes.Replace(good, []byte("\r\n$"), []byte("xx$"), 1))                  // no end of a value
	f.Add(append(bytes.Clone(good), good...))                                      // more than was asked for
	f.Add(append(bytes.Replace(good, []byte("*5"), []byte("*6"), 1), ":1\r\n"...)) // all that was asked for, and a number
	f.Add([]byte("-WRONGTYPE Operation against a key\r\n"))
	f.Add([]byte("*999\r\n"))
	f.Add([]byte("*5\r\n$9999\r\n"))
	f.Add([]byte("+OK\r\n"))
	owners := []string{"ada", sameShard("ada")}
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, end, ok := shardstest.Saying(reply, "mget")
		if !ok {
			return
		}
		defer end()
		client.AddHook(nothingThere{})
		out := []*push.User{{}, {}}
		err := users.NewReader(client, true).Fetch(context.Background(), owners, out)
		values, theirs := asked(reply)
		if err != nil {
			if theirs == nil && len(values) == 5 && values[0] == marker && bytes.Equal(reply, bulkReply(bytesOf(values)...)) {
				t.Errorf("refused, and the library reads %q: %v", values, err)
			}
			return
		}
		if theirs != nil || len(values) != 5 {
			t.Fatalf("taken for an answer; the library says %d values, %v", len(values), theirs)
		}
		for i, u := range out {
			limiter, _ := values[3+i].(string)
			if string(u.Limiter) != limiter {
				t.Errorf("limiter state %d is %q, want %q", i, u.Limiter, limiter)
			}
			if u.Quarantine != 0 {
				continue
			}
			var want push.User
			if raw, there := values[1+i].(string); there {
				build, err := strconv.ParseUint(fmt.Sprint(values[0]), 16, 64)
				if err != nil || new(record.Decoder).Decode([]byte(raw), build, &want) != nil {
					t.Fatalf("taken for a record of the build %q: %q", values[0], raw)
				}
			}
			if got := u.Devices; len(got)+len(want.Devices) > 0 && !reflect.DeepEqual(got, want.Devices) {
				t.Errorf("owner %d has %+v, want %+v", i, got, want.Devices)
			}
		}
	})
}

// nothingThere answers what is asked about owners without a record: they have no key. What
// is fuzzed is the answer before it.
type nothingThere struct{ meanwhile }

func (nothingThere) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "exists" {
			return nil
		}
		return next(ctx, cmds)
	}
}

// asked is what the library makes of the same bytes.
func asked(reply []byte) ([]any, error) {
	client, end, _ := shardstest.Saying(reply, "mget")
	defer end()
	values, err := client.MGet(context.Background(), "a", "b", "c", "d", "e").Result()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return values, err
}

func bytesOf(values []any) [][]byte {
	raw := make([][]byte, len(values))
	for i, v := range values {
		if s, there := v.(string); there {
			raw[i] = append([]byte{}, s...)
		}
	}
	return raw
}

func userWith(token string) *push.User {
	return &push.User{Devices: []push.Device{{Platform: push.FCM, App: "shop", Token: token,
		Hash: push.DeviceHash(push.FCM, token), RegisteredAt: time.UnixMilli(1_790_000_000_000).UTC()}}}
}

// sameShard is another user of the shard of user.
func sameShard(user string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("u", i); shards.UserShard(name) == shards.UserShard(user) {
			return name
		}
	}
}
