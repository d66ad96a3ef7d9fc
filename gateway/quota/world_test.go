package quota

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestMain(m *testing.M) {
	shards.LogTo(slog.New(slog.DiscardHandler)) // of dials to a Redis that is away on purpose
	goleak.VerifyTestMain(m)
}

// fleet is gateways that share limits in virtual time, and a plain count of what they admit.
type fleet struct {
	t       testing.TB
	redis   *embedded.Redis
	options Options
	started int
	running sync.WaitGroup

	mu       sync.Mutex
	admitted map[at]int // guarded by mu
	asked    map[at]int // guarded by mu: what was wanted
}

// at is a window, by the clock of the test, which is Redis's.
type at struct {
	length time.Duration
	number int64
}

// inFleet runs a test in virtual time, which begins with a second.
func inFleet(t *testing.T, o Options, test func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		redis, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet, o.Log = "test", slog.New(slog.DiscardHandler)
		o.Gateways = max(o.Gateways, 1)
		f := &fleet{t: t, redis: redis, options: o, admitted: map[at]int{}, asked: map[at]int{}}
		test(f)
		f.running.Wait()
		redis.Close()
		time.Sleep(2 * time.Second) // the library dials once more
		synctest.Wait()
	})
}

// gateway is one of a fleet, with its own way to Redis.
type gateway struct {
	*Quotas
	fleet *fleet
	link  *link
	close func() // it gives back what it holds
	kill  func() // it does not
	dead  atomic.Bool
}

func (f *fleet) join() *gateway {
	g := &gateway{fleet: f, link: &link{redis: f.redis}}
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{f.redis.Addr()}, g.link.dial
	client, err := shards.Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.started++
	options := f.options
	options.Member = fmt.Sprint("g", f.started)
	if g.Quotas, err = New(client, options); err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	end := func(first, then func()) func() {
		return sync.OnceFunc(func() { first(); running.Wait(); then(); g.link.conns.Wait() })
	}
	closeClient := func() { _ = client.Close() }
	g.close = end(stop, closeClient)
	g.kill = end(func() { g.dead.Store(true); closeClient(); stop() }, func() {})
	return g
}

// take admits messages of sender a, and counts them.
func (g *gateway) take(n int) (Taken, time.Duration) {
	began := time.Now()
	g.fleet.count(g.fleet.asked, n, nil, began)
	of := g.Of("a").Take(context.Background(), n)
	if g.dead.Load() { // its clients have no answer
		return Taken{}, time.Since(began)
	}
	for _, part := range []*taken{&of.first, &of.then} {
		g.fleet.count(g.fleet.admitted, part.n, part, began)
	}
	return of, time.Since(began)
}

// count counts now, or where part of a request was admitted before it had waited to its end: in the
// windows that the gateway says, if they were since the request began.
func (f *fleet) count(in map[at]int, n int, part *taken, began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range f.options.Default.Policies() {
		first, number := began.UnixNano()/int64(p.Window), time.Now().UnixNano()/int64(p.Window)
		if part != nil && part.numbers[i] >= first && part.numbers[i] < number {
			number = part.numbers[i]
		}
		in[at{p.Window, number}] += n
	}
}

// load sends through a gateway, evenly, so many a second, in requests of so many messages.
func (g *gateway) load(perSecond float64, each int, long time.Duration) {
	g.fleet.running.Go(func() {
		var under sync.WaitGroup
		for began, sent := time.Now(), 0; time.Since(began) < long; time.Sleep(time.Duration(float64(each) * float64(time.Second) / perSecond)) {
			sent++
			under.Go(func() { g.take(each) })
		}
		under.Wait()
	})
}

// over tells of every window in which more was admitted than its limit, by so many.
func (f *fleet) over(by int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.options.Default.Policies() {
		for w, n := range f.admitted {
			if w.length == p.Window && n > p.Limit+by {
				f.t.Errorf("%s %d: %d were admitted, want at most %d", p.Name, w.number, n, p.Limit+by)
			}
		}
	}
}

// each calls test with what was admitted and wanted in each window of a length, in order.
func (f *fleet) each(length time.Duration, from, to int, test func(i, admitted, asked int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := int64(1) << 62
	for w := range f.asked {
		if w.length == length {
			first = min(first, w.number)
		}
	}
	for i := from; i < to; i++ {
		w := at{length, first + int64(i)}
		test(i, f.admitted[w], f.asked[w])
	}
}

// link is the way of one gateway to Redis. What it carries comes late, and what a gateway has
// given up may come after what it asked for next.
type link struct {
	redis *embedded.Redis
	conns sync.WaitGroup

	mu    sync.Mutex
	delay time.Duration // guarded by mu; of each direction
	ahead time.Duration // guarded by mu; Redis's clock of the test's, if it is set
}

func (l *link) set(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *link) now() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// skew sets how far Redis's clock is ahead, whenever it is asked for.
func (l *link) skew(ahead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead = ahead
}

// arrive is called right before Redis reads a request. Its clock stands still between these.
func (l *link) arrive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ahead != 0 {
		l.redis.Mini.SetTime(time.Now().Add(l.ahead))
	}
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	server, err := l.redis.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	l.conns.Go(func() { l.carry(server, far, l.arrive) })
	l.conns.Go(func() { l.carry(far, server, func() {}) })
	return near, nil
}

// carry copies with a delay. It ends both when one side has ended, and when all is carried.
func (l *link) carry(to io.WriteCloser, from io.ReadCloser, arrive func()) {
	type late struct {
		text []byte
		at   time.Time
	}
	queue := make(chan late, 1000)
	var writes sync.WaitGroup
	writes.Go(func() {
		for p := range queue {
			time.Sleep(time.Until(p.at))
			arrive()
			if _, err := to.Write(p.text); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	})
	for text := make([]byte, 64<<10); ; {
		n, err := from.Read(text)
		if n > 0 {
			queue <- late{append([]byte(nil), text[:n]...), time.Now().Add(l.now())}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	writes.Wait()
}

// embeddedRedis is one whose clock the test sets, and a client of it.
func embeddedRedis(t *testing.T) (*embedded.Redis, shards.Client) {
	t.Helper()
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	return redis, shardstest.Connect(t, redis.Addr())
}
