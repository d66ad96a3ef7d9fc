package worker

import (
	"context"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
)

// A worker shares the rates of its apps while it works: it takes over what the fleet has
// come to, and gives up its part when it ends.
func TestAWorkerSharesTheRatesOfItsApps(t *testing.T) {
	c, o, _ := servers(t)
	shop := fcmApp(t, c, "shop")
	project := c.Apps[len(c.Apps)-1].FCM
	project.Rate = 500
	options, err := wiring.Redis(c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := shards.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	name := wiring.Counted(c)[shop].Name
	key := shards.RateKey(c.Kafka.Group, name)
	if err := client.HSet(t.Context(), key, "e", 4, "r", "400", "k", "500", "s", "0").Err(); err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	o.Metrics = metrics
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := Run(ctx, o); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	await(t, "the worker has the fleet's rate", func() bool { return gauge(t, metrics, "push_route_rate", name) == 400 })
	members := func() (n int) {
		fields, err := client.HKeys(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			if f[0] == 'm' {
				n++
			}
		}
		return n
	}
	if n := members(); n != 1 {
		t.Errorf("%d members ask for the rate, want the one worker", n)
	}
	stop()
	working.Wait()
	if n := members(); n != 0 {
		t.Errorf("%d members after the worker has ended, want none", n)
	}
}
