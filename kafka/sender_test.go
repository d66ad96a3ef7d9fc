package kafka

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *cluster) sender(records, bytes int) *Sender {
	c.t.Helper()
	s, err := NewSender(c.options, SenderOptions{Linger: time.Millisecond, Records: records, Bytes: bytes})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// sendAll sends and waits for what is said of each.
func sendAll(s *Sender, sent ...*Sent) (at []Offset, errs []error) {
	at, errs = make([]Offset, len(sent)), make([]error, len(sent))
	var wg sync.WaitGroup
	for i, r := range sent {
		wg.Add(1)
		s.Send(r, func(o Offset, err error) {
			at[i], errs[i] = o, err
			wg.Done()
		})
	}
	wg.Wait()
	return at, errs
}

// A record is where done says, with its key, headers and time.
func TestASenderSaysWhereARecordIs(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	when := time.UnixMilli(1_764_000_000_123)
	s := c.sender(100, 1<<20)
	at, errs := sendAll(s, &Sent{Topic: "push", Key: []byte("u"), Value: []byte("a"), At: when, Headers: []Header{{"traceparent", []byte("00-1")}}},
		&Sent{Topic: "push", Value: []byte("b"), At: when})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, r := range c.readAll("push", 2) {
		if at[i] != (Offset{0, r.Offset}) || !r.Timestamp.Equal(when) {
			t.Errorf("%s is at %d of %v, said is %+v", r.Value, r.Offset, r.Timestamp, at[i])
		}
		if string(r.Value) == "a" && (string(r.Key) != "u" || headersOf(r)["traceparent"] != "00-1") {
			t.Errorf("it has key %s and headers %v", r.Key, r.Headers)
		}
	}
	if s.Buffered() != 0 {
		t.Errorf("%d are buffered", s.Buffered())
	}
}

// While Kafka is away a Sender holds what it may, refuses the rest at once, and at its
// end gives up what it holds.
func TestASenderIsBounded(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.sender(2, 1<<20)
	if _, errs := sendAll(s, &Sent{Topic: "push", Value: []byte("a")}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	c.Close()
	said := make(chan error, 3) // buffered, capacity 3: one for each Send; never closed
	for range 3 {
		s.Send(&Sent{Topic: "push", Value: []byte("b")}, func(_ Offset, err error) { said <- err })
	}
	if err := <-said; !errors.Is(err, ErrSenderFull) {
		t.Errorf("the third is told %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(ctx)
	for range 2 {
		if err := <-said; err == nil || errors.Is(err, ErrSenderFull) {
			t.Errorf("what was given up is told %v", err)
		}
	}
}

// Progress is the group's commits and the topic's id, or an error: what is not known is
// never "nothing committed".
func TestProgress(t *testing.T) {
	c := newCluster(t, 2, []string{"push"})
	a := c.admin()
	p, err := a.Progress(t.Context(), "nobody", "push")
	if err != nil || len(p.Committed) != 0 || p.Topic == [16]byte{} {
		t.Fatalf("of a group that does not exist: %+v %v", p, err)
	}
	if id, err := a.TopicID(t.Context(), "push"); err != nil || id != p.Topic {
		t.Errorf("the topic's id is %v %v, and in the progress %v", id, err, p.Topic)
	}
	c.produce("push", 0, 0, 10)
	offsets := a.commitFor(t, "g", "push", 0, 3)
	if p, err = a.Progress(t.Context(), "g", "push"); err != nil || len(p.Committed) != 1 || p.Committed[0] != offsets {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := a.Progress(t.Context(), "g", "none"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("of a topic that does not exist: %v", err)
	}
	c.ControlKey(int16(kmsg.OffsetFetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := request.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range request.(*kmsg.OffsetFetchRequest).Groups {
			partition := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			partition.Offset, partition.ErrorCode = -1, kerr.UnstableOffsetCommit.Code
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic, topic.TopicID, topic.Partitions = "push", p.Topic, []kmsg.OffsetFetchResponseGroupTopicPartition{partition}
			group := kmsg.NewOffsetFetchResponseGroup()
			group.Group, group.Topics = g.Group, []kmsg.OffsetFetchResponseGroupTopic{topic}
			response.Groups = append(response.Groups, group)
		}
		return response, nil, true
	})
	if p, err := a.Progress(t.Context(), "g", "push"); err == nil {
		t.Errorf("a partition that is not known: %+v", p)
	}
}

// commitFor commits an offset for a group that has no members.
func (a *Admin) commitFor(t *testing.T, group, topic string, partition int32, at int64) int64 {
	t.Helper()
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, partition, at, -1)
	if err := a.admin.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	return at
}
