package dedupe

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
)

// hung is a proxy in front of Redis whose connections can hang: they lose what
// is sent, do not even accept it, or cannot be opened.
type hung struct {
	r    *embedded.Redis
	mode atomic.Int32
	end  chan struct{}
	open sync.WaitGroup
}

const (
	healthy = iota
	silent  // accepts everything and answers nothing
	stuffed // accepts nothing
	unreachable
)

func (h *hung) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if h.mode.Load() == unreachable {
		select { // like the client's own dialer
		case <-ctx.Done():
		case <-time.After(shards.DefaultOptions().DialTimeout):
		}
		return nil, os.ErrDeadlineExceeded
	}
	far, err := h.r.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, middle := net.Pipe()
	h.open.Go(func() { defer near.Close(); h.carry(far, middle) })
	h.open.Go(func() { defer far.Close(); h.carry(middle, far) })
	return near, nil
}

// carry copies until either side ends, but not while the connection hangs.
func (h *hung) carry(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		if h.mode.Load() == stuffed {
			select {
			case <-h.end:
				return
			case <-time.After(time.Millisecond):
			}
			continue
		}
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if h.mode.Load() == healthy {
			if _, err := to.Write(buf[:n]); err != nil && err != io.EOF {
				return
			}
		}
	}
}

// TestAddEndsInTime: however Redis hangs, Add ends within its timeout, or with
// its context if that is sooner. Ids that are added again afterwards are known.
func TestAddEndsInTime(t *testing.T) {
	for mode, why := range map[int32]string{silent: "no answers", stuffed: "takes nothing", unreachable: "no connection"} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := embedded.StartPipeRedis()
				must(t, err)
				defer r.Close()
				h := &hung{r: r, end: make(chan struct{})}
				o := shards.DefaultOptions()
				o.Addrs, o.Dialer = []string{r.Addr()}, h.Dial
				client, err := shards.Open(o)
				must(t, err)
				defer func() { settle(client) }()
				defer close(h.end)
				f, err := New(client, DefaultOptions())
				must(t, err)
				must(t, f.DeclareNew(t.Context()))
				ids := names(2000, "id")
				add(t, f, ids...)

				h.mode.Store(mode)
				if mode == unreachable {
					_ = client.Close()
					client, err = shards.Open(o)
					must(t, err)
					f.client = client
				}
				var adds sync.WaitGroup
				for i := range o.PoolSize {
					adds.Go(func() {
						ctx, want := context.Background(), f.AddTimeout
						if i%2 == 1 {
							want = 300 * time.Millisecond
							var cancel func()
							ctx, cancel = context.WithTimeout(ctx, want)
							defer cancel()
						}
						begin := time.Now()
						if err := f.Add(ctx, ids); err == nil {
							t.Error("added to a Redis that hangs")
						}
						if took := time.Since(begin); took > want {
							t.Errorf("an Add took %v, want at most %v", took, want)
						}
					})
				}
				adds.Wait()
			})
		})
	}
}
