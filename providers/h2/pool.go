package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// Pool is a set of connections to one server. All its methods may be called
// at once from several goroutines. It must be closed.
type Pool struct {
	opt   Options
	host  string // for :authority
	name  string // host without port
	port  string
	queue *queue
	dials *dialer
	calm  calm
	pings pings

	stop     context.Context // over when no new connection is opened
	stopNow  context.CancelFunc
	keepers  sync.WaitGroup // goroutines of slots and their connections
	sweeper  sync.WaitGroup
	sweepEnd chan struct{}
	closing  sync.Once
	ending   sync.Once

	stats    counters
	troubles troubles

	// mu guards conns. It is never taken under another lock, nor another one
	// under it, except for a conn's.
	mu    sync.Mutex
	conns []*conn // all that are not over
}

type counters struct {
	dials, dialFailures, resent, goAways atomic.Int64
}

// Stats are counters of a Pool since its start, and its present state.
type Stats struct {
	Dials, DialFailures int64 // since the start
	Resent              int64 // requests sent again at once, since the start
	GoAways             int64 // that came, since the start
	Calms               int64 // times the server made us slow down, since the start
	Connections         int64 // open now
	Granted             int64 // requests that these may have in flight together
	InFlight            int64 // on a connection and not answered
	Waiting             int   // in all lanes
	Trouble             Trouble
}

// NewPool checks the options and starts the pool. It does not wait for a
// connection, and opens none before there is a request.
func NewPool(opt Options) (*Pool, error) {
	opt.setDefaults()
	u, err := opt.check()
	if err != nil {
		return nil, fmt.Errorf("making HTTP/2 pool: %w", err)
	}
	p := &Pool{opt: opt, host: u.Host, name: u.Hostname(), port: u.Port(), queue: newQueue(opt.Lanes), sweepEnd: make(chan struct{})}
	if p.port == "" {
		p.port = "443"
	}
	p.troubles.begin(p.opt.Log)
	p.dials = newDialer(&p.opt, &p.calm, p.name, p.port)
	p.stop, p.stopNow = context.WithCancel(context.Background())
	for range opt.Connections {
		p.keepers.Go((&slot{pool: p, waiter: newWaiter()}).keep)
	}
	p.sweeper.Go(p.sweep)
	return p, nil
}

// streamWindow is how much of an answer the server may send before we
// acknowledge it, which we never do: a longer one is cut.
func (p *Pool) streamWindow() int { return max(p.opt.MaxAnswer+maxFrame, firstWindow) }

// adopt adds a connection, unless the pool is closed.
func (p *Pool) adopt(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop.Err() != nil {
		return false
	}
	p.conns = append(p.conns, c)
	return true
}

func (p *Pool) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.conns, c); i >= 0 {
		p.conns = slices.Delete(p.conns, i, i+1)
	}
}

// all appends the connections to buf.
func (p *Pool) all(buf []*conn) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(buf, p.conns...)
}

// Submit takes requests over in order and queues them in a lane, which is an
// index into Options.Lanes. It blocks while the lane is full. It returns how
// many it took; when that is not all, the error says why: ctx ended, or
// ErrClosed. What it did not take is the caller's as before.
//
// Each request that was taken is handed to done exactly once, in groups of any
// size and order, one call at a time per Submit. done runs on the pool's
// goroutines, must not block, and owns the slice only during the call.
//
// A malformed request is taken and handed back as NotAccepted, ErrMalformed.
func (p *Pool) Submit(ctx context.Context, lane int, rs []*Request, done func([]*Request)) (int, error) {
	return p.SubmitTo(ctx, lane, rs, NewGroup(done))
}

// SubmitTo is Submit with a group that the caller keeps: it allocates nothing.
// One call at a time then means per group.
func (p *Pool) SubmitTo(ctx context.Context, lane int, rs []*Request, g *Group) (int, error) {
	latest := time.Now().Add(p.opt.Timeout)
	start := 0
	var before *Request // the latest that is well-formed
	for i, r := range rs {
		if i%stretch == 0 {
			aheadToCheck(rs[i:min(i+stretch, len(rs))])
		}
		r.Outcome, r.Err, r.Conn, r.tries, r.lane, r.over, r.group = Unfinished, nil, 0, 0, lane, nil, g
		if r.until = r.Deadline; r.until.IsZero() {
			r.until = latest
		}
		err := check(r, before)
		if err == nil {
			before = r
		} else {
			n, pushErr := p.queue.push(ctx, lane, rs[start:i])
			if pushErr != nil {
				return start + n, pushErr
			}
			start, before = i+1, nil // queued requests are no longer ours to read
			r.settle(NotAccepted, err)
			giveBack(r)
		}
	}
	n, err := p.queue.push(ctx, lane, rs[start:])
	return start + n, err
}

// giveBack hands back a single request.
func giveBack(r *Request) {
	if g := r.group; g.add(r) {
		g.flush()
	}
}

// Resend sends a request again that was just handed to done, which calls this
// instead of keeping it; the pool owns it again, and it comes back through the
// same done. It does not block. With retire, the connection that it went over
// takes no new request and closes when the others on it are done.
//
// The caller bounds how often it does that. Outcome, answer and error are
// reset, Expires and Deadline stay.
func (p *Pool) Resend(r *Request, retire bool) {
	if retire && r.over != nil {
		r.over.Retire()
	}
	r.Outcome, r.Err = Unfinished, nil
	err := check(r, nil)
	if err == nil {
		p.stats.resent.Add(1)
		if p.queue.putBack(r) {
			return
		}
		err = ErrClosed
	}
	r.settle(NotAccepted, err)
	giveBack(r)
}

