package client

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// crowd is what works on messages to many, in memory: they begin as soon as they are in Kafka.
type crowd struct {
	gateway.Producer // of all other records
	notes            *fanout.Memory

	mu      sync.Mutex
	jobs    []*fanout.Job           // guarded by mu
	members map[int][]fanout.Member // guarded by mu; of the parts of an audience
}

// Produce implements gateway.Producer.
func (c *crowd) Produce(r gateway.Record, done func(gateway.Place, error)) {
	if r.Topic != fanout.JobsTopic {
		c.Producer.Produce(r, done)
		return
	}
	j, err := fanout.DecodeJob(r.Value)
	if err == nil {
		_, err = c.notes.Begin(context.Background(), j)
	}
	c.mu.Lock()
	c.jobs = append(c.jobs, j)
	c.mu.Unlock()
	done(gateway.Place{}, err)
}

// Page implements fanout.Audience.
func (c *crowd) Page(_ context.Context, _ *fanout.Job, part int, after string, _ int) ([]fanout.Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after != "" {
		return nil, nil // each part is one page
	}
	return c.members[part], nil
}

// all are the jobs that came.
func (c *crowd) all() []*fanout.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.jobs)
}

// sent sends a message to the topic snow, and returns its job.
func (c *crowd) sent(w *world) (*Accepted, *fanout.Job) {
	w.t.Helper()
	accepted, err := w.client.SendToTopic(w.t.Context(), "snow", &Message{Title: "Snow"})
	if err != nil {
		w.t.Fatal(err)
	}
	jobs := c.all()
	return accepted, jobs[len(jobs)-1]
}

// crowdWorld sends to the topic snow of the app shop, which has 16 parts.
func crowdWorld(t *testing.T) (*world, *board, *crowd) {
	t.Helper()
	c := &crowd{notes: fanout.NewMemory(), members: map[int][]fanout.Member{}}
	w, store := topicWorld(t, func(o *gateway.Options) {
		c.Producer, o.Producer = o.Producer, c
		o.Fanouts = &gateway.Fanouts{Records: c.notes, Audience: c, Ages: map[string]time.Duration{"transactional": time.Hour},
			Partitions: func(context.Context, string) (int32, error) { return 6, nil }}
	})
	store.has(t, "snow", "shop", "orders")
	return w, store, c
}

// A message to a topic is sent again with its id, and is one message. Its receipt says how far
// it is, and the topic lists it.
func TestSendToTopic(t *testing.T) {
	w, _, c := crowdWorld(t)
	m := &Message{Title: "Snow", Data: map[string]string{"passes": "2"}}
	accepted := twice(w, func() (*Accepted, error) { return w.client.SendToTopic(t.Context(), "snow", m) })
	want := Accepted{ID: m.ID, Receipt: accepted.Receipt, Status: "PENDING", Mode: "effectively_once", ServiceType: "transactional", Lane: "transactional", AcceptedAt: accepted.AcceptedAt}
	if *accepted != want || m.ID == "" || accepted.Receipt == "" || accepted.AcceptedAt.IsZero() {
		t.Errorf("%+v, want %+v", accepted, want)
	}
	jobs := c.all()
	if len(jobs) != 2 || jobs[0].Message != jobs[1].Message || jobs[0].To.Name != "snow" {
		t.Fatalf("jobs %+v", jobs)
	}
	job := jobs[0] // which has begun
	if err := c.notes.End(t.Context(), job.Message, 3, &fanout.Counts{Emitted: 5, Skipped: [5]int64{fanout.SkipPull: 2}}); err != nil {
		t.Fatal(err)
	}
	report := twice(w, func() (*Report, error) { return w.client.Receipt(t.Context(), accepted.Receipt) })
	far := &Fanout{State: "running", Audience: "topic", Chunks: Chunks{All: 16, Done: 1}, Emitted: 5, Skipped: map[string]int64{"pull": 2}}
	if report.Topic != "snow" || report.Segment != "" || report.Status != "SENDING" || !reflect.DeepEqual(report.Fanout, far) {
		t.Errorf("%+v, %+v, want %+v", report, report.Fanout, far)
	}
	list := twice(w, func() (*TopicMessages, error) { return w.client.TopicMessages(t.Context(), "snow", Page{}) })
	one := TopicMessage{ID: job.Message.String(), Sender: "orders", AcceptedAt: job.Accepted, ExpiresAt: job.Expires}
	if !slices.Equal(list.Messages, []TopicMessage{one}) || list.Next != "" {
		t.Errorf("%+v, want %+v", list, one)
	}
}

// The messages of a topic come page by page.
func TestTopicMessages(t *testing.T) {
	w, _, c := crowdWorld(t)
	ids := map[string]bool{}
	for range 3 {
		_, job := c.sent(w)
		ids[job.Message.String()] = true
	}
	var got []string
	for page := (Page{Limit: 2}); ; {
		list := twice(w, func() (*TopicMessages, error) { return w.client.TopicMessages(t.Context(), "snow", page) })
		if len(list.Messages) > page.Limit {
			t.Errorf("a page of %d", len(list.Messages))
		}
		for _, m := range list.Messages {
			got = append(got, m.ID)
			delete(ids, m.ID)
		}
		if page.After = list.Next; page.After == "" {
			break
		}
	}
	if len(got) != 3 || len(ids) > 0 {
		t.Errorf("listed %q, and not %v", got, ids)
	}
}

