package kafka

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

func (c *cluster) admin() *Admin {
	c.t.Helper()
	a, err := NewAdmin(c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(a.Close)
	return a
}

func TestEnsureTopics(t *testing.T) {
	c := newCluster(t, 3, []string{"push"})
	a := c.admin()
	specs := []TopicSpec{
		{Name: "push", Partitions: 6, Replication: -1},
		{Name: "push.dlq", Partitions: 2, Replication: 1, Configs: map[string]string{"retention.ms": "1000"}},
	}
	steps := []struct {
		reason  string
		specs   []TopicSpec
		options EnsureOptions
		want    []TopicState
	}{
		{"a dry run changes nothing", specs, EnsureOptions{DryRun: true, AddPartitions: true}, []TopicState{
			{"push", TopicDiffers, []string{"would add partitions: 3 to 6"}}, {"push.dlq", TopicWouldCreate, nil}}},
		{"what is missing is created, nothing else", specs, EnsureOptions{}, []TopicState{
			{"push", TopicDiffers, []string{"would add partitions: 3 to 6"}}, {"push.dlq", TopicCreated, nil}}},
		{"partitions are added when asked for", specs, EnsureOptions{AddPartitions: true}, []TopicState{
			{"push", TopicPartitionsAdded, nil}, {"push.dlq", TopicExists, nil}}},
		{"again: nothing to do", specs, EnsureOptions{AddPartitions: true}, []TopicState{
			{"push", TopicExists, nil}, {"push.dlq", TopicExists, nil}}},
		{"other values are told, never changed", []TopicSpec{{Name: "push.dlq", Partitions: 1, Replication: 1, Configs: map[string]string{"retention.ms": "2"}}}, EnsureOptions{},
			[]TopicState{{"push.dlq", TopicDiffers, []string{"has 2 partitions, not 1", `retention.ms is "1000", not "2"`}}}},
	}
	for _, step := range steps {
		got, err := a.EnsureTopics(t.Context(), step.specs, step.options)
		if err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.reason, got, step.want)
		}
	}

	var missing *MissingTopicsError
	if err := a.CheckTopics(t.Context(), "push", "nope", "push.dlq", "nor.this"); !errors.As(err, &missing) || !reflect.DeepEqual(missing.Topics, []string{"nope", "nor.this"}) {
		t.Errorf("got %v, want the two topics that are missing", err)
	}
	if err := a.CheckTopics(t.Context(), "push", "push.dlq"); err != nil {
		t.Errorf("all topics exist, but got %v", err)
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// A broker lists a topic before it leads it, and refuses writes until then.
func TestEnsuredTopicsCanBeWrittenTo(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked.Add(1) > 3 {
			return nil, nil, false
		}
		req := r.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range req.Topics {
			refused := kmsg.NewListOffsetsResponseTopic()
			refused.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.ErrorCode = partition.Partition, kerr.UnknownTopicOrPartition.Code
				refused.Partitions = append(refused.Partitions, p)
			}
			resp.Topics = append(resp.Topics, refused)
		}
		return resp, nil, true
	})
	a := c.admin()
	spec := []TopicSpec{{Name: "push.users", Partitions: 2, Replication: -1}}
	if _, err := a.EnsureTopics(t.Context(), spec, EnsureOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n < 4 {
		t.Errorf("got ready after %d requests, the third of which was refused", n)
	}
	before := asked.Load()
	if _, err := a.EnsureTopics(t.Context(), spec, EnsureOptions{}); err != nil || asked.Load() != before {
		t.Errorf("got %d requests about topics that already existed (error %v)", asked.Load()-before, err)
	}

	// A topic that never gets a leader.
	asked.Store(-1 << 20)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(errors.New("the operator has had enough")) })
	table, err := a.EnsureTopics(ctx, []TopicSpec{{Name: "push.dlq", Partitions: 1, Replication: -1}}, EnsureOptions{})
	if err == nil || !strings.Contains(err.Error(), "topic push.dlq: created, but: the operator has had enough") {
		t.Errorf("got %v", err)
	}
	if len(table) != 1 || table[0].State != TopicCreated {
		t.Errorf("got %v done", table)
	}
}