// Retire takes the connection that an answered request went over out of use;
// other requests in flight on it may still be answered.
func (p *Pool) Retire(r *Request) {
	if r.over != nil {
		r.over.Retire()
	}
}

// Stats returns the pool's counters.
func (p *Pool) Stats() Stats {
	s := Stats{
		Dials: p.stats.dials.Load(), DialFailures: p.stats.dialFailures.Load(),
		Resent: p.stats.resent.Load(), GoAways: p.stats.goAways.Load(), Calms: p.calm.complaints(),
		Waiting: p.queue.len(), Trouble: p.troubles.latest(),
	}
	for _, c := range p.all(nil) {
		c.mu.Lock()
		s.Connections++
		s.Granted += int64(c.granted())
		s.InFlight += int64(c.live)
		c.mu.Unlock()
	}
	return s
}

// Close ends the pool. What waits is handed back NotAccepted with ErrClosed.
// What is in flight is waited for until ctx ends; then the connections are cut
// and the rest is handed back as it is then known. When Close returns, all
// requests are handed back and no goroutine is left. It returns ctx's error if
// connections were cut. It may be called again.
func (p *Pool) Close(ctx context.Context) error {
	p.closing.Do(func() {
		left := p.queue.close()
		p.mu.Lock()
		p.stopNow() // under mu: what adopt has let in is in conns
		p.mu.Unlock()
		for _, r := range left {
			r.settle(NotAccepted, ErrClosed)
			giveBack(r)
		}
		for _, c := range p.all(nil) {
			c.Retire()
		}
	})
	idle := make(chan struct{})
	var waiter sync.WaitGroup
	waiter.Go(func() {
		p.keepers.Wait()
		close(idle)
	})
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = context.Cause(ctx)
		for _, c := range p.all(nil) {
			c.cut()
		}
	}
	waiter.Wait()
	p.ending.Do(func() { close(p.sweepEnd) })
	p.sweeper.Wait()
	return err
}

// stoodStill is how late a sweep must be to put itself off once: the process was
// suspended, and answers that have arrived meanwhile are for the readers first.
const stoodStill = time.Second

// sweep handles what depends on time, in the queue and on every connection.
func (p *Pool) sweep() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	var (
		late  []*Request
		conns []*conn
		h     handback
		last  = time.Now() // when it swept, or put it off
		off   bool         // it was put off
	)
	for {
		select {
		case <-p.sweepEnd:
			return
		case now := <-tick.C:
			off, last = !off && now.Sub(last) > stoodStill, now
			if off {
				continue
			}
			conns = p.all(conns[:0])
			late = p.queue.overdue(now, p.opt.Lease, late[:0])
			for _, r := range late {
				p.expire(&h, r, now, len(conns) > 0)
			}
			more := p.calm.sweep(now)
			for _, c := range conns {
				c.sweep(now, more, &h)
			}
			clear(late)
			clear(conns)
			h.flush()
		}
	}
}

// expire hands back a request that waited too long.
func (p *Pool) expire(h *handback, r *Request, now time.Time, connected bool) {
	outcome, why, stale := p.stale(r, now)
	switch {
	case !stale:
		outcome, why = NotAccepted, ErrLeaseLapsed // renewed since it was taken out
	case why == ErrDeadline && !connected:
		why = ErrNotConnected
	}
	if r.over == nil {
		r.Conn = uint32(p.stats.dials.Load())
	}
	r.settle(outcome, why)
	h.add(r)
}

// lease returns the lease that r is sent under, or nil.
func (p *Pool) lease(r *Request) Lease {
	if r.Lease != nil {
		return r.Lease
	}
	return p.opt.Lease
}

// stale reports whether r must not be sent any more, and how it is given back.
func (p *Pool) stale(r *Request, now time.Time) (Outcome, error, bool) {
	switch l := p.lease(r); {
	case !r.Expires.IsZero() && now.After(r.Expires):
		return ExpiredUnsent, nil, true
	case now.After(r.until):
		return NotAccepted, ErrDeadline, true
	case l != nil && l.Lapsed(now):
		return NotAccepted, ErrLeaseLapsed, true
	}
	return Unfinished, nil, false
}

// again resends a request that was not accepted, or hands it back. It is called
// with a conn's mu held.
func (p *Pool) again(h *handback, r *Request) {
	left, told := errors.AsType[*GoAwayError](r.Err)
	asIs := !told || !p.opt.Outdated(left.Reason)
	if asIs && r.tries <= p.opt.Resends && time.Now().Before(r.until) && p.queue.putBack(r) {
		p.stats.resent.Add(1)
		return
	}
	h.add(r)
}

// resetHeader empties the values of an answer, and keeps their memory.
func (p *Pool) resetHeader(a *Answer) {
	n := len(p.opt.AnswerHeaders)
	a.Header = slices.Grow(a.Header[:0], n)[:n]
	for i, v := range a.Header {
		if len(v) > 0 {
			a.Header[i] = v[:0]
		}
	}
}

// goneAway counts a GOAWAY, and does what it asks for. debug is what came with
// it.
func (p *Pool) goneAway(code http2.ErrCode, debug []byte) {
	p.stats.goAways.Add(1)
	if code != http2.ErrCodeEnhanceYourCalm {
		return
	}
	if bytes.Contains(debug, []byte("too_many_pings")) {
		p.pings.tooMany()
	}
	p.Calm()
}
