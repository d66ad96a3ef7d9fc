package quota

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// chunk is a part of a message as a script of the test's moves it.
type chunk struct {
	message [16]byte
	number  int
	had     int64 // when its record was written
	reached int64 // by whoever works on it now
	counted int64 // the most that was counted of it
	ended   bool
}

// However often chunks are done anew, held and ended, on a day a sender's messages reach no
// more receivers than the limit, none is counted twice, and what is left is given.
func TestReceiversAreCountedOnce(t *testing.T) {
	redis, client := embeddedRedis(t)
	tries := 0
	rapid.Check(t, func(t *rapid.T) {
		tries++
		ctx := context.Background()
		sender := fmt.Sprint("s", tries)
		clock := time.Date(2026, 11, 25, 22, 0, 0, 0, time.UTC)
		redis.Mini.SetTime(clock)
		limit := rapid.Int64Range(1, 100).Draw(t, "limit")
		r := NewRecipients(client, "fleet", 7, map[string]int{sender: int(limit)})
		chunks := make([]*chunk, 4)
		for i := range chunks {
			chunks[i] = &chunk{message: [16]byte{byte(i % 2)}, number: i / 2}
		}
		spent := int64(0) // on this day
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c := rapid.SampledFrom(chunks).Draw(t, "chunk")
			switch rapid.SampledFrom([]string{"page", "page", "page", "again", "hold", "end", "tomorrow"}).Draw(t, "step") {
			case "page":
				if c.ended {
					continue
				}
				wanted := c.reached + rapid.Int64Range(1, 30).Draw(t, "receivers")
				may, err := r.Spend(ctx, sender, c.message, c.number, c.had, wanted)
				if err != nil {
					t.Fatal(err)
				}
				fresh := max(wanted-max(c.counted, c.had), 0)
				given := min(fresh, limit-spent)
				if want := min(max(c.counted, c.had)+given, wanted); may != want {
					t.Fatalf("it may reach %d of %d, want %d", may, wanted, want)
				}
				spent += given
				c.counted = max(c.counted, c.had) + given
				c.reached = max(c.reached, may)
			case "again": // its worker died
				c.reached = c.had
			case "hold":
				c.had = c.reached
			case "end":
				if err := r.Settle(ctx, sender, c.message, c.number); err != nil {
					t.Fatal(err)
				}
				c.ended = true
			case "tomorrow":
				clock = clock.Add(24 * time.Hour)
				redis.Mini.SetTime(clock)
				spent = 0
				for _, c := range chunks {
					c.counted = 0 // of a day before is known what its record says
				}
			}
			if spent > limit {
				t.Fatalf("%d were reached, and the limit is %d", spent, limit)
			}
		}
	})
}

func TestWhoHasNoLimitAsksNobody(t *testing.T) {
	r := NewRecipients(nil, "fleet", 0, map[string]int{"news": 5})
	if may, err := r.Spend(t.Context(), "orders", [16]byte{}, 0, 0, 1e9); may != 1e9 || err != nil {
		t.Errorf("got %d, %v", may, err)
	}
	if err := r.Settle(t.Context(), "orders", [16]byte{}, 0); err != nil {
		t.Error(err)
	}
	own := NewRecipients(nil, "fleet", 5, map[string]int{"orders": 0})
	if may, err := own.Spend(t.Context(), "orders", [16]byte{}, 0, 0, 1e9); may != 1e9 || err != nil {
		t.Errorf("with a limit of 0 of its own: got %d, %v", may, err)
	}
}

// What was counted is kept until its day is over, however silent the sender is, and not for long.
func TestReceiversAreKeptForTheirDay(t *testing.T) {
	redis, client := embeddedRedis(t)
	r := NewRecipients(client, "fleet", 10, nil)
	if _, err := r.Spend(t.Context(), "orders", [16]byte{}, 0, 0, 1); err != nil {
		t.Fatal(err)
	}
	if kept := redis.Mini.TTL(shards.RecipientsKey("fleet", "orders")); kept < 24*time.Hour || kept > 72*time.Hour {
		t.Errorf("it is kept for %v, want a day to three", kept)
	}
}

