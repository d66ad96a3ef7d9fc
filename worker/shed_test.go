package worker

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// backlog is how many notifications wait before the worker of a backlog's tests starts:
// go test ./worker -run Backlog -backlog 500000.
var backlog = flag.Int("backlog", 20_000, "notifications that wait before the worker starts, in tests of a backlog; at least 20,000")

// classes are the priorities as producers write them.
var classes = [...]string{"critical", "high", "medium", "low", "bulk"}

// crowded is a fleet with a backlog of n notifications that wait before its worker
// starts, of all priorities by turns, with a provider that takes 10,000 a second.
func crowded(t *testing.T, n int, edit func(*configs.Config)) (*night, []string) {
	t.Helper()
	return crowdedBy(t, n, time.Millisecond, edit, nil)
}

// crowdedBy is crowded with a provider that takes 10 in so much time, and with what the
// notifications say besides.
func crowdedBy(t *testing.T, n int, takes time.Duration, edit func(*configs.Config), say func(i int, message map[string]any)) (*night, []string) {
	t.Helper()
	c := nightConfig()
	c.Kafka.Topics.Partitions = 4
	c.Lanes[0].Shed = configs.Shed{Enabled: true, High: 10_000, Medium: 5000, Low: 2000, Bulk: 1000}
	if edit != nil {
		edit(c)
	}
	route := apnsApp(t, c, "shop")
	f := newNight(t, route, c)
	f.options.Wrap = func(o pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		o.Routes = map[push.Route]pipeline.Provider{route: calls.NewCaller(10, func(ctx context.Context, d *pipeline.Delivery) push.Result {
			time.Sleep(takes)
			return f.accept(ctx, d)
		})}
		return o
	}
	ids, records := make([]string, n), make([]*kgo.Record, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", classes[i%len(classes)], i)
		message := map[string]any{"id": ids[i], "app": "shop", "type": "news", "title": "News", "priority": classes[i%len(classes)],
			"device": map[string]any{"platform": "apns", "token": fmt.Sprintf("%064x", i), "environment": "production"}}
		if say != nil {
			say(i, message)
		}
		value, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		records[i] = &kgo.Record{Topic: c.Lanes[0].Topic, Key: []byte(ids[i]), Value: value}
	}
	if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return f, ids
}

// shedCount is what a worker's metrics say of what it shed.
func shedCount(t *testing.T, metrics *prometheus.Registry) (n int) {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "push_shed_total" {
			for _, m := range f.Metric {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// shedEvents is how many failures of each id push.events tells as SHED.
func (n *night) shedEvents() map[string]int {
	n.t.Helper()
	told := make(map[string]int)
	n.eachEvent(func(e *events.Event, _ string) {
		for _, f := range e.Failures {
			if f.State == "SHED" && strings.HasPrefix(f.Reason, "depth:class=") {
				told[f.ID]++
			}
		}
	})
	return told
}

// outcomes checks that each notification has one row, that what is DELIVERED was pushed
// once and what is SHED never, and returns how many of each priority are SHED.
func (n *night) outcomes(ids []string) (shed map[string]int) {
	n.t.Helper()
	shed = make(map[string]int)
	for _, id := range ids {
		class, _, _ := strings.Cut(id, "-")
		rows, pushed := n.became(id)
		switch {
		case len(rows) == 1 && rows[0] == "DELIVERED" && len(pushed) == 1:
		case len(rows) == 1 && strings.HasPrefix(rows[0], "SHED depth:class="+class+" depth=") && len(pushed) == 0:
			shed[class]++
		default:
			n.t.Errorf("%s: %q, pushed %d times", id, rows, len(pushed))
		}
	}
	return shed
}

// allCommitted reports whether the lane's group has committed n records.
func (n *night) allCommitted(records int) bool {
	n.t.Helper()
	l := n.config.Lanes[0]
	offsets, err := kadm.NewClient(n.client).FetchOffsetsForTopics(n.t.Context(), n.config.Kafka.LaneGroup(l.Name), l.Topic)
	if err != nil {
		n.t.Fatal(err)
	}
	sum := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { sum += max(0, o.At) })
	return sum == int64(records)
}

// A backlog over all priorities: what is critical is delivered, all of it, and for each
// that is shed there is a row, an event and a count that name the reason.
func TestABacklogIsShedByClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := *backlog
		n, ids := crowded(t, records, nil)
		defer n.close()
		o := n.options
		o.Metrics = prometheus.NewRegistry()
		stop := n.start(func(ctx context.Context) error { return Run(ctx, o) })
		time.Sleep(5 * time.Minute)
		if !n.allCommitted(records) {
			t.Error("not all is committed")
		}
		stop() // so that all events are told
		shed := n.outcomes(ids)
		if shed["critical"] > 0 || shed["bulk"] == 0 || shed["bulk"] < shed["low"] || shed["low"] < shed["medium"] || shed["medium"] < shed["high"] || shed["high"] == 0 {
			t.Errorf("got %v shed: want none that is critical, and of others more the less urgent they are", shed)
		}
		sum := 0
		for _, n := range shed {
			sum += n
		}
		told := n.shedEvents()
		for id, times := range told {
			if times != 1 {
				t.Errorf("%s: told %d times", id, times)
			}
		}
		if got := shedCount(t, o.Metrics); got != sum || len(told) != sum {
			t.Errorf("%d rows, %d counted, %d told", sum, got, len(told))
		}
		t.Logf("%d records: %v of each fifth shed, %d told", records, shed, len(told))
	})
}

