package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
)

// fanoutKafka is a broker with all topics of a configuration, which gets fan-outs.
func fanoutKafka(t *testing.T, c *configs.Config) {
	t.Helper()
	c.Gateway.Fanout.Enabled, c.Gateway.Fanout.AdminListen = true, ""
	var topics []embedded.Topic
	for _, s := range append(wiring.Topics(c), wiring.FanoutTopics(c)...) {
		topics = append(topics, embedded.Topic{Name: s.Name, Partitions: 3, Compacted: s.Configs["cleanup.policy"] == "compact"})
	}
	k, err := embedded.StartKafka(topics...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c.Kafka.Brokers = k.Addrs()
}

// subscribers are n users of the topic news: every tenth pulls, and every twentieth left.
func subscribers(t *testing.T, size subscriptions.Size, n int, at time.Time) (*subscriptions.Memory, subscriptions.Topic) {
	t.Helper()
	m := subscriptions.NewMemory(nil)
	topic, _, err := m.Create(t.Context(), &subscriptions.Topic{Name: "news", App: "shop", Service: "promotional", Priority: push.High, Security: subscriptions.Open,
		Modes: subscriptions.ModesOf(subscriptions.Push, subscriptions.Pull), Size: size})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		change := subscriptions.Change{User: fmt.Sprint("u", i), Mode: subscriptions.Push, At: at.Add(-time.Hour)}
		if i%10 == 1 {
			change.Mode = subscriptions.Pull
		}
		changes := []subscriptions.Change{change}
		if i%20 == 2 {
			changes = append(changes, subscriptions.Change{User: change.User, Mode: subscriptions.Left, At: at.Add(-time.Minute)})
		}
		for _, c := range changes {
			if r := m.Apply(t.Context(), &topic, []subscriptions.Change{c}); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
		}
	}
	return m, topic
}

// sendToTopic writes a message to all subscribers of a topic, as a gateway does.
func sendToTopic(t *testing.T, c *configs.Config, topic subscriptions.Topic, now time.Time) (_ uuid.UUID, job *fanout.Job) {
	t.Helper()
	message, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	job = &fanout.Job{Message: message, Sender: "shop", App: "shop", ServiceType: "promotional", Lane: "promotional", Topic: "push.promotional", Partitions: 3,
		Accepted: now, Expires: now.Add(time.Hour), Campaign: message.String(), Priority: push.High, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		To:   fanout.To{Kind: fanout.OfTopic, Name: topic.Name, Layout: topic.Layout.Number, Buckets: topic.Layout.Buckets, Parts: 64},
		Rest: []byte(`"sender_id":"shop","app":"shop","title":"Snow"}`)}
	if job.Clicks = c.Gateway.Clicks.Enabled; job.Clicks {
		job.Rest = append([]byte(fanout.DataBegins+`},`), job.Rest...)
	}
	value, err := fanout.EncodeJob(job)
	if err != nil {
		t.Fatal(err)
	}
	w, err := kafka.NewWriter(kafka.Options{Brokers: c.Kafka.Brokers}, kafka.WriterOptions{Topic: fanout.JobsTopic})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(t.Context(), []kafka.Record{{Key: message[:], Value: value}}); err != nil {
		t.Fatal(err)
	}
	return message, job
}

// The whole way on a broker: a job becomes a record of the lane for every subscriber who
// is pushed, and what it came to is noted.
func TestFanout(t *testing.T) { fanoutRuns(t, configs.Default()) }

// The same with click tokens: each record has that of its own receiver.
func TestFanoutWithClickTokens(t *testing.T) {
	c := configs.Default()
	gatewayFiles(t, c)
	c.Gateway.Clicks.Enabled = true
	fanoutRuns(t, c)
}

