package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/status"
)

// A log of devices is opened only where the configuration names one.
func TestDeviceLog(t *testing.T) {
	c := configs.Default()
	c.Cassandra.Hosts = []string{"127.0.0.1:1"} // nobody
	o, err := Cassandra(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log, done, err := DeviceLog(t.Context(), c, o)
	if log != nil || err != nil {
		t.Errorf("in Redis: %v, %v", log, err)
	}
	done()
	c.Limits.Devices.Backend = "cassandra"
	if _, _, err := DeviceLog(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), "limits.devices: connecting") {
		t.Errorf("nobody is there: %v", err)
	}
}

// As configured, the stage of a worker drops what is over a device's limit, in Redis
// or in Cassandra; what is in Cassandra is there after a wipe of Redis.
func TestDeviceLimitsAsConfigured(t *testing.T) {
	client := shardstest.Start(t)
	for _, backend := range []string{"redis", "cassandra"} {
		t.Run(backend, func(t *testing.T) {
			c := configs.Default()
			c.Limits.StateVersion, c.Limits.Devices.Backend = 2, backend
			c.Limits.Rules = []configs.Rule{{Name: "device-a-day", Per: "device_type", Algorithm: "event_set", Max: 1, Calendar: "day"}}
			var log *limits.DeviceLog
			if backend == "cassandra" {
				var done func()
				log, done = openDeviceLog(t, c)
				defer done()
			}
			limiter, err := limits.New(client, Rules(c), LimitsOptions(c, log)...)
			if err != nil {
				t.Fatal(err)
			}
			stage := &stages.Limits{Limiter: func() stages.Limiter { return limiter }}
			send := func(id string, tokens ...string) (answers string) {
				it := pipeline.Item{Message: push.Message{ID: id, UserID: "u", Type: "news", Priority: push.Medium}, User: &push.User{}}
				it.User.Limiter, _ = client.Get(t.Context(), shards.LimiterKey(shards.UserShard("u"), "u")).Bytes() // none is nil
				for _, token := range tokens {
					it.Deliveries = append(it.Deliveries, pipeline.Delivery{Device: pipeline.Device{Token: token, Hash: push.DeviceHash(push.APNS, token)}, Route: push.Route{Platform: push.APNS}})
				}
				b := &pipeline.Batch{Items: []pipeline.Item{it}}
				if err := stage.Apply(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				for _, d := range b.Items[0].Deliveries {
					answers += fmt.Sprint(d.Device.Token, " ", d.Reason, ",")
				}
				return fmt.Sprint(b.Items[0].Verdict, " ", answers)
			}
			got := []string{send("1", "a"), send("2", "a", "b"), send("3", "a", "b"), send("1", "a")}
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			got = append(got, send("4", "a"))
			sent, dropped := push.Undecided, push.Suppressed
			want := []string{fmt.Sprint(sent, " a ,"), fmt.Sprint(sent, " a limited:device-a-day,b ,"), fmt.Sprint(dropped, " "), fmt.Sprint(sent, " a ,"), fmt.Sprint(dropped, " ")}
			if backend == "redis" {
				want[4] = want[0]
			}
			if strings.Join(got, "; ") != strings.Join(want, "; ") {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// openDeviceLog opens the log in a keyspace of its own, which has no tables at first.
func openDeviceLog(t *testing.T, c *configs.Config) (*limits.DeviceLog, func()) {
	t.Helper()
	c.Cassandra.Hosts, c.Cassandra.Timeout = []string{localtest.Require(t).Cassandra}, time.Minute
	c.Cassandra.Keyspace = "t" + strings.ReplaceAll(uuid.NewString(), "-", "")
	reg := prometheus.NewRegistry()
	o, err := Cassandra(c, reg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, _, err := DeviceLog(ctx, c, o); err == nil {
		t.Error("opened without a keyspace")
	}
	if _, err := status.ApplySchema(ctx, o, Schema(c)); err != nil {
		t.Fatal(err)
	}
	log, done, err := DeviceLog(ctx, c, o) // the attempts before have registered nothing
	if err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(reg, "push_device_limit_reads_total"); n != 2 || err != nil {
		t.Errorf("%d series of reads, %v", n, err)
	}
	return log, done
}
