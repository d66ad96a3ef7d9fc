package worker

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// A worker reads what was put off. What is not due when its tier ends is put off again,
// into the largest tier that fits the rest, without an attempt.
func TestWhatIsNotDueYetIsPutOffAgain(t *testing.T) {
	c, o, store := servers(t)
	fcmApp(t, c, "shop")
	lane, now := c.Lanes[0], time.Now()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ms := func(at time.Time) []byte { return []byte(strconv.FormatInt(at.UnixMilli(), 10)) }
	r := &kgo.Record{Topic: kafka.DeferTopic(lane.Topic, "30s"), Timestamp: now.Add(-time.Minute), Key: []byte("u1"),
		Value: []byte(`{"id":"n1","app":"shop","user_id":"u1","title":"t"}`),
		Headers: []kgo.RecordHeader{{Key: "pf-v", Value: []byte("1")}, {Key: "pf-attempt", Value: []byte("1")}, {Key: "pf-hops", Value: []byte("2")},
			{Key: "pf-state", Value: []byte("HELD")}, {Key: "pf-first-seen", Value: ms(now.Add(-time.Minute))}, {Key: "pf-not-before", Value: ms(now.Add(8 * time.Minute))}}}
	if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	row := push.Row{ID: "n1", Step: 2, State: push.StateHeld, At: now, Reason: string(push.Quiet), UserHash: push.UserHash("u1")}
	if err := store.Write(t.Context(), []push.Row{row}); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := Run(ctx, o); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	defer working.Wait()
	defer stop()
	var rows []push.Row
	await(t, "it is put off again", func() bool {
		found, err := store.Read(t.Context(), []string{"n1"})
		if err != nil {
			t.Fatal(err)
		}
		rows = found[0]
		return len(rows) > 1
	})
	if last := rows[len(rows)-1]; last.Step != 3 || last.State != push.StateHeld || last.Reason != string(push.NotDue) {
		t.Errorf("the rows are %+v, want the last one HELD at step 3 because it is not due", rows)
	}
	for topic, want := range map[string]int64{kafka.DeferTopic(lane.Topic, "5m"): 1, kafka.DeferTopic(lane.Topic, "30s"): 1, kafka.RetryTopic(lane.Topic, "5m"): 0, kafka.RetryTopic(lane.Topic, "30s"): 0} {
		if got := end(t, c, topic); got != want {
			t.Errorf("%s has %d records, want %d", topic, got, want)
		}
	}
}
