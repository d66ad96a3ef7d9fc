package kafka

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// dlqTopics are the topics of lane "push" that a DLQ uses.
func dlqTopics() []string { return []string{"push.retry.30s", "push.dlq", "push.dlq.audit"} }

func (c *cluster) dlq(lane string) *DLQ {
	c.t.Helper()
	q, err := NewDLQ(c.options, lane)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(q.Close)
	return q
}

// deadRecord returns a record of push.dlq as Producer writes it.
func deadRecord(partition int32, at time.Time, more ...string) *kgo.Record {
	r := &kgo.Record{Topic: "push.dlq", Partition: partition, Timestamp: at, Key: []byte("u1"), Value: []byte(`{"id":"n1"}`)}
	set := map[string]string{headerVersion: "1", headerAttempt: "3", headerHops: "1", headerRedrive: "0", headerFirstSeen: "1790000000000",
		headerOrigin: "push/2/41", headerReason: "retries_used_up"}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	for k, v := range set {
		if v != "" {
			r.Headers = append(r.Headers, header(k, v))
		}
	}
	return r
}

func (c *cluster) readDLQ(q *DLQ, e Extent) (letters []*DeadLetter) {
	c.t.Helper()
	if err := q.Read(c.t.Context(), e, func(d *DeadLetter) error {
		letters = append(letters, d)
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return letters
}

// An operator finds what the producer handed over.
func TestADeadLetterTellsWhatIsKnown(t *testing.T) {
	c := newCluster(t, 1, append(dlqTopics(), "push.feedback"))
	it := item("push.retry.30s")
	it.Redrive = 2
	it.Trace = []pipeline.RecordHeader{{Key: headerOrigin, Value: []byte("push/7/1")}, {Key: "traceparent", Value: []byte("00-ab")}}
	if err := c.producer(ProducerOptions{}).Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToDLQ, Item: it, Attempt: 3, Hops: 1,
		Reason: push.RetriesUsed, Detail: "ServiceUnavailable", Devices: []string{"a", "b"}, Providers: []push.Platform{push.FCM, push.APNS}}}); err != nil {
		t.Fatal(err)
	}
	q := c.dlq("push")
	e, err := q.Since(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	letters := c.readDLQ(q, e)
	if len(letters) != 1 {
		t.Fatalf("got %d dead letters, want 1", len(letters))
	}
	got := *letters[0]
	want := DeadLetter{Topic: "push.dlq", Timestamp: got.Timestamp, Key: it.Key, Value: it.Value, Headers: got.Headers,
		Reason: "retries_used_up", Detail: "ServiceUnavailable", Origin: "push/7/1", Attempt: 3, Hops: 1, Redrive: 2,
		FirstSeen: it.FirstSeen.Time(), Devices: []string{"a", "b"}, Providers: []string{"apns", "fcm"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(got.Headers) != 11 || time.Since(got.Timestamp).Abs() > time.Minute {
		t.Errorf("%d headers, dead-lettered at %v", len(got.Headers), got.Timestamp)
	}
}

func TestWhatCannotBeReadIsNotRedriven(t *testing.T) {
	for _, tt := range []struct {
		why    string
		more   []string
		reason string // that is read all the same
		wrong  string // in the error; empty = it can be redriven
	}{
		{"all is there", nil, "retries_used_up", ""},
		{"no version", []string{headerVersion, ""}, "retries_used_up", "pf-v is missing"},
		{"a version of later", []string{headerVersion, "2"}, "retries_used_up", `version "2"`},
		{"no first-seen: its age is not known", []string{headerFirstSeen, ""}, "retries_used_up", "pf-first-seen is missing"},
		{"an attempt that is no number", []string{headerAttempt, "x"}, "retries_used_up", "pf-attempt is malformed"},
		{"no step is left", []string{headerAttempt, "32767", headerHops, "0"}, "retries_used_up", "no next step"},
		{"the last step but one", []string{headerAttempt, "32766", headerHops, "0"}, "retries_used_up", ""},
	} {
		d := deadLetter(deadRecord(0, time.Now(), tt.more...))
		r, err := d.redriven("push.retry.30s")
		if d.Reason != tt.reason {
			t.Errorf("%s: got reason %q", tt.why, d.Reason)
		}
		if tt.wrong == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.why, err)
			} else if _, err := parseRetryHeaders(r.Headers); err != nil {
				t.Errorf("%s: the worker cannot read the redriven record: %v", tt.why, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: got %v, want %q in it", tt.why, err, tt.wrong)
		}
	}
}

// A redriven record has the dead letter's step + 1 and no attempts. It keeps the
// notification's age and its devices.
func TestARedrivenRecordIsARetryThatIsConfirmed(t *testing.T) {
	c := newCluster(t, 1, dlqTopics())
	c.produceRecords(deadRecord(0, time.Now(), headerDevices, "a,b", headerDetail, "Shutdown", headerProvider, "apns", headerRedrive, "1", "traceparent", "00-ab"))
	q := c.dlq("push")
	e, err := q.Since(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Redrive(t.Context(), c.readDLQ(q, e), "30s"); err != nil {
		t.Fatal(err)
	}
	r := c.readAll("push.retry.30s", 1)[0]
	if got, want := headersOf(r), map[string]string{headerVersion: "1", headerAttempt: "0", headerHops: "5", headerRedrive: "2", headerFirstSeen: "1790000000000",
		headerOrigin: "push/2/41", headerReason: "retries_used_up", headerDevices: "a,b", "traceparent": "00-ab"}; !reflect.DeepEqual(got, want) {
		t.Errorf("headers %v\nwant %v", got, want)
	}
	if string(r.Key) != "u1" || string(r.Value) != `{"id":"n1"}` {
		t.Error("key or value changed")
	}
}

// A dead letter without a key is redriven to the same partition each time: two copies
// in two partitions would be confirmed at the same time, and both sent.
func TestARedriveRepeatsItsPartition(t *testing.T) {
	const partitions, letters = 7, 20
	c := newCluster(t, partitions, dlqTopics())
	for i := range letters {
		value := fmt.Sprintf(`{"id":"n%d","app":"shop","user_id":"u%d"}`, i, i)
		switch i % 4 {
		case 1:
			value = `{"id":`
		case 2:
			value = fmt.Sprintf(`{"id":"n%d","app":"shop","device":{"platform":"fcm","token":"t%d"}}`, i, i)
		}
		r := deadRecord(0, time.Now(), headerOrigin, fmt.Sprintf("push/2/%d", i))
		r.Key, r.Value = nil, []byte(value)
		if i%4 == 3 {
			r.Key = []byte{} // not nil, but empty
		}
		c.produceRecords(r)
	}
	const times = 3
	for range times {
		q := c.dlq("push") // a new one, as for an operator's next command
		e, err := q.Since(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range c.readDLQ(q, e) { // one by one, because records without a key share a partition within a batch
			if err := q.Redrive(t.Context(), []*DeadLetter{d}, "30s"); err != nil {
				t.Fatal(err)
			}
		}
	}
	places, used := map[string]map[int32]bool{}, map[int32]bool{}
	for _, r := range c.readAll("push.retry.30s", times*letters) {
		origin := headersOf(r)[headerOrigin]
		if places[origin] == nil {
			places[origin] = map[int32]bool{}
		}
		places[origin][r.Partition], used[r.Partition] = true, true
	}
	for origin, partitions := range places {
		if len(partitions) != 1 {
			t.Errorf("%s went to %d partitions, want 1", origin, len(partitions))
		}
	}
	if len(places) != letters || len(used) < 3 {
		t.Errorf("got %d letters in %d partitions in all", len(places), len(used))
	}
}

func TestAnExtentIsWhatIsThereNow(t *testing.T) {
	c := newCluster(t, 2, dlqTopics())
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	at := func(h int) time.Time { return day.Add(time.Duration(h) * time.Hour) }
	// 3 o'clock comes after 5 o'clock, because the clocks of workers differ.
	c.produceRecords(deadRecord(0, at(1)), deadRecord(0, at(2)), deadRecord(0, at(5)), deadRecord(0, at(3)), deadRecord(0, at(6)), deadRecord(1, at(4)))
	q := c.dlq("push")
	for _, tt := range []struct {
		why           string
		since, before time.Time
		want          Extent
	}{
		{"everything", time.Time{}, time.Time{}, Extent{0: {0, 5}, 1: {0, 1}}},
		{"since: all that is as late, and what stands behind it", at(3), time.Time{}, Extent{0: {2, 5}, 1: {0, 1}}},
		{"since a time after the last", at(7), time.Time{}, Extent{0: {5, 5}, 1: {1, 1}}},
		{"before: up to the first that is as late", time.Time{}, at(4), Extent{0: {0, 2}, 1: {0, 0}}},
		{"before everything", time.Time{}, at(0), Extent{0: {0, 0}, 1: {0, 0}}},
		{"before a time after the last", time.Time{}, at(7), Extent{0: {0, 5}, 1: {0, 1}}},
	} {
		got, err := q.log.Extent(t.Context(), tt.since, tt.before)
		if err != nil {
			t.Fatalf("%s: %v", tt.why, err)
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.why, got, tt.want)
		}
	}
	// Records that come after Since are not in its extent.
	e, err := q.Since(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	c.produceRecords(deadRecord(0, at(8)), deadRecord(1, at(8)))
	letters := c.readDLQ(q, e)
	var places []string
	for _, d := range letters {
		places = append(places, d.Place.String())
	}
	if got := strings.Join(places, " "); got != "0/0 0/1 0/2 0/3 0/4 1/0" {
		t.Errorf("got %s", got)
	}
	enough := errors.New("enough")
	n := 0
	if err := q.Read(t.Context(), e, func(*DeadLetter) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("each was called %d times after it returned an error (%v)", n, err)
	}
	if again := c.readDLQ(q, e); len(again) != 6 {
		t.Errorf("read %d after an interrupted read, want 6", len(again))
	}
}

func TestMarksBelongToTheirRecord(t *testing.T) {
	c := newCluster(t, 1, dlqTopics())
	q := c.dlq("push")
	at := time.UnixMilli(1_790_000_000_000)
	a, b, other := deadLetter(deadRecord(0, at)), deadLetter(deadRecord(0, at.Add(time.Second))), deadLetter(deadRecord(0, at.Add(time.Hour)))
	a.Offset, b.Offset, other.Offset = 4, 5, 5
	if err := q.Audit().Write(t.Context(), []Mark{MarkOf(a, Dismissed, "me", at), MarkOf(b, Redriven, "me", at), MarkOf(a, Redriven, "you", at.Add(time.Minute))}); err != nil {
		t.Fatal(err)
	}
	marks, err := q.Audit().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := marks.Of(a); !ok || m.What != Redriven || m.By != "you" || !m.At.Equal(at.Add(time.Minute)) || m.Redo != 1 {
		t.Errorf("last mark of a: got %+v, %v", m, ok)
	}
	if _, ok := marks.Of(b); !ok {
		t.Error("b has no mark")
	}
	if m, ok := marks.Of(other); ok {
		t.Errorf("another record at the place of b has its mark: %+v", m)
	}
	elsewhere := *b
	elsewhere.Origin = "push/0/0"
	if m, ok := marks.Of(&elsewhere); ok {
		t.Errorf("a record with another origin at the place of b has its mark: %+v", m)
	}
	if err := q.Audit().Forget(t.Context(), []Place{a.Place}); err != nil {
		t.Fatal(err)
	}
	if marks, err = q.Audit().Read(t.Context()); err != nil || len(marks) != 1 {
		t.Errorf("after forgetting a: got %v, error %v", marks, err)
	}
}

func TestAnAuditRecordIsNeverGuessedAt(t *testing.T) {
	for _, tt := range []struct{ why, key, value, wrong string }{
		{"a version of later", "0/1", `{"v":2,"what":"redriven"}`, "version 2"},
		{"no version", "0/1", `{}`, "version 0"},
		{"no JSON", "0/1", `x`, "invalid character"},
		{"no place", "0", `{"v":1}`, "not partition/offset"},
		{"a negative offset", "0/-1", `{"v":1}`, "not partition/offset"},
		{"a negative partition", "-1/1", `{"v":1}`, "not partition/offset"},
	} {
		ms := make(Marks)
		err := ms.apply(&kgo.Record{Topic: "push.dlq.audit", Key: []byte(tt.key), Value: []byte(tt.value)})
		if err == nil || !strings.Contains(err.Error(), tt.wrong) || len(ms) != 0 {
			t.Errorf("%s: %v, marks %v, want %q", tt.why, err, ms, tt.wrong)
		}
	}
}

// deleteUpTo tests Delete, on the in-process broker and on a real one.
func deleteUpTo(t *testing.T, c *cluster, lane string) {
	t.Helper()
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	var records []*kgo.Record
	for h := range 6 {
		r := deadRecord(0, day.Add(time.Duration(h)*time.Hour))
		r.Topic, r.Value = DLQTopic(lane), fmt.Appendf(nil, `{"id":"n%d"}`, h)
		records = append(records, r)
	}
	c.produceRecords(records...)
	q := c.dlq(lane)
	all, err := q.Since(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var marks []Mark
	for _, d := range c.readDLQ(q, all) {
		marks = append(marks, MarkOf(d, Dismissed, "me", day))
	}
	if err := q.Audit().Write(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
	e, err := q.Before(t.Context(), day.Add(4*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if e.Records() != 4 {
		t.Errorf("got %d records before, want 4", e.Records())
	}
	if err := q.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	left, err := q.Since(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.readDLQ(q, left); len(got) != 2 || string(got[0].Value) != `{"id":"n4"}` {
		t.Errorf("got %v left", got)
	}
	now, err := q.Audit().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := now[Place{0, 4}]; len(now) != 2 || !ok {
		t.Errorf("got marks %v left", now)
	}
	if err := q.Delete(t.Context(), Extent{0: {4, 4}}); err != nil {
		t.Errorf("deleting nothing: %v", err)
	}
}

func TestDeleteGoesUpToAnOffset(t *testing.T) {
	deleteUpTo(t, newCluster(t, 1, dlqTopics()), "push")
}

func TestRealDLQDeleteGoesUpToAnOffset(t *testing.T) {
	lane := ownName(t)
	c := realCluster(t, TopicSpec{Name: DLQTopic(lane), Partitions: 1, Replication: 1, Configs: map[string]string{"retention.ms": "-1"}},
		TopicSpec{Name: AuditTopic(lane), Partitions: 1, Replication: 1, Configs: map[string]string{"cleanup.policy": "compact"}})
	deleteUpTo(t, c, lane)
}