func fanoutRuns(t *testing.T, c *configs.Config) {
	t.Helper()
	fanoutKafka(t, c)
	data := func(*push.Message) string { return "" }
	if c.Gateway.Clicks.Enabled {
		signer, err := wiring.Signer(c)
		if err != nil {
			t.Fatal(err)
		}
		data = func(m *push.Message) string {
			return `{"pf_click":"` + string(signer.AppendClickToken(nil, m.ID, m.UserID, "shop", "default", "shop", time.Time{})) + `"}`
		}
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	subscribed, topic := subscribers(t, subscriptions.Medium, 200, now)
	notes := fanout.NewMemory()
	o := FanoutOptions{Config: c, Log: options(c, io.Discard).Log, Metrics: options(c, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) {
		return FanoutStores{Notes: notes, Audience: TopicAudience(subscribed), Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunFanout(ctx, o) }()

	message, job := sendToTopic(t, c, topic, now)
	kafkaOptions := kafka.Options{Brokers: c.Kafka.Brokers}
	follower, err := kafka.NewFollower(kafkaOptions, job.Topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	got := make(map[string]string)
	for len(got) < 170 {
		records, err := follower.Poll(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			var m push.Message
			if d := decode.Message(r.Value, &m); d != nil {
				t.Fatal(d)
			}
			if r.Partition != kafka.PartitionOf([]byte(m.UserID), 3) || r.Headers["traceparent"] != job.Traceparent || !r.Timestamp.Equal(now) {
				t.Errorf("%+v", r)
			}
			if string(m.Data) != data(&m) {
				t.Errorf("%s got %s", m.UserID, m.Data)
			}
			got[m.UserID] = m.ID
		}
	}
	for user, id := range got {
		if id != fanout.ID(message, user) {
			t.Errorf("%s got %s", user, id)
		}
	}
	var p *fanout.Progress
	for p == nil || len(p.Ended) < 64 {
		if p, err = notes.Look(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if by := p.ByReason(); p.Emitted != 170 || by["pull"] != 20 || by["left"] != 10 || len(by) != 2 {
		t.Errorf("%+v", p)
	}
	admin, err := kafka.NewAdmin(kafkaOptions)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	// Nobody has committed anything, and then half of it.
	lag := laneLag{admin, c}
	passed := func(b fanout.Backlog) (sum int64) {
		for _, s := range b {
			sum += s.Passed
		}
		return sum
	}
	if b, err := lag.Lag(t.Context(), "promotional"); b.Sum() != 170 || passed(b) != 0 || len(b) != int(job.Partitions) || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
	consumer, err := kafka.NewConsumer(kafkaOptions, job.Topic, c.Kafka.LaneGroup("promotional"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for read < 50 {
		records, err := consumer.Poll(t.Context(), 50)
		if err != nil {
			t.Fatal(err)
		}
		read += len(records)
		if err := consumer.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	consumer.Close()
	if b, err := lag.Lag(t.Context(), "promotional"); b.Sum() != int64(170-read) || passed(b) != int64(read) || err != nil {
		t.Errorf("%+v after %d, %v", b, read, err)
	}
	if _, err := lag.Lag(t.Context(), "none"); err == nil {
		t.Error("a lane that is not there has a lag")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// The pages of a part are its subscribers, whatever the topic's buckets are.
func TestTopicAudience(t *testing.T) {
	now := time.Now()
	for _, size := range []subscriptions.Size{subscriptions.Small, subscriptions.Medium, subscriptions.Large} {
		m, topic := subscribers(t, size, 100, now)
		a := TopicAudience(m)
		seen := make(map[string]int)
		job := &fanout.Job{To: fanout.To{Kind: fanout.OfTopic, Name: "news", Layout: topic.Layout.Number, Buckets: topic.Layout.Buckets, Parts: 8}}
		for part := range 8 {
			for after := ""; ; {
				page, err := a.Page(t.Context(), job, part, after, 3)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, member := range page {
					seen[member.User]++
					if first, end := job.To.Slices(part); fanout.SliceOf(member.User) < first || fanout.SliceOf(member.User) >= end || len(page) > 3 {
						t.Errorf("size %v: %s in part %d", size, member.User, part)
					}
					if member.User == "u1" && !member.Pull || member.User == "u2" && !member.Left || member.User == "u3" && (member.Left || member.Pull || member.Since.IsZero()) {
						t.Errorf("size %v: %+v", size, member)
					}
				}
				after = page[len(page)-1].User
			}
		}
		if len(seen) != 100 {
			t.Errorf("size %v: %d of 100 subscribers", size, len(seen))
		}
	}
	if fanout.Slices != subscriptions.Slices || fanout.SliceOf("u17") != subscriptions.Slice("u17") {
		t.Error("slices differ")
	}
}

// A sender's limit of receivers holds over all chunks, and what is beyond it waits.
func TestFanoutOfALimitedSender(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	c.Redis.Addresses = []string{redis.Addr()}
	c.Gateway.Limits.Senders = []configs.GatewaySender{{Sender: "shop", Limits: configs.SenderLimits{Recipients: 100}}}
	now := time.Now().UTC().Truncate(time.Millisecond)
	subscribed, topic := subscribers(t, subscriptions.Medium, 200, now)
	notes := fanout.NewMemory()
	o := FanoutOptions{Config: c, Log: options(c, io.Discard).Log, Metrics: options(c, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) {
		return FanoutStores{Notes: notes, Audience: TopicAudience(subscribed), Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunFanout(ctx, o) }()
	sendToTopic(t, c, topic, now)
	// Chunks of which none is left anything are held: every open one, in the end.
	follower, err := kafka.NewFollower(kafka.Options{Brokers: c.Kafka.Brokers}, fanout.HoldTopic("promotional"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	for held := 0; held < c.Gateway.Fanout.OpenChunks; {
		records, err := follower.Poll(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		held += len(records)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	lane, err := kafka.NewAdmin(kafka.Options{Brokers: c.Kafka.Brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer lane.Close()
	ends, err := lane.EndOffsets(t.Context(), "push.promotional")
	var reached int64
	for _, end := range ends {
		reached += end
	}
	if err != nil || reached != 100 {
		t.Errorf("%d were reached, %v; want 100", reached, err)
	}
}