// Orders hold, also when the first answer was lost; a message is named by its receipt or by
// the id of its fan-out.
func TestOrders(t *testing.T) {
	w, _, c := crowdWorld(t)
	accepted, job := c.sent(w)
	for _, tt := range []struct {
		give func(context.Context, string) (*Order, error)
		want string
	}{{w.client.PauseFanout, "paused"}, {w.client.ResumeFanout, "running"}, {w.client.PauseFanout, "paused"}, {w.client.CancelFanout, "cancelled"}, {w.client.CancelFanout, "cancelled"}} {
		for id, name := range map[string]string{accepted.Receipt: accepted.ID, job.Message.String(): job.Message.String()} {
			order := twice(w, func() (*Order, error) { return tt.give(t.Context(), id) })
			if want := (Order{ID: name, Order: tt.want}); *order != want {
				t.Errorf("%+v, want %+v", order, want)
			}
		}
		if report, err := w.client.Receipt(t.Context(), accepted.Receipt); err != nil || report.Fanout == nil || report.Fanout.State != tt.want {
			t.Errorf("%+v, %v, want %s", report, err, tt.want)
		}
	}
	w.refuses([]refusal{
		{"to wait, when it is cancelled", "fanout_over", func() error { return failed(w.client.PauseFanout(t.Context(), accepted.Receipt)) }},
		{"to go on, when it is cancelled", "fanout_over", func() error { return failed(w.client.ResumeFanout(t.Context(), accepted.Receipt)) }},
		{"of no message", "no_receipt", func() error { return failed(w.client.CancelFanout(t.Context(), "a/b")) }},
	})
}

// What became of receivers is counted by state.
func TestReceiverCounts(t *testing.T) {
	w, _, c := crowdWorld(t)
	accepted, job := c.sent(w)
	c.mu.Lock()
	c.members[0] = []fanout.Member{{User: "u1"}, {User: "u2"}, {User: "u3"}, {User: "pulls", Pull: true}}
	c.mu.Unlock()
	w.row(fanout.ID(job.Message, "u1"), "u1", push.Row{Device: "d", State: push.StateDelivered})
	w.row(fanout.ID(job.Message, "u2"), "u2", push.Row{State: push.StateSuppressed, Reason: "opted_out_all"})
	if err := c.notes.End(t.Context(), job.Message, 0, &fanout.Counts{Emitted: 3}); err != nil {
		t.Fatal(err)
	}
	got := twice(w, func() (*ReceiverCounts, error) { return w.client.ReceiverCounts(t.Context(), accepted.Receipt) })
	want := &ReceiverCounts{ID: accepted.ID, Chunks: Chunks{All: 16, Done: 1}, Emitted: 3, Counted: 3, Whole: true, States: map[string]int64{"DELIVERED": 1, "SUPPRESSED": 1, "PENDING": 1}, At: got.At}
	if !reflect.DeepEqual(got, want) || got.At.IsZero() {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// row is a row of the status store about a user's notification.
func (w *world) row(id, user string, r push.Row) {
	r.ID, r.UserHash, r.Platform, r.At = id, push.UserHash(user), push.FCM, time.Now().UTC().Truncate(time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows[id] = append(w.rows[id], r)
}

// A topic is told with its counts and messages.
func TestTopicWithHistory(t *testing.T) {
	w, _, _ := crowdWorld(t)
	got := twice(w, func() (*Topic, error) { return w.client.TopicWithHistory(t.Context(), "snow") })
	if got.Name != "snow" || got.Counts == nil || !got.Counts.Whole || got.Messages == nil || len(got.Messages.Messages) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestFanoutsAreRefused(t *testing.T) {
	w, store, c := crowdWorld(t)
	secret := subscriptions.Topic{Name: "secret", App: "shop", Service: "transactional", Priority: push.Medium, Security: subscriptions.Confidential,
		Modes: subscriptions.ModesOf(subscriptions.Push), Size: subscriptions.Small, CreatedBy: "orders"}
	if _, _, err := store.Create(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	send := func(topic string, m Message) func() error {
		return func() error {
			m.Title = "Snow"
			err := failed(w.client.SendToTopic(t.Context(), topic, &m))
			if err == nil || strings.Contains(err.Error(), m.Title) || !strings.Contains(err.Error(), m.ID) {
				t.Errorf("%v has the text, or not the id", err)
			}
			return err
		}
	}
	w.refuses([]refusal{
		{"no such topic", "no_such_topic", send("none", Message{})},
		{"a receiver", "invalid_field", send("snow", Message{UserID: "u42"})},
		{"another app", "invalid_field", send("snow", Message{App: "bank"})},
		{"an id without a time", "invalid_field", send("snow", Message{ID: "order-17"})},
		{"a confidential topic", "not_configured", send("secret", Message{})},
		{"counts of no message", "no_receipt", func() error { return failed(w.client.ReceiverCounts(t.Context(), "none")) }},
		{"messages of no topic", "no_such_topic", func() error { return failed(w.client.TopicMessages(t.Context(), "none", Page{})) }},
		{"messages behind no place", "bad_request", func() error { return failed(w.client.TopicMessages(t.Context(), "snow", Page{After: "!"})) }},
	})
	w.wire.sent = nil
	if _, err := w.client.SendToTopic(t.Context(), "", &Message{Title: "Snow"}); err == nil || len(w.wire.sent) > 0 {
		t.Errorf("without a topic: %v, sent %q", err, w.wire.sent)
	}
	if jobs := c.all(); len(jobs) > 0 {
		t.Errorf("jobs %+v", jobs)
	}
}