// What expires before its turn would come, behind what has a day, is sent in time; and
// what has a day is sent too.
func TestWhatExpiresSoonDoesNotWaitForWhatHasADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 10_000 // 10 s of work, of all of which the last tenth has 3
		soon := func(i int) bool { return i >= records/2 && i%5 == 1 }
		n, ids := crowdedBy(t, records, 10*time.Millisecond, func(c *configs.Config) {
			c.Lanes[0].Shed = configs.Shed{Enabled: true, High: 1e6, Medium: 1e6, Low: 1e6, Bulk: 1e6}
			c.Send.InFlight, c.Status.Unacknowledged = 50, 50 // what is in a window is in no line
		}, func(i int, message map[string]any) {
			left := 24 * time.Hour
			if soon(i) {
				left = 3 * time.Second
			}
			message["priority"], message["expires_at"] = "low", time.Now().Add(left).UTC().Format(time.RFC3339Nano)
		})
		defer n.close()
		n.start(func(ctx context.Context) error { return Run(ctx, n.options) })
		time.Sleep(5 * time.Minute)
		for i, id := range ids {
			if rows, pushed := n.became(id); len(rows) != 1 || rows[0] != "DELIVERED" || len(pushed) != 1 {
				t.Errorf("%s, soon %v: %q, pushed %d times", id, soon(i), rows, len(pushed))
			}
		}
	})
}

func TestNothingOfABacklogIsShedUnlessItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := *backlog / 4
		n, ids := crowded(t, records, func(c *configs.Config) { c.Lanes[0].Shed = configs.Shed{High: 1, Medium: 1, Low: 1, Bulk: 1} })
		defer n.close()
		o := n.options
		o.Metrics = prometheus.NewRegistry()
		n.start(func(ctx context.Context) error { return Run(ctx, o) })
		time.Sleep(5 * time.Minute)
		if shed := n.outcomes(ids); len(shed) > 0 || shedCount(t, o.Metrics) > 0 || !n.allCommitted(records) {
			t.Errorf("got %v shed", shed)
		}
	})
}

// A worker that ends between its rows and their commit leaves all records to the next
// one. That one sheds nothing again and pushes nothing that was shed, although the
// backlog is gone by then.
func TestWhatWasShedStaysShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 4000
		n, ids := crowded(t, records, func(c *configs.Config) {
			c.Lanes[0].Shed = configs.Shed{Enabled: true, High: 1500, Medium: 1000, Low: 500, Bulk: 200}
		})
		defer n.close()
		commits := true
		n.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			n.cluster.KeepControl()
			return nil, errors.New("commits do not come through"), !commits
		})
		commits = false
		stop := n.worker()
		time.Sleep(time.Minute)
		stop()
		before := n.outcomes(ids)
		if n.allCommitted(records) || before["bulk"] == 0 {
			t.Fatalf("got %v shed, all committed %v: this tests nothing", before, n.allCommitted(records))
		}
		commits = true
		o := n.options
		o.Metrics = options(n.config, io.Discard).Metrics
		n.start(func(ctx context.Context) error { return Run(ctx, o) })
		time.Sleep(5 * time.Minute)
		after := n.outcomes(ids)
		if fmt.Sprint(after) != fmt.Sprint(before) || shedCount(t, o.Metrics) > 0 || !n.allCommitted(records) {
			t.Errorf("%v shed before, %v after, %d by the second worker", before, after, shedCount(t, o.Metrics))
		}
	})
}
