package worker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

// stateNight is a night with one lane and one user.
func stateNight(t *testing.T, c *configs.Config, token string) (n *night, route push.Route) {
	c.Kafka.JoinWithin, c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 0, 2, 1
	c.Dedupe.Capacity, c.Registry.CheckInterval = 100_000, 10*time.Minute
	c.Admin.Listen, c.Registry.Listen = "", ""
	c.Lanes = c.Lanes[1:2]
	route = apnsApp(t, c, "shop")
	n = newNight(t, route, c)
	n.users(func(client *users.Client) error {
		_, err := client.RegisterDevice(t.Context(), "secret-user", push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: token, RegisteredAt: time.Now()})
		return err
	})
	return n, route
}

// eachEvent has do called with all that push.events tells so far, and with its record.
func (n *night) eachEvent(do func(e *events.Event, record string)) {
	n.t.Helper()
	ends, err := kadm.NewClient(n.client).ListEndOffsets(n.t.Context(), kafka.EventsTopic)
	if err != nil {
		n.t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	reader, err := kgo.NewClient(kgo.SeedBrokers(n.config.Kafka.Brokers...), kgo.Dialer(n.options.Dial), kgo.ConsumeTopics(kafka.EventsTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer reader.Close()
	var d events.Decoder
	for left > 0 {
		for _, r := range reader.PollFetches(n.t.Context()).Records() {
			left--
			e, err := d.Decode(r.Value)
			if err != nil {
				n.t.Fatal(err)
			}
			if e != nil {
				do(e, string(r.Value))
			}
		}
	}
}

// states are the states in push.events so far, of all workers in the order of the log,
// and the records that tell them.
func (n *night) states() (told []*events.Event, records []string) {
	n.t.Helper()
	n.eachEvent(func(e *events.Event, record string) {
		if e.State != nil {
			told, records = append(told, e), append(records, record)
		}
	})
	slices.SortStableFunc(told, func(a, b *events.Event) int { return a.At.Compare(b.At) })
	return told, records
}

// A worker tells its state once a second. A provider that asks for a pause is seen in
// the next one, and an orderly end is the last. No state holds a token, a user, a key, or
// a word that a provider made up.
func TestAWorkerTellsItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, token := configs.Default(), fmt.Sprintf("%064x", "secret")
		n, route := stateNight(t, c, token)
		defer n.close()
		n.options.Version = "1.2.0"
		answer := push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: 10 * time.Minute, Reason: "TooManyRequests"}
		first := true
		n.options.Wrap = func(o pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
			o.Routes = map[push.Route]pipeline.Provider{route: calls.NewCaller(1, func(context.Context, *pipeline.Delivery) push.Result {
				if first {
					first = false
					return push.Result{Class: push.Refused, Reason: token}
				}
				return answer
			})}
			return o
		}
		before := time.Now()
		stop := n.worker()
		time.Sleep(time.Minute)
		told, _ := n.states()
		if len(told) < 50 {
			t.Fatalf("%d states in a minute", len(told))
		}
		for i, e := range told[1:] {
			if d := e.At.Sub(told[i].At); d < 900*time.Millisecond || d > 1100*time.Millisecond {
				t.Errorf("%v between two states, want a second", d)
			}
		}
		well := told[len(told)-1].State
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if well.Worker != host || well.Release != "1.2.0" || well.Started.Before(before) || well.Memory <= 0 || well.MemoryBound != int64(c.MemoryBound().Total()) || well.Last || well.Omitted != 0 ||
			well.RepeatBound != 2*int64(c.Send.InFlight+c.Status.Unacknowledged) {
			t.Errorf("told %+v", well)
		}
		if l := laneOf(well, "push.transactional"); l == nil || l.Lane != "transactional" || !slices.Equal(l.Partitions, []int32{0, 1}) || l.Open != 0 || !l.Oldest.IsZero() {
			t.Errorf("the lane: %+v", l)
		}
		if l := laneOf(well, "push.transactional.retry.30s"); l == nil || l.Lane != "transactional.retry" || !slices.Equal(l.Partitions, []int32{0, 1}) {
			t.Errorf("its retries: %+v", l)
		}
		if len(well.Routes) != 1 || well.Routes[0].Gate != "open" || well.Routes[0].Provider != "apns" || well.Routes[0].App != "shop" || well.Routes[0].Environment != push.Production || !strings.HasSuffix(well.Routes[0].RateName, "/production") {
			t.Errorf("the routes: %+v", well.Routes)
		}

		n.produce("n1", "secret-user", nil)
		n.produce("n2", "secret-user", nil)
		time.Sleep(2 * time.Second)
		told, _ = n.states()
		r := told[len(told)-1].State.Routes[0]
		if r.Gate != "paused" || time.Until(r.Until) < 9*time.Minute || r.Word != "TooManyRequests" ||
			!slices.Contains(r.Answers, events.AnswerState{Class: "again", Reason: "TooManyRequests", N: 1}) || !slices.Contains(r.Answers, events.AnswerState{Class: "refused", Reason: "other", N: 1}) {
			t.Errorf("2 s after the provider asked for a pause: %+v", r)
		}

		stop()
		time.Sleep(5 * time.Second)
		told, records := n.states()
		for i, e := range told {
			if last := i == len(told)-1; e.State.Last != last {
				t.Errorf("state %d of %d is the last: %v", i+1, len(told), e.State.Last)
			}
		}
		key, err := os.ReadFile(c.Apps[0].APNS.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{token, "secret", "n1", strings.Split(string(key), "\n")[1]} {
			for _, value := range records {
				if strings.Contains(value, secret) {
					t.Fatalf("a state holds %q: %s", secret, value)
				}
			}
		}
		t.Logf("a state has %d bytes", len(records[0]))
	})
}

