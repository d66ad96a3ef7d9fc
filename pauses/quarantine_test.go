package pauses_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

func TestQuarantinesInRedis(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		var log bytes.Buffer
		s := store(t, client, &log)
		odd := push.Origin{Kind: push.OfSender, Name: "a b/c \xff"}
		autumn := push.Origin{Kind: push.OfCampaign, Name: "autumn", Sender: "a/b @c"}
		err := s.Quarantine(t.Context(), []gates.Quarantined{
			{Route: apnsShop, Origin: autumn, Left: time.Hour},
			{Route: fcmShop, Origin: odd, Left: 1000 * time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		stopped := shards.QuarantineKey(fleet)
		for _, garbage := range []string{"x", "nowhere campaign/autumn", apnsShop.String() + " campaign/", apnsShop.String() + " topic/x", apnsShop.String() + " sender@a/x", apnsShop.String() + " campaign@/x", apnsShop.String() + " campaign@%/x"} {
			if err := client.ZAdd(t.Context(), stopped, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: garbage}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.Quarantined(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left := make(map[push.Origin]time.Duration)
		for _, q := range all {
			left[q.Origin] = q.Left.Round(time.Minute)
		}
		if len(all) != 2 || left[autumn] != time.Hour || left[odd] != gates.LongestQuarantine {
			t.Errorf("read %+v", all)
		}
		if !strings.Contains(log.String(), "ignoring an invalid") {
			t.Error("nothing was said of garbage")
		}
		for _, want := range []bool{true, false} {
			if there, err := s.Release(t.Context(), apnsShop, autumn); err != nil || there != want {
				t.Errorf("released: %v %v, want %v", there, err, want)
			}
		}
		if all, err = s.Quarantined(t.Context()); err != nil || len(all) != 1 || all[0].Origin != odd || all[0].Route != fcmShop {
			t.Errorf("after the release: %+v %v", all, err)
		}
	})
}
