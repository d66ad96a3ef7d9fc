package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
)

// writes notes when a source's heartbeats are written. It can lose them.
type writes struct {
	mu    sync.Mutex
	times []time.Time
	lose  bool
}

type writesConn struct {
	net.Conn
	of *writes
}

func (c *writesConn) Write(b []byte) (int, error) {
	if kmsg.Key(binary.BigEndian.Uint16(b[4:])) == kmsg.Heartbeat {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.times = append(c.of.times, time.Now())
		if c.of.lose {
			return len(b), nil
		}
	}
	return c.Conn.Write(b)
}

// waiting runs test in a bubble with a member whose JoinGroup is pending.
func waiting(t *testing.T, test func(t *testing.T, s *Source, open *pipeline.Batch, w *writes)) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "push"))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		writer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		w := new(writes)
		dial := func(ctx context.Context, kind, address string) (net.Conn, error) {
			c, err := network.DialContext(ctx, kind, address)
			if err != nil {
				return nil, err
			}
			return &writesConn{c, w}, nil
		}
		s, err := NewSource(Options{Brokers: cluster.ListenAddrs(), Dial: dial}, SourceOptions{Topics: mainTopic("push"), Group: "g", Linger: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s.Join()
		open, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		joined := make(chan struct{})
		var over atomic.Bool
		cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			cluster.SleepControl(func() { <-joined })
			return nil, nil, false
		})
		cluster.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if over.Load() {
				return nil, nil, false
			}
			resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
			resp.ErrorCode = kerr.RebalanceInProgress.Code
			return resp, nil, true
		})
		for !s.member.joining() {
			time.Sleep(10 * time.Millisecond)
		}
		test(t, s, open, w)
		over.Store(true)
		close(joined)
		// Not done: a commit that waits with its lock would stop the bubble's time.
		open.Tracker.Abandon(itemsOf(open))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = s.Close(ctx) // it may have lost what was written
	})
}

// A member whose coordinator answers has its lease without a gap, however long the others
// drain.
func TestALeaseHasNoGapWhileOthersDrain(t *testing.T) {
	waiting(t, func(t *testing.T, s *Source, open *pipeline.Batch, _ *writes) {
		for start := time.Now(); time.Since(start) < 50*time.Second; time.Sleep(100 * time.Millisecond) {
			if open.Tracker.Lapsed(time.Now()) {
				t.Fatalf("lapsed after %v", time.Since(start))
			}
		}
		if !s.member.joining() {
			t.Fatal("setup: the rebalance is over")
		}
	})
}

// A heartbeat without an answer is followed by another one before the session is over.
func TestAHeartbeatThatIsLostWhileJoiningIsFollowedByAnother(t *testing.T) {
	waiting(t, func(t *testing.T, s *Source, _ *pipeline.Batch, w *writes) {
		w.mu.Lock()
		w.lose = true
		before := len(w.times)
		w.mu.Unlock()
		time.Sleep(s.options.Session)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lose = false
		if n := len(w.times) - before; n < 2 {
			t.Errorf("%d heartbeats in a session in which none was answered", n)
		}
	})
}

// A member that is closed while others drain waits for them, and is heard of meanwhile.
func TestAMemberThatIsClosedWhileItJoinsIsHeardOf(t *testing.T) {
	waiting(t, func(t *testing.T, s *Source, _ *pipeline.Batch, w *writes) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { _ = s.Close(ended) }() // the bubble waits for it
		time.Sleep(leaveFor)
		w.mu.Lock()
		before := len(w.times)
		w.mu.Unlock()
		time.Sleep(2 * s.options.Session)
		w.mu.Lock()
		n := len(w.times) - before
		w.mu.Unlock()
		if !s.member.joining() {
			t.Error("setup: it does not join any more")
		}
		if n < 4 {
			t.Errorf("%d heartbeats in two sessions", n)
		}
	})
}
