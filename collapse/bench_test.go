package collapse_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
)

// byScript has the commands that add a key in a script, a call for each shard of users.
const byScript = `for i = 1, #KEYS do
  if redis.call('ZADD', KEYS[i], 'GT', ARGV[2 + 2 * i], ARGV[3 + 2 * i]) > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[i], 0, ARGV[3])
  end
  redis.call('PEXPIRE', KEYS[i], ARGV[2])
end
return #KEYS`

// BenchmarkLatest has one collapse key each of 50,000 users, 500 at a time: what is accepted of
// them when none is open, opening them, what is accepted then, and a script that opens them,
// in turns. It reports what each costs Redis for a key by its own account, in us.
func BenchmarkLatest(b *testing.B) {
	const users, group = 50_000, 500
	o := shards.DefaultOptions()
	o.Addrs, o.ReadTimeout = []string{localtest.Redis(b, local.RedisOptions{}).Addr()}, time.Minute
	client, err := shards.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	settings := collapse.DefaultOptions()
	settings.Timeout = time.Minute
	latest, err := collapse.New(client, settings)
	if err != nil {
		b.Fatal(err)
	}
	script := redis.NewScript(byScript)
	if err := script.Load(b.Context(), client).Err(); err != nil {
		b.Fatal(err)
	}
	accepted := func(_ string, items []*pipeline.Item) error { return latest.Accepted(b.Context(), items) }
	handedOver := func(_ string, items []*pipeline.Item) error { return latest.HandedOver(b.Context(), items) }
	ways := []struct {
		name, users string
		do          func(prefix string, items []*pipeline.Item) error
	}{
		{"accepted", "never", accepted},
		{"handed-over", "retried", handedOver},
		{"accepted-open", "retried", accepted},
		{"script", "script", func(prefix string, items []*pipeline.Item) error {
			keys, args := map[int][]string{}, map[int][]any{}
			for i, it := range items {
				shard := shards.UserShard(it.UserID)
				if keys[shard] == nil {
					args[shard] = []any{0, (24 * time.Hour).Milliseconds(), -257}
				}
				keys[shard] = append(keys[shard], shards.CollapseKey(shard, it.UserID))
				args[shard] = append(args[shard], it.FirstSeen.Time().UnixMilli()<<11, binary.BigEndian.AppendUint64(nil, uint64(i)<<32|uint64(len(prefix))<<40))
			}
			pipe := client.Pipeline()
			for shard := range keys {
				script.EvalSha(b.Context(), pipe, keys[shard], args[shard]...)
			}
			_, err := pipe.Exec(b.Context())
			return err
		}},
	}
	spent, round := map[string]time.Duration{}, 0
	for b.Loop() {
		round++
		now := time.Now()
		for _, way := range ways {
			var all []*pipeline.Item
			for i := range users {
				all = append(all, sent(fmt.Sprint(round, "-", i), fmt.Sprint("order-", round, "-", i), now, func(it *pipeline.Item) { it.UserID = way.users + strconv.Itoa(i) }))
			}
			before := processorTime(b, client)
			for at := 0; at < users; at += group {
				if err := way.do(strings.Repeat("x", round), all[at:at+group]); err != nil {
					b.Fatal(err)
				}
			}
			spent[way.name] += processorTime(b, client) - before
		}
	}
	for way, d := range spent {
		b.ReportMetric(float64(d)/float64(time.Microsecond)/float64(round*users), way+"-us")
	}
}

// processorTime is what a Redis has used so far, by its own account.
func processorTime(b *testing.B, client redis.UniversalClient) (all time.Duration) {
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatal(err)
		}
		all += time.Duration(seconds * float64(time.Second))
	}
	return all
}
