package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// world is a Kafka in this process whose push.events the test writes, as workers do, and
// a dashboard that reads it.
type world struct {
	t       *testing.T
	kafka   *embedded.Kafka
	writer  *kafka.Writer
	lane    *kafka.Writer
	feed    *Feed
	site    *Site
	letters *dlq.Queues
	counts  *slowLetters // the same, as the site asks them
	fanouts *fanout.Memory
	jobs    *kafka.Writer
	lookups *toldLookups

	mu      sync.Mutex // guards all below
	numbers map[string]int64
}

// toldLookups answers with rows of the test.
type toldLookups struct {
	mu   sync.Mutex // guards rows
	rows map[string][]push.Row
}

func (l *toldLookups) Notification(_ context.Context, id string) (explain.Notification, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return explain.Of(id, l.rows[id], explain.Times{Kept: 24 * time.Hour, Delay: time.Hour}, time.Now()), nil
}

func (l *toldLookups) User(_ context.Context, q Question) (Answers, error) {
	if q.User == "nobody" {
		return Answers{}, &BadQuestion{errors.New("there is no app of that name")}
	}
	return Answers{User: q.User, Steps: []Step{{Step: "device", Says: explain.Reason("no_device", ""), Bad: true}}}, nil
}

// slowLetters are dead letters whose dry runs may be held up.
type slowLetters struct {
	Letters
	began chan struct{} // gets a value when a dry run that is held up has begun; never closed

	mu   sync.Mutex    // guards hold
	hold chan struct{} // dry runs wait until it is closed; nil = none does
}

// holdUp makes dry runs wait until release is called.
func (l *slowLetters) holdUp() (release func()) {
	hold := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = hold
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(hold)
		l.hold = nil
	}
}

func (l *slowLetters) Redrive(ctx context.Context, o dlq.RedriveOptions) (dlq.Redriven, error) {
	l.mu.Lock()
	hold := l.hold
	l.mu.Unlock()
	if hold != nil && !o.Do {
		l.began <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return l.Letters.Redrive(ctx, o)
}

const laneTopic, retryTopic, otherTopic = "push.critical", "push.critical.retry.30s", "push.transactional"

func newWorld(t *testing.T, access *Access) *world {
	t.Helper()
	k, err := embedded.StartKafka(embedded.Topic{Name: kafka.EventsTopic, Partitions: 3}, embedded.Topic{Name: fanout.JobsTopic, Partitions: 2}, embedded.Topic{Name: laneTopic, Partitions: 2}, embedded.Topic{Name: otherTopic, Partitions: 4}, embedded.Topic{Name: retryTopic, Partitions: 1},
		embedded.Topic{Name: kafka.DLQTopic(laneTopic), Partitions: 1}, embedded.Topic{Name: kafka.AuditTopic(laneTopic), Partitions: 1, Compacted: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	w := &world{t: t, kafka: k, feed: NewFeed(), lookups: &toldLookups{rows: map[string][]push.Row{}}, fanouts: fanout.NewMemory(), numbers: map[string]int64{}}
	for topic, into := range map[string]**kafka.Writer{kafka.EventsTopic: &w.writer, laneTopic: &w.lane, fanout.JobsTopic: &w.jobs} {
		if *into, err = kafka.NewWriter(kafka.Options{Brokers: k.Addrs()}, kafka.WriterOptions{Topic: topic}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*into).Close)
	}
	options := kafka.Options{Brokers: k.Addrs()}
	admin, err := kafka.NewAdmin(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	w.letters = dlq.New(dlq.Config{Lanes: []dlq.Lane{{Name: "critical", Topic: laneTopic, GreatestAge: time.Hour}}, Tier: kafka.Tier{Name: "30s", Delay: 30 * time.Second}},
		dlq.OnKafka(options, admin.CheckTopics))
	w.counts = &slowLetters{Letters: w.letters, began: make(chan struct{}, 1)}
	if w.site, err = NewSite(Options{Feed: w.feed, Lookups: w.lookups, Letters: w.counts, Fanouts: w.fanouts, Access: access, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return w
}

// read runs the reader until the test ends.
func (w *world) read() {
	r := &Reader{Feed: w.feed, Kafka: kafka.Options{Brokers: w.kafka.Addrs()}, Log: slog.New(slog.DiscardHandler), Fanouts: true, Topics: []LaneTopic{
		{Lane: "critical", Kind: TopicMain, Topic: laneTopic, Group: "pushfleet.critical"},
		{Lane: "critical", Kind: TopicRetry, Topic: retryTopic, Group: "pushfleet.critical.retry"},
		{Lane: "critical", Kind: TopicDLQ, Topic: "push.critical.dlq"},
		{Lane: "transactional", Kind: TopicMain, Topic: otherTopic, Group: "pushfleet.transactional"},
	}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var reading sync.WaitGroup
	reading.Go(func() {
		if err := r.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() { cancel(); reading.Wait() })
}

// tell writes an event of a source, with its next number.
func (w *world) tell(e events.Event) {
	w.mu.Lock()
	w.numbers[e.Source]++
	e.Version, e.Number = events.Version, w.numbers[e.Source]
	w.mu.Unlock()
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	text, err := json.Marshal(e)
	if err == nil {
		err = w.writer.Append(w.t.Context(), []kafka.Record{{Value: text}})
	}
	if err != nil && w.t.Context().Err() == nil {
		w.t.Error(err)
	}
}

// deadLetter writes a dead letter, as a worker does.
func (w *world) deadLetter(id, app, text string) {
	w.t.Helper()
	value, err := json.Marshal(map[string]string{"id": id, "app": app, "user_id": "u1", "title": text, "body": text})
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := kafka.NewProducer(kafka.Options{Brokers: w.kafka.Addrs()}, kafka.ProducerOptions{Topic: laneTopic, Tiers: []kafka.Tier{{Name: "30s", Delay: 30 * time.Second}}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close()
	it := &pipeline.Item{Partition: push.Partition{Topic: laneTopic, ID: 1}, Offset: 17, FirstSeen: push.At(time.Now()), Key: []byte("u1"), Value: value}
	if err := p.Produce(w.t.Context(), []pipeline.Handover{{To: pipeline.ToDLQ, Item: it, Reason: push.RetriesUsed, Detail: "UNAVAILABLE", Attempt: 3, Providers: []push.Platform{push.FCM}}}); err != nil {
		w.t.Fatal(err)
	}
}

// live tells a state of a worker each half second, until stop is called or the test ends.
func (w *world) live(source string, now func() events.State) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			s := now()
			w.tell(events.Event{Source: source, State: &s})
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	stop = func() { cancel(); telling.Wait() }
	w.t.Cleanup(stop)
	return stop
}

// serve shows the site at an address until stop is called or the test ends.
func (w *world) serve(address string) (at string, stop func()) {
	w.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.site.Serve(ctx, l, nil); err != nil {
			w.t.Error(err)
		}
	})
	stop = func() { cancel(); serving.Wait() }
	w.t.Cleanup(stop)
	return l.Addr().String(), stop
}