// Whatever stands in the key, it makes way.
func TestReceiversThatNobodyCountedMakeWay(t *testing.T) {
	redis, client := embeddedRedis(t)
	redis.Mini.SetTime(time.Unix(86400*20000, 0))
	r := NewRecipients(client, "fleet", 10, nil)
	for i, write := range []func(key string){
		func(key string) { _ = redis.Mini.Set(key, "text") },
		func(key string) { _, _ = redis.Mini.Lpush(key, "a") },
		func(key string) { redis.Mini.HSet(key, "n", "20000", "u", "-7") },
		func(key string) { redis.Mini.HSet(key, "n", "20000", "u", "nan") },
		func(key string) { redis.Mini.HSet(key, "n", "20000", "u", "-1e300") },
		func(key string) { redis.Mini.HSet(key, "n", "20000") },
		func(key string) {
			redis.Mini.HSet(key, "n", "20000", "u", "0", strings.Repeat("\x00", 16)+"0", "1e300")
		},
	} {
		sender := fmt.Sprint("s", i)
		write(shards.RecipientsKey("fleet", sender))
		if may, err := r.Spend(t.Context(), sender, [16]byte{}, 0, 0, 100); may != 10 || err != nil {
			t.Errorf("%d: it may reach %d, %v; want 10", i, may, err)
		}
		if may, err := r.Spend(t.Context(), sender, [16]byte{}, 1, 0, 100); may != 0 || err != nil {
			t.Errorf("%d: then it may reach %d more, %v; want 0", i, may, err)
		}
	}
}

func TestRealReceiversAreCounted(t *testing.T) {
	client := shardstest.Connect(t, localtest.Redis(t, local.RedisOptions{}).Addr())
	sender := fmt.Sprint("s", time.Now().UnixNano())
	r := NewRecipients(client, "fleet", 10, nil)
	for _, step := range []struct {
		part      int
		had, upTo int64
		want      int64
	}{{0, 0, 6, 6}, {0, 0, 6, 6}, {1, 0, 6, 4}, {0, 6, 8, 6}, {2, 3, 3, 3}} {
		if may, err := r.Spend(t.Context(), sender, [16]byte{1}, step.part, step.had, step.upTo); may != step.want || err != nil {
			t.Errorf("%+v: %d, %v", step, may, err)
		}
	}
	if err := r.Settle(t.Context(), sender, [16]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	left, err := client.HLen(t.Context(), shards.RecipientsKey("fleet", sender)).Result()
	if err != nil || left != 3 { // the day, the sum, and part 1
		t.Errorf("%d fields are left, %v; want 3", left, err)
	}
}

// It is told how many receivers a sender has reached on the day that is, whatever stands where
// that is counted.
func TestReceiversOfToday(t *testing.T) {
	redis, client := embeddedRedis(t)
	now := time.Date(2026, 11, 25, 23, 59, 50, 0, time.UTC)
	redis.Mini.SetTime(now)
	ctx := t.Context()
	r := NewRecipients(client, "fleet", 0, map[string]int{"a": 100})
	key := shards.RecipientsKey("fleet", "a")
	told := func(why string, used int, left time.Duration) {
		t.Helper()
		want := Standing{Policy: Policy{"recipients", 100, 24 * time.Hour}, Used: used, Remaining: 100 - used, Reset: left}
		if s, err := r.Standing(ctx, "a"); err != nil || s == nil || *s != want {
			t.Errorf("%s: %+v, %v, want %+v", why, s, err, want)
		}
	}
	told("nothing yet", 0, 10*time.Second)
	if _, err := r.Spend(ctx, "a", [16]byte{1}, 0, 0, 70); err != nil {
		t.Fatal(err)
	}
	told("some", 70, 10*time.Second)
	redis.Mini.HSet(key, "u", "170")
	told("a limit that was higher", 100, 10*time.Second)
	redis.Mini.HSet(key, "u", "-4")
	told("no number", 0, 10*time.Second)
	redis.Mini.HSet(key, "u", "70")
	redis.Mini.SetTime(now.Add(10 * time.Second))
	told("tomorrow", 0, 24*time.Hour)
	redis.Mini.Del(key)
	if err := client.Set(ctx, key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	told("a foreign value", 0, 24*time.Hour)
	if s, err := r.Standing(ctx, "b"); s != nil || err != nil {
		t.Errorf("without a limit: %+v, %v", s, err)
	}
	redis.Close()
	if s, err := r.Standing(ctx, "a"); s != nil || err == nil {
		t.Errorf("without Redis: %+v, %v", s, err)
	}
}
