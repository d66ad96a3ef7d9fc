package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// lane is what a pipeline needs in addition to Kafka: users with one device each, a
// provider that always fails for some of them, and a status store in memory.
type lane struct {
	mu   sync.Mutex
	rows map[string][]push.Row
	log  bytes.Buffer
}

func (*lane) Name() pipeline.Step { return "devices" }

func (*lane) Apply(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict == push.Undecided {
			it.Deliveries = []pipeline.Delivery{{Item: it, Route: push.Route{Platform: push.FCM, App: "shop"},
				Device: pipeline.Device{Hash: it.ID}, Expires: push.At(time.Now().Add(time.Hour))}}
		}
	}
	return nil
}

func (*lane) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		d.Result = push.Result{Class: push.Delivered, Certainty: push.Accepted}
		if d.Item.Offset%10 == 5 {
			d.Result = push.Result{Class: push.Again, Reason: "Timeout"}
		}
	}
	done(ds)
	return len(ds), nil
}

func (l *lane) Write(_ context.Context, rows []push.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.rows[r.ID] = append(l.rows[r.ID], r)
	}
	return nil
}

func (*lane) Bucket(string) int64 { return 0 }

func (*lane) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	return make([][]push.Row, len(ids)), nil
}

func (*lane) Add(context.Context, []string) error { return nil }

// states returns the number of rows of each state.
func (l *lane) states() map[push.State]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := make(map[push.State]int)
	for _, rows := range l.rows {
		for _, r := range rows {
			n[r.State]++
		}
	}
	return n
}

// logged returns how many lines of the log contain all parts.
func (l *lane) logged(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.log.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// lockedLog writes the log, under the lane's lock.
type lockedLog struct{ *lane }

func (l lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(line)
}

// Without the right to write to the retry topic or the DLQ, records that belong there get
// no row and no commit passes them. The others are sent, and the log says which topic
// failed and why. When the right is back, everything goes on by itself: nothing is lost
// or written twice.
func TestARightThatIsTakenAwayStopsTheCommitAndLosesNothing(t *testing.T) {
	const records, some = 100, 10 // some of them, the first at offset 5, go to the topic
	for topic, state := range map[string]push.State{"push.retry.30s": push.StateRetrying, "push.dlq": push.StateDeadLettered} {
		t.Run(topic, func(t *testing.T) {
			c := newCluster(t, 1, []string{"push", "push.retry.30s", "push.dlq", "push.feedback", "push.events"})
			refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
			var rs []*kgo.Record
			for i := range records {
				r := record("push", 0, i)
				if i%10 == 5 && state == push.StateDeadLettered {
					r.Value = fmt.Appendf(nil, `{"id":"n-0-%d",`, i)
				}
				rs = append(rs, r)
			}
			c.produceRecords(rs...)
			l := &lane{rows: make(map[string][]push.Row)}
			source := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond})
			p, err := pipeline.New(pipeline.Options{
				Lane: "test", Source: source, Stages: []pipeline.Stage{l}, Producer: c.producer(ProducerOptions{Tiers: []Tier{{"30s", 30 * time.Second}}}),
				Status: l, Ledger: l, Seen: l, Routes: map[push.Route]pipeline.Provider{{Platform: push.FCM, App: "shop"}: l},
				Policy: pipeline.Policy{MaxRetries: 3, RetryDelays: []time.Duration{30 * time.Second}}, StageWorkers: 1, Window: records,
				SendDeadline: patience, StatusTimeout: patience, Drain: 4 * patience, CommitTimeout: patience, CommitInterval: 10 * time.Millisecond,
				Metrics: pipeline.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(lockedLog{l}, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			defer run.Wait()
			defer stop()

			eventually(t, "it was refused several times, and all others have ended", func() bool {
				return refused.Hits() >= 4 && l.states()[push.StateDelivered] == records-some
			})
			if n := l.states()[state]; n > 0 {
				t.Errorf("got %d rows %v although none of their records was accepted", n, state)
			}
			if at := c.committed("g", "push", 0); at > 5 {
				t.Errorf("got commit %d, want at most 5", at)
			}
			if l.logged("step failed, retrying", topic, "TOPIC_AUTHORIZATION_FAILED") == 0 {
				t.Errorf("the log does not say that %s refuses", topic)
			}
			if stalls, _ := p.Declared(); len(stalls) == 0 || !strings.Contains(stalls[0].Detail, topic) {
				t.Errorf("got stalls %+v, none says that %s refuses", stalls, topic)
			}

			refused.Remove()
			eventually(t, "all is committed", func() bool { return c.committed("g", "push", 0) == records })
			if n := l.states(); n[state] != some || n[push.StateDelivered] != records-some {
				t.Errorf("got rows %v, want %d %v and all others delivered", n, some, state)
			}
			if n := c.PartitionInfo(topic, 0).HighWatermark; n != some {
				t.Errorf("%s: got %d records, want %d", topic, n, some)
			}
		})
	}
}

// If one topic refuses, records that others accepted in the same call are not produced
// again: the error says which records are still open.
func TestATopicThatRefusesMakesNoCopiesInOthers(t *testing.T) {
	c := newCluster(t, 1, []string{"push.retry.30s", "push.dlq"})
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "push.dlq", Err: kerr.TopicAuthorizationFailed, Count: -1})
	p := c.producer(ProducerOptions{Tiers: []Tier{{"30s", 30 * time.Second}}})
	retry := pipeline.Handover{To: pipeline.ToRetry, Item: item("push"), Attempt: 1, NotBefore: time.Now().Add(time.Second), Reason: "Timeout"}
	dead := pipeline.Handover{To: pipeline.ToDLQ, Item: item("push"), Reason: push.RetriesUsed}
	err := p.Produce(t.Context(), []pipeline.Handover{retry, dead, retry, dead})
	partly, ok := errors.AsType[*pipeline.PartlyError](err)
	if !ok || !slices.Equal(partly.Open, []int{1, 3}) || len(partly.Refused) > 0 || !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatalf("got %v, want both dead letters open and nothing else", err)
	}
	refused.Remove()
	if err := p.Produce(t.Context(), []pipeline.Handover{dead, dead}); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"push.retry.30s", "push.dlq"} {
		if n := c.PartitionInfo(topic, 0).HighWatermark; n != 2 {
			t.Errorf("%s: got %d records, want 2", topic, n)
		}
	}
}
