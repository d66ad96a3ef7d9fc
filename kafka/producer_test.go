package kafka

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// readAll reads n records of a topic.
func (c *cluster) readAll(topic string, n int) []*kgo.Record {
	c.t.Helper()
	client, err := c.options.newClient(kgo.ConsumeTopics(topic))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var rs []*kgo.Record
	for len(rs) < n {
		fs := client.PollRecords(ctx, n)
		if err := fs.Err(); err != nil {
			c.t.Fatalf("reading %s after %d of %d: %v", topic, len(rs), n, err)
		}
		rs = append(rs, fs.Records()...)
	}
	return rs
}

func headersOf(r *kgo.Record) map[string]string {
	m := make(map[string]string)
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

func (c *cluster) producer(po ProducerOptions) *Producer {
	c.t.Helper()
	if po.Topic == "" {
		po.Topic = "push"
	}
	if po.Tiers == nil {
		po.Tiers = []Tier{{"5m", 5 * time.Minute}, {"30s", 30 * time.Second}}
	}
	p, err := NewProducer(c.options, po)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(p.Close)
	return p
}

func item(topic string) *pipeline.Item {
	it := &pipeline.Item{Partition: push.Partition{Topic: topic, ID: 2}, Offset: 41,
		FirstSeen: push.At(time.UnixMilli(1_790_000_000_000)), Key: []byte("u1"), Value: []byte(`{"id":"n1"}`)}
	it.ID, it.App, it.UserID = "n1", "shop", "u1"
	return it
}

// Copies of a record without a key go to the same partition, so that one tracker sees
// all of them.
func TestRepeatedHandOversOfKeylessRecordsMeet(t *testing.T) {
	c := newCluster(t, 8, []string{"push.retry.30s", "push.hold.fcm"})
	now := time.Now()
	const times = 6
	for range times {
		p := c.producer(ProducerOptions{}) // a new producer each time, so that no partition is sticky
		keyless := item("push")
		keyless.Key = nil
		if err := p.Produce(t.Context(), []pipeline.Handover{
			{To: pipeline.ToRetry, Item: keyless, Attempt: 1, NotBefore: now.Add(30 * time.Second)},
			{To: pipeline.ToHold, Item: keyless, Platform: push.FCM, NotBefore: now},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, topic := range []string{"push.retry.30s", "push.hold.fcm"} {
		in := map[int32]int{}
		for _, r := range c.readAll(topic, times) {
			in[r.Partition]++
		}
		if len(in) != 1 {
			t.Errorf("%s: copies of one record are in the partitions %v", topic, in)
		}
	}
}

func TestHandOvers(t *testing.T) {
	c := newCluster(t, 1, []string{"push.retry.30s", "push.retry.5m", "push.defer.5m", "push.hold.apns", "push.hold.fcm", "push.dlq", "push.feedback", "push.events"})
	p := c.producer(ProducerOptions{})
	now := time.Now()
	gone := pipeline.Handover{To: pipeline.ToFeedback, Item: item("push"), Reason: "Unregistered", DeadSince: time.UnixMilli(1_790_000_000_500), SentAt: time.UnixMilli(1_790_000_000_900),
		Device: push.Device{Platform: push.APNS, App: "shop", Token: "secret-token", Hash: "hash1"}}
	fromRetry := item("push.retry.30s")
	fromRetry.Trace = []pipeline.RecordHeader{{Key: headerOrigin, Value: []byte("push/7/1")}}
	oversize := item("push")
	oversize.Value = []byte(strings.Repeat("x", 100_000))
	allowed := item("push")
	allowed.Allowed = true

	err := p.Produce(t.Context(), []pipeline.Handover{
		{To: pipeline.ToRetry, Item: item("push"), Attempt: 1, NotBefore: now.Add(30 * time.Second), Reason: "TooManyRequests", Devices: []string{"hash1"}},
		{To: pipeline.ToRetry, Item: fromRetry, Attempt: 2, NotBefore: now.Add(time.Second), Reason: "Timeout"},
		{To: pipeline.ToRetry, Item: item("push"), Attempt: 1, NotBefore: now.Add(time.Hour), Reason: "Timeout"},
		{To: pipeline.ToDefer, Item: item("push.defer.5m"), Attempt: 1, Hops: 3, NotBefore: now.Add(time.Hour), State: push.StateHeld, Reason: "quiet_hours"},
		{To: pipeline.ToDLQ, Item: allowed, Reason: push.BadJSON, Detail: "data", Attempt: 0},
		{To: pipeline.ToDLQ, Item: oversize, Reason: push.TooLarge},
		gone,
		{To: pipeline.ToHold, Item: allowed, Platform: push.FCM, Attempt: 1, Hops: 4, NotBefore: time.UnixMilli(1_790_000_030_000), Reason: "Halted", Devices: []string{"hash2"}},
		{To: pipeline.ToHold, Item: item("push.hold.apns"), Platform: push.APNS, NotBefore: now},
		{To: pipeline.ToEvents, Event: []byte(`{"batch":1}`)},
	})
	if err != nil {
		t.Fatal(err)
	}

	retries := c.readAll("push.retry.30s", 2)
	h := headersOf(retries[0])
	for k, want := range map[string]string{"pf-v": "1", "pf-attempt": "1", "pf-hops": "0", "pf-reason": "TooManyRequests",
		"pf-devices": "hash1", "pf-origin": "push/2/41", "pf-first-seen": "1790000000000"} {
		if h[k] != want {
			t.Errorf("retry: %s is %q, want %q", k, h[k], want)
		}
	}
	if string(retries[0].Key) != "u1" || string(retries[0].Value) != `{"id":"n1"}` {
		t.Error("retry: key or value changed")
	}
	if got := headersOf(retries[1])["pf-origin"]; got != "push/7/1" {
		t.Errorf("second retry: origin %q, want the first record's", got)
	}
	c.readAll("push.retry.5m", 1) // the largest tier that fits an hour

	off := headersOf(c.readAll("push.defer.5m", 1)[0]) // where it came from, too
	for k, want := range map[string]string{"pf-attempt": "1", "pf-hops": "3", "pf-reason": "quiet_hours", "pf-state": "HELD"} {
		if off[k] != want {
			t.Errorf("put off: %s is %q, want %q", k, off[k], want)
		}
	}

	kept := headersOf(c.readAll("push.hold.fcm", 1)[0])
	for k, want := range map[string]string{"pf-v": "1", "pf-attempt": "1", "pf-hops": "4", "pf-not-before": "1790000030000", "pf-reason": "Halted",
		"pf-devices": "hash2", "pf-origin": "push/2/41", "pf-allowed": "1"} {
		if kept[k] != want {
			t.Errorf("held: %s is %q, want %q", k, kept[k], want)
		}
	}
	c.readAll("push.hold.apns", 1) // a record that is held again goes to the same topic
	if e := c.readAll("push.events", 1)[0]; string(e.Value) != `{"batch":1}` || len(e.Headers) != 0 {
		t.Errorf("event %q with %d headers", e.Value, len(e.Headers))
	}

	dead := c.readAll("push.dlq", 2)
	if h := headersOf(dead[0]); h["pf-reason"] != "bad_json" || h["pf-detail"] != "data" || string(dead[0].Value) != `{"id":"n1"}` {
		t.Errorf("dead letter: headers %v", h)
	}
	if _, said := headersOf(dead[0])["pf-allowed"]; said {
		t.Error("dead letter: it says that the limits have allowed it, and a redrive would not ask them again")
	}
	if len(dead[1].Value) != 0 || headersOf(dead[1])["pf-origin"] != "push/2/41" {
		t.Error("the dead letter of an oversize record has its body, or not its place")
	}

	fb := c.readAll("push.feedback", 1)[0]
	var f Feedback
	if err := json.Unmarshal(fb.Value, &f); err != nil {
		t.Fatal(err)
	}
	if want := (Feedback{UserID: "u1", Device: "hash1", Platform: "apns", App: "shop", Reason: "Unregistered", DeadSinceMS: 1_790_000_000_500, AtMS: 1_790_000_000_900}); f != want {
		t.Errorf("feedback %+v, want %+v", f, want)
	}
	if string(fb.Key) != "u1" || strings.Contains(string(fb.Value), "secret-token") {
		t.Error("feedback has the wrong key, or the token in it")
	}
}

func TestADLQThatRefusesLargeRecordsGetsTheirHeaders(t *testing.T) {
	c := newCluster(t, 1, []string{"push.retry.30s"})
	if err := c.CreateTopic("push.dlq", 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	p := c.producer(ProducerOptions{})
	large := item("push")
	large.Value = []byte(strings.Repeat("x", 1_500_000)) // larger than the client's own limit too
	if err := p.Produce(t.Context(), []pipeline.Handover{
		{To: pipeline.ToDLQ, Item: item("push"), Reason: push.BadJSON},
		{To: pipeline.ToDLQ, Item: large, Reason: push.BadJSON},
	}); err != nil {
		t.Fatal(err)
	}
	var with, without int
	for _, r := range c.readAll("push.dlq", 2) {
		if len(r.Value) > 0 {
			with++
		} else if headersOf(r)["pf-reason"] == "bad_json" {
			without++
		}
	}
	if with != 1 || without != 1 {
		t.Errorf("got %d dead letters with their value and %d with headers only, want 1 and 1", with, without)
	}
}

// A hand-over is acknowledged by all in-sync replicas, and a repeated request writes no
// second copy. With fewer acks, records that count as handed over would be lost with
// their leader.
func TestAHandOverIsAcknowledgedByAllAndIdempotent(t *testing.T) {
	c := newCluster(t, 1, []string{"push.dlq"})
	var mu sync.Mutex
	var seen int
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		r := req.(*kmsg.ProduceRequest)
		if r.Acks != -1 {
			t.Errorf("produced with acks %d, want all (-1)", r.Acks)
		}
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				var b kmsg.RecordBatch
				if err := b.ReadFrom(p.Records); err != nil {
					t.Errorf("reading what is produced: %v", err)
				}
				if b.ProducerID < 0 || b.FirstSequence < 0 {
					t.Errorf("producer id %d, sequence %d: not idempotent", b.ProducerID, b.FirstSequence)
				}
				seen++
			}
		}
		return nil, nil, false
	})
	w, err := NewWriter(c.options, WriterOptions{Topic: "push.dlq"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(t.Context(), []Record{{Key: []byte("k")}}); err != nil {
		t.Fatal(err)
	}
	if err := c.producer(ProducerOptions{}).Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToDLQ, Item: item("push"), Reason: "x"}}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen != 2 {
		t.Errorf("got %d batches, want 2", seen)
	}
}

// noise is text that does not compress well.
func noise(n int) []byte {
	var b []byte
	for len(b) < n {
		b = append(b, rand.Text()...)
	}
	return b[:n]
}

// A broker may refuse records for their size, however small its limit. Then the DLQ gets
// as much as fits, and the caller learns which retry or held copies were refused. All
// others are acknowledged.
func TestACopyThatIsRefusedForItsSize(t *testing.T) {
	c := newCluster(t, 1, nil)
	for topic, size := range map[string]string{"push.dlq": "600", "push.retry.30s": "600", "push.hold.fcm": "600", "push.feedback": "2000"} {
		if err := c.CreateTopic(topic, 1, map[string]string{"max.message.bytes": size}); err != nil {
			t.Fatal(err)
		}
	}
	p := c.producer(ProducerOptions{})
	large := func(key, value int) *pipeline.Item {
		it := item("push")
		it.Key, it.Value, it.Size = noise(key), noise(value), key+value
		return it
	}
	soon := time.Now().Add(time.Second)
	err := p.Produce(t.Context(), []pipeline.Handover{
		{To: pipeline.ToRetry, Item: large(0, 500), Attempt: 1, NotBefore: soon, Reason: "Timeout"},
		{To: pipeline.ToRetry, Item: item("push"), Attempt: 1, NotBefore: soon, Reason: "Timeout"},
		{To: pipeline.ToDLQ, Item: large(10, 500), Reason: push.RetriesUsed},
		{To: pipeline.ToDLQ, Item: large(500, 10), Reason: push.RetriesUsed},
		{To: pipeline.ToDLQ, Item: item("push"), Reason: push.RetriesUsed},
		{To: pipeline.ToHold, Item: large(500, 0), Platform: push.FCM, NotBefore: soon, Reason: "Halted"},
		{To: pipeline.ToFeedback, Item: item("push"), Reason: "Unregistered"},
	})
	partly, ok := errors.AsType[*pipeline.PartlyError](err)
	if !ok || !slices.Equal(partly.Refused, []int{0, 5}) || len(partly.Open) > 0 || !errors.Is(err, kerr.MessageTooLarge) {
		t.Fatalf("got %v, want the retry and the held copy refused", err)
	}
	c.readAll("push.retry.30s", 1)
	c.readAll("push.feedback", 1)

	var got []string
	for _, r := range c.readAll("push.dlq", 3) {
		h := headersOf(r)
		if d := deadLetter(r); d.Problem != nil || d.Reason != "retries_used_up" || d.Origin != "push/2/41" {
			t.Errorf("a dead letter tells reason %q and place %q (%v)", d.Reason, d.Origin, d.Problem)
		}
		got = append(got, fmt.Sprintf("key %v value %v size %s", len(r.Key) > 0, len(r.Value) > 0, h["pf-size"]))
	}
	slices.Sort(got)
	if want := []string{"key false value false size 510", "key true value false size 510", "key true value true size "}; !slices.Equal(got, want) {
		t.Errorf("got dead letters %q, want %q", got, want)
	}
}

func TestNoTopicIsWrittenIntoItself(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	p := c.producer(ProducerOptions{})
	if err := p.Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToDLQ, Item: item("push.dlq"), Reason: "x"}}); err == nil || !strings.Contains(err.Error(), "into itself") {
		t.Errorf("producing a dead letter to the DLQ again: got %v, want a refusal", err)
	}
	for reason, h := range map[string]pipeline.Handover{
		"nobody's hold topic":           {To: pipeline.ToHold, Item: item("push"), NotBefore: time.Now()},
		"held until nobody knows when":  {To: pipeline.ToHold, Item: item("push"), Platform: push.FCM},
		"a destination that is unknown": {To: 99, Item: item("push")},
	} {
		if err := p.Produce(t.Context(), []pipeline.Handover{h}); err == nil {
			t.Errorf("%s was produced", reason)
		}
	}
	if _, err := NewProducer(c.options, ProducerOptions{Topic: "push", Events: "push", Tiers: []Tier{{"30s", time.Second}}}); err == nil {
		t.Error("events into the lane's topic were accepted")
	}
	if _, err := NewProducer(c.options, ProducerOptions{Topic: "push", Feedback: "push", Tiers: []Tier{{"30s", time.Second}}}); err == nil {
		t.Error("feedback into the lane's topic was accepted")
	}
}

func TestAMissingTopicIsAnError(t *testing.T) {
	c := newCluster(t, 1, []string{"push"}, kfake.NumBrokers(1))
	p := c.producer(ProducerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Produce(ctx, []pipeline.Handover{{To: pipeline.ToDLQ, Item: item("push"), Reason: "x"}}); err == nil {
		t.Error("produced to a topic that does not exist")
	}
}

// Where nothing is to be produced nobody waits for an answer.
func TestNothingToSendIsSent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if results := new(Producer).send(ctx, nil); len(results) != 0 {
		t.Errorf("got %v, want nothing", results)
	}
}

// Events with a key keep their order: they go to one partition.
func TestEventsGoByTheirKey(t *testing.T) {
	p := &Producer{options: ProducerOptions{Topic: "push", Events: EventsTopic}}
	for _, key := range []string{"", "critical.retry"} {
		r, err := p.record(&pipeline.Handover{To: pipeline.ToEvents, Event: []byte("{}"), EventKey: []byte(key)}, time.Now())
		if err != nil || r.Topic != EventsTopic || string(r.Key) != key || string(r.Value) != "{}" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
