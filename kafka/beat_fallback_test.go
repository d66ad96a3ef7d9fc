package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// With brokers that do not know the server-side protocol the classic one is used, and its
// lease has no gap either while others drain.
func TestALeaseHasNoGapWhileOthersDrainIfTheServerSideProtocolIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "push"), kfake.MaxVersions(kversion.V3_6_0()))
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
		s, err := NewSource(Options{Brokers: cluster.ListenAddrs(), Dial: network.DialContext}, SourceOptions{Topics: mainTopic("push"), Group: "g", Protocol: ServerSide, Linger: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s.Join()
		open, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if open.Tracker.Lapsed(time.Now()) {
			t.Error("there is no lease for the first batch")
		}
		joined := make(chan struct{})
		over := false
		cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			cluster.SleepControl(func() { <-joined })
			return nil, nil, false
		})
		cluster.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			select {
			case <-joined:
				over = true
			default:
			}
			if over {
				return nil, nil, false
			}
			resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
			resp.ErrorCode = kerr.RebalanceInProgress.Code
			return resp, nil, true
		})
		for !s.member.joining() {
			time.Sleep(10 * time.Millisecond)
		}
		for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
			if open.Tracker.Lapsed(time.Now()) {
				t.Errorf("lapsed %v after JoinGroup was sent", time.Since(start))
				break
			}
		}
		close(joined)
		open.Tracker.Abandon(itemsOf(open))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = s.Close(ctx)
	})
}