// Without events.state nothing of it is told, and counts are.
func TestAWorkerTellsNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Events.State = false
		n, _ := stateNight(t, c, fmt.Sprintf("%064x", 1))
		defer n.close()
		stop := n.worker()
		time.Sleep(time.Minute)
		stop()
		if told, _ := n.states(); len(told) != 0 {
			t.Errorf("%d states", len(told))
		}
	})
}

func laneOf(s *events.State, topic string) *events.LaneState {
	for i := range s.Lanes {
		if s.Lanes[i].Topic == topic {
			return &s.Lanes[i]
		}
	}
	return nil
}

// A stall of a line is told for each partition that waits in it, once for all lines of
// its route; one of a store once.
func TestStallsOfAState(t *testing.T) {
	since := time.Unix(1_800_000_000, 0)
	route := push.Route{Platform: push.FCM, App: "shop"}
	a, b := push.Partition{Topic: "push.critical", ID: 1}, push.Partition{Topic: "push.critical", ID: 2}
	var got []string
	for _, s := range stallStates("critical", []gates.Stall{
		{Name: "route_paused", Since: since, Line: gates.Line{Route: route}, Partitions: []push.Partition{a}},
		{Name: "status", Detail: "not told", Since: since.Add(time.Second)},
		{Name: "route_paused", Since: since.Add(2 * time.Second), Line: gates.Line{Route: route, Charge: "retry"}, Partitions: []push.Partition{a, b}},
	}) {
		partition := int32(-1)
		if s.Partition != nil {
			partition = *s.Partition
		}
		got = append(got, fmt.Sprint(s.Reason, s.Lane, s.Topic, partition, s.Route, int(s.Since.Sub(since).Seconds())))
	}
	want := []string{fmt.Sprint("route_paused", "critical", "push.critical", 1, "fcm/shop", 0), fmt.Sprint("status", "critical", "", -1, "", 1), fmt.Sprint("route_paused", "critical", "push.critical", 2, "fcm/shop", 2)}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A topic whose partitions have left is told as long as pushes of it are under way.
func TestLanesOfAState(t *testing.T) {
	old, older := time.Unix(1_800_000_000, 0), time.Unix(1_700_000_000, 0)
	states := laneStates("critical", []kafka.Owned{
		{Partition: push.Partition{Topic: "a", ID: 0}, Open: 3, Oldest: old}, {Partition: push.Partition{Topic: "a", ID: 7}, Open: 4, Oldest: older}, {Partition: push.Partition{Topic: "b", ID: 1}},
	}, map[string]int64{"a": 5, "left": 2})
	if len(states) != 3 || !slices.Equal(states[0].Partitions, []int32{0, 7}) || states[0].Open != 7 || states[0].Pushes != 5 || !states[0].Oldest.Equal(older) ||
		!slices.Equal(states[1].Partitions, []int32{1}) || !states[1].Oldest.IsZero() || states[2].Topic != "left" || states[2].Pushes != 2 || states[2].Partitions == nil {
		t.Errorf("%+v", states)
	}
}
