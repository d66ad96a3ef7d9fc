package quota

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// What no gateway wrote, on the Lua of a real server, which reads more as a number than the
// one in memory does: it is as absent, and never an error.
func TestForeignCountsOnARealServer(t *testing.T) {
	addr := localtest.Redis(t, local.RedisOptions{}).Addr()
	raw := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = raw.Close() }()
	client := shardstest.Connect(t, addr)
	const day = int64(24 * time.Hour / time.Microsecond)
	const sum, own = 10, 5 // what is given where the sum is foreign, and where only the gateway's own count is
	for why, tt := range map[string]struct {
		fields []any
		given  int64
	}{
		"the sum is nan":             {[]any{"u", "nan", "b", "0"}, sum},
		"the sum is -nan":            {[]any{"u", "-nan", "b", "0"}, sum},
		"the sum is inf":             {[]any{"u", "inf", "b", "0"}, sum},
		"the sum is hexadecimal":     {[]any{"u", "0x5", "b", "0"}, sum},
		"the sum is huge":            {[]any{"u", strings.Repeat("9", 30), "b", "0"}, sum},
		"the sum is over all limits": {[]any{"u", "99999999999", "b", "0"}, sum},
		"the sum is below 0":         {[]any{"u", "-5", "b", "0"}, sum},
		"the sum is absent":          {[]any{"b", "0"}, sum},
		"the untold part is nan":     {[]any{"u", "5", "b", "nan"}, sum},
		"the untold part is absent":  {[]any{"u", "5"}, sum},
		"its own is huge":            {[]any{"u", "5", "b", "0", "mg", strings.Repeat("9", 400) + " 0"}, own},
		"its own is large":           {[]any{"u", "5", "b", "0", "mg", strings.Repeat("9", 30) + " 0"}, own},
		"its own is nan":             {[]any{"u", "5", "b", "0", "mg", "nan 0"}, own},
		"its last ask is huge":       {[]any{"u", "5", "b", "0", "mg", "0 " + strings.Repeat("9", 30)}, own},
	} {
		t.Run(why, func(t *testing.T) {
			number := time.Now().UnixMicro() / day
			keys := []string{shards.QuotaKey("foreign", why, 86400, 0), shards.QuotaKey("foreign", why, 86400, 1)}
			for k, key := range keys { // the day may end now
				n := number + (int64(k)-number%2+2)%2
				if err := raw.Del(t.Context(), key).Err(); err != nil {
					t.Fatal(err)
				}
				if err := raw.HSet(t.Context(), key, append([]any{"n", n}, tt.fields...)...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			s := newStore(client, "g")
			got := int64(0)
			mine := known{-1, 0, -1}
			for seq := range int64(3) {
				a := ask{seq: seq + 1}
				a.needs[0] = need{length: day, limit: 10, now: 100, parts: [2]known{mine, {-1, 0, -1}}}
				calls := []shards.Call{s.call(t.Context(), keys, &a, 1)}
				if err := s.run(t.Context(), calls); err != nil {
					t.Fatalf("ask %d: %v", seq, err)
				}
				values, err := calls[0].Cmd.Int64Slice()
				if err != nil {
					t.Fatalf("ask %d: %v", seq, err)
				}
				l, err := readLeases(values, &a, 1)
				if err != nil {
					t.Fatalf("ask %d: %v", seq, err)
				}
				got += l.parts[0][0].given
				mine = known{l.time / day, got, max(l.parts[0][0].all-l.parts[0][0].own, 0)}
			}
			if got != tt.given {
				t.Errorf("%d of 10 were given, want %d", got, tt.given)
			}
		})
	}
}

// A gateway that none is, with a time that never comes, is not counted.
func TestForeignGateways(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 10}}, func(f *fleet) {
		for name, score := range map[string]float64{"never": math.Inf(1), "far": 1e18, "near": float64(time.Now().Add(time.Hour).UnixMilli())} {
			if _, err := f.redis.Mini.ZAdd(shards.GatewaysKey("test"), score, name); err != nil {
				t.Fatal(err)
			}
		}
		g := f.join()
		defer g.close()
		time.Sleep(10 * time.Second)
		if n := g.gateways(); n != 1 {
			t.Errorf("%d gateways", n)
		}
	})
}
