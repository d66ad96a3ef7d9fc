package kafka

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// walled is a way to Kafka whose connections are all reset at one moment. From then on
// nothing answers who connects, as behind a firewall that drops.
type walled struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	mu    sync.Mutex
	wall  bool
	conns []net.Conn
}

func (w *walled) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	wall := w.wall
	w.mu.Unlock()
	if wall {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout) // as net.Dialer does
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	c, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

func (w *walled) build() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wall = true
	for _, c := range w.conns {
		_ = c.Close() // the client may have closed it
	}
}

// A source is closed while no connection can be made, a while after the last one was lost:
// it does not wait for those that the client tries to make.
func TestClosingWhileNothingConnects(t *testing.T) {
	for name, joining := range map[string]bool{"a member": false, "a member that joins": true} {
		for _, after := range []time.Duration{2 * time.Second, 12 * time.Second} {
			t.Run(name+" "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var network kfake.VirtualNetwork
					cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "push"))
					if err != nil {
						t.Fatal(err)
					}
					defer cluster.Close()
					way := &walled{dial: network.DialContext}
					o := Options{Brokers: cluster.ListenAddrs(), Dial: way.Dial}
					writer, err := kgo.NewClient(kgo.SeedBrokers(o.Brokers...), kgo.Dialer(network.DialContext))
					if err != nil {
						t.Fatal(err)
					}
					if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
						t.Fatal(err)
					}
					writer.Close()
					s, err := NewSource(o, SourceOptions{Topics: mainTopic("push"), Group: "g"})
					if err != nil {
						t.Fatal(err)
					}
					s.Join()
					if _, err := s.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
					joined := make(chan struct{})
					defer close(joined)
					if joining {
						cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
							cluster.KeepControl()
							cluster.SleepControl(func() { <-joined })
							return nil, nil, false
						})
						cluster.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
							cluster.KeepControl()
							resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
							resp.ErrorCode = kerr.RebalanceInProgress.Code
							return resp, nil, true
						})
					}
					time.Sleep(4 * time.Second)
					if s.member.joining() != joining {
						t.Fatalf("setup: joining is %v", !joining)
					}
					way.build()
					time.Sleep(after)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					_ = s.Close(ctx) // it could not leave
					if took := time.Since(start); took > 2*time.Second {
						t.Errorf("closed after %v, %v after its time was over", took, took-time.Second)
					}
				})
			})
		}
	}
}
