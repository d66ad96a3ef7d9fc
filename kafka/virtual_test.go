package kafka

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
)

// virtual is a broker in the bubble of a test, with the topic push, which has one record.
type virtual struct {
	*kfake.Cluster
	t       *testing.T
	network kfake.VirtualNetwork
}

func newVirtual(t *testing.T, more ...kfake.Opt) *virtual {
	t.Helper()
	v := &virtual{t: t}
	var err error
	v.Cluster, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(v.network.Listen), kfake.SeedTopics(1, "push")}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return v
}

// options reach the broker by dial.
func (v *virtual) options(dial func(context.Context, string, string) (net.Conn, error)) Options {
	return Options{Brokers: v.ListenAddrs(), Dial: dial}
}

// drained ends and commits batches until n records of a partition, of any if it is -1, have
// come, and returns the time from the first of them on.
func (v *virtual) drained(s *Source, partition int32, n int) time.Duration {
	v.t.Helper()
	var began time.Time
	for came := 0; came < n; {
		b, err := s.Next(v.t.Context())
		if err != nil {
			v.t.Fatal(err)
		}
		if partition < 0 || b.Partition.ID == partition {
			if came == 0 {
				began = time.Now()
			}
			came += len(b.Items)
		}
		done(b)
		if err := s.Commit(v.t.Context()); err != nil {
			v.t.Fatal(err)
		}
	}
	return time.Since(began)
}

// joined returns a source that has handed out the record. Who asked for it closes it.
func (v *virtual) joined(dial func(context.Context, string, string) (net.Conn, error), change ...func(*SourceOptions)) (*Source, *pipeline.Batch) {
	v.t.Helper()
	so := SourceOptions{Topics: mainTopic("push"), Group: "g", Linger: time.Millisecond}
	for _, f := range change {
		f(&so)
	}
	s, err := NewSource(v.options(dial), so)
	if err != nil {
		v.t.Fatal(err)
	}
	s.Join()
	open, err := s.Next(v.t.Context())
	if err != nil {
		v.t.Fatal(err)
	}
	return s, open
}

// rebalance begins one that goes on until it is ended, as if another member drained.
func (v *virtual) rebalance() (end func()) {
	var over atomic.Bool
	joined := make(chan struct{}) // closed by end
	v.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		v.KeepControl()
		v.SleepControl(func() { <-joined })
		return nil, nil, false
	})
	v.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		v.KeepControl()
		if over.Load() {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.RebalanceInProgress.Code
		return resp, nil, true
	})
	return func() {
		over.Store(true)
		close(joined)
	}
}