func TestLagIsWhatIsNotCommitted(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 4, Linger: time.Millisecond})
	c.produce("push", 0, 0, 10)
	bs := nextItems(t, s, 10)
	bs[0].Tracker.Done(itemsOf(bs[0])[:3])
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	lags, err := c.admin().Lag(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if want := []PartitionLag{{"push", 0, 3, 10, 7}}; !reflect.DeepEqual(lags, want) {
		t.Errorf("lag %v, want %v", lags, want)
	}
	states := s.State()
	if len(states) != 1 || states[0] != (PartitionState{Partition: push.Partition{Topic: "push"}, Committed: 3, End: 10, Open: 7}) {
		t.Errorf("got source states %+v", states)
	}
	done, err := c.admin().Committed(t.Context(), "g", "push")
	if err != nil || !reflect.DeepEqual(done, map[int32]int64{0: 3}) {
		t.Errorf("got commits %v, error %v", done, err)
	}
}

func TestAWriterKeepsAUsersPartsTogether(t *testing.T) {
	c := newCluster(t, 16, []string{"push.users", "plain"})
	user := func(key []byte) []byte { return key[:2] }
	w, err := NewWriter(c.options, WriterOptions{Topic: "push.users", PartitionKey: user})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	plain, err := NewWriter(c.options, WriterOptions{Topic: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := w.Append(t.Context(), []Record{
		{Key: []byte("u1/prefs"), Value: []byte("p")}, {Key: []byte("u1/device:a"), Value: []byte("d")},
		{Key: []byte("u1/device:b"), Headers: map[string]string{"h": "v"}}, {Key: []byte("u2/prefs"), Value: []byte("p")}}); err != nil {
		t.Fatal(err)
	}
	if err := plain.Append(t.Context(), []Record{{Key: []byte("u1")}, {Key: []byte("u2")}}); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]int32) // the partition of the user id alone, by Kafka's default
	for _, r := range c.readAll("plain", 2) {
		want[string(r.Key)] = r.Partition
	}
	for _, r := range c.readAll("push.users", 4) {
		if p := want[string(user(r.Key))]; r.Partition != p {
			t.Errorf("%s is in partition %d, its user in %d", r.Key, r.Partition, p)
		}
		if string(r.Key) == "u1/device:b" && (r.Value != nil || headersOf(r)["h"] != "v") {
			t.Error("the tombstone has a value, or lost its header")
		}
	}
}

func follow(t *testing.T, f *Follower, n int) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var rs []Record
	for len(rs) < n {
		got, err := f.Poll(ctx, 100)
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(rs), n, err)
		}
		rs = append(rs, got...)
	}
	return rs
}

func TestAFollowerReadsFromWhereItIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, []string{"push.users"})
	c.produce("push.users", 0, 0, 5)
	c.produce("push.users", 1, 0, 5)
	f, err := NewFollower(c.options, "push.users", map[int32]int64{0: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first := make(map[int32]int64)
	for _, r := range follow(t, f, 7) {
		if _, ok := first[r.Partition]; !ok {
			first[r.Partition] = r.Offset
		}
	}
	if want := map[int32]int64{0: 3, 1: 0}; !reflect.DeepEqual(first, want) {
		t.Errorf("got start %v, want %v", first, want)
	}
	f.Seek(map[int32]int64{0: 4, 1: 5})
	if rs := follow(t, f, 1); len(rs) != 1 || rs[0].Partition != 0 || rs[0].Offset != 4 {
		t.Errorf("after the seek: got %v, want offset 4 of partition 0", rs)
	}
	if _, err := c.admin().EnsureTopics(t.Context(), []TopicSpec{{Name: "push.users", Partitions: 3, Replication: -1}}, EnsureOptions{AddPartitions: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new partition is seen", func() bool {
		ends, err := f.EndOffsets(t.Context())
		return err == nil && len(ends) == 3 && ends[0] == 5
	})
	c.client.Close() // its metadata is older than the new partition
	c.client = nil
	c.produce("push.users", 2, 0, 1)
	if rs := follow(t, f, 1); rs[0].Partition != 2 {
		t.Errorf("got %v, want the record of the new partition", rs)
	}

	f.Seek(map[int32]int64{0: 99})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var gone *PartitionError
	for !errors.As(err, &gone) && ctx.Err() == nil {
		_, err = f.Poll(ctx, 100)
	}
	if gone == nil || gone.Partition.ID != 0 {
		t.Errorf("offset out of range: got %v, want a PartitionError", err)
	}
}

func TestAConsumerRepeatsWhatIsNotCommitted(t *testing.T) {
	c := newCluster(t, 1, []string{"push.feedback"})
	c.produce("push.feedback", 0, 0, 5)
	poll := func(k *Consumer) []Record {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		rs, err := k.Poll(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	first, err := NewConsumer(c.options, "push.feedback", "registry")
	if err != nil {
		t.Fatal(err)
	}
	poll(first)
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.committed("registry", "push.feedback", 0); got != 3 {
		t.Errorf("got commit %d, want 3", got)
	}
	poll(first) // and crash before the commit
	first.Close()
	second, err := NewConsumer(c.options, "push.feedback", "registry")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if rs := poll(second); rs[0].Offset != 3 {
		t.Errorf("got start %d for the next consumer, want 3", rs[0].Offset)
	}
}

// consumerOf returns a consumer, and a function that polls it once.
func (c *cluster) consumerOf(topic string) (k *Consumer, poll func() ([]Record, error)) {
	c.t.Helper()
	k, err := NewConsumer(c.options, topic, "registry")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(k.Close)
	return k, func() ([]Record, error) {
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		return k.Poll(ctx, 100)
	}
}

// An error that comes with records does not drop them: the commit covers all polled
// records.
func TestAConsumersErrorTakesNoRecordsAway(t *testing.T) {
	c := newCluster(t, 2, []string{"push.feedback"})
	c.produce("push.feedback", 0, 0, 5)
	c.produce("push.feedback", 1, 0, 5)
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "push.feedback", Partitions: []int32{0}, Count: -1})
	k, poll := c.consumerOf("push.feedback")
	var records, errs int
	for records < 5 || errs == 0 {
		rs, err := poll()
		if len(rs) > 0 && err != nil {
			t.Fatalf("got %d records and error %v", len(rs), err)
		}
		if records += len(rs); err != nil {
			if errs++; !errors.Is(err, kerr.UnknownServerError) {
				t.Fatal(err)
			}
		}
		if len(rs) > 0 {
			if err := k.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused.Remove()
	for records < 10 {
		rs, err := poll()
		if err != nil && !errors.Is(err, kerr.UnknownServerError) {
			t.Fatal(err)
		}
		records += len(rs)
	}
}

// If the log does not have the committed offset, any more or yet, reading begins at the
// start.
func TestAConsumersOffsetThatIsGone(t *testing.T) {
	for reason, at := range map[string]int64{"deleted": 1, "the topic was made anew": 50} {
		t.Run(reason, func(t *testing.T) {
			c := newCluster(t, 1, []string{"push.feedback"})
			c.produce("push.feedback", 0, 0, 5)
			if err := c.DeleteRecords("push.feedback", 0, 3); err != nil {
				t.Fatal(err)
			}
			c.commitAt("registry", "push.feedback", at)
			k, poll := c.consumerOf("push.feedback")
			rs, err := poll()
			if err != nil || len(rs) != 2 || rs[0].Offset != 3 {
				t.Fatalf("got %d records from %v, error %v; want 2", len(rs), rs, err)
			}
			if err := k.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if at := c.committed("registry", "push.feedback", 0); at != 5 {
				t.Errorf("got commit %d, want 5", at)
			}
		})
	}
}

// A group that does not exist has committed nothing: its lane's workers never started.
func TestAGroupThatDoesNotExistHasCommittedNothing(t *testing.T) {
	c := newCluster(t, 2, []string{"push"})
	a := c.admin()
	if offsets, err := a.Committed(t.Context(), "nobody", "push"); err != nil || len(offsets) != 0 {
		t.Errorf("got commits %v, error %v", offsets, err)
	}
	if lags, err := a.Lag(t.Context(), "nobody"); err != nil || len(lags) != 0 {
		t.Errorf("got lags %v, error %v", lags, err)
	}
}
