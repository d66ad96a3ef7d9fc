//go:build linux

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// spec is the work of one process of callers.
type spec struct {
	Address     string // host:port of the gateway
	Key         string
	Kind        string
	Connections int
	WarmUp      time.Duration
	Measure     time.Duration
	Rate        float64  // requests a second, whether those before are answered or not; 0 = each connection when it is answered
	Lines       int      // of a batch, and receipts of a query
	Receipts    []string // to query for
	Keep        int      // receipts to hand back
}

// Sent is a message of which the caller has a receipt.
type sent struct{ Receipt, User string }

// event is what a process of callers tells: that what counts begins and ends, and then the
// figures.
type event struct {
	Begins, Ends bool
	Figures      *callerFigures
	Failed       string
}

// callerFigures are what the callers saw.
type callerFigures struct {
	Requests int64    // answered in the time that counts
	Messages int64    // acknowledged in all
	P50, P99 *float64 // ms
	Kept     []sent
}

// Call is the whole of a process of callers: it reads what to do from in, and tells out.
// Callers stay until in ends: idle connections stay open, and what the process has used can
// be asked for.
func Call(ctx context.Context, in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(in)
	var s spec
	if err := dec.Decode(&s); err != nil {
		return fmt.Errorf("reading what to call: %w", err)
	}
	tell := json.NewEncoder(out)
	c, err := newCallers(&s, func(e event) error { return tell.Encode(e) })
	if err != nil {
		return err
	}
	defer c.close()
	f, err := c.run(ctx)
	if err != nil {
		return errors.Join(err, tell.Encode(event{Failed: err.Error()}))
	}
	if s.Kind == idle {
		err = c.tell(event{Begins: true})
	}
	return errors.Join(err, c.tell(event{Figures: f}), stay(ctx, in))
}

// stay waits until in or ctx ends.
func stay(ctx context.Context, in io.Reader) error {
	ended := make(chan error, 1) // of the goroutine, which ends with the process at the latest
	go func() {
		_, err := io.Copy(io.Discard, in)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// callers are connections that one thread serves with epoll, so that a request costs
// little but its system calls.
type callers struct {
	spec *spec
	tell func(event) error
	to   syscall.SockaddrInet4

	epoll   int
	all     []*connection
	byFD    map[int32]*connection
	free    []*connection // without a request
	queries []*request
	n       numbers
	buffer  []byte // that answers are read into

	started int64 // requests
	open    int   // requests under way
	figures callerFigures
	counts  bool    // answers count now
	took    []int32 // us of those that count
}

// connection is one to the gateway; it has one request under way at the most.
type connection struct {
	fd      int
	request *request
	left    []byte    // of the request, to be written
	began   time.Time // when the request was due
	counts  bool      // and whether it was in the time that counts
	answer  answer
	busy    bool
}

func newCallers(s *spec, tell func(event) error) (*callers, error) {
	at, err := netip.ParseAddrPort(s.Address)
	if err != nil || !at.Addr().Is4() {
		return nil, fmt.Errorf("address %q: want an IPv4 address and a port", s.Address)
	}
	c := &callers{spec: s, tell: tell, to: syscall.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}, byFD: make(map[int32]*connection),
		n: numbers{run: uint16(rand.Uint32())}, buffer: make([]byte, readSize)}
	if s.Kind == query {
		if c.queries = newQueries(s.Key, s.Receipts, s.Lines); len(c.queries) == 0 {
			return nil, errors.New("there are no receipts to query for")
		}
	}
	if c.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return c, nil
}

func (c *callers) close() {
	for _, conn := range c.all {
		_ = syscall.Close(conn.fd)
	}
	_ = syscall.Close(c.epoll)
}

// connect opens one more connection.
func (c *callers) connect() (*connection, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	conn := &connection{fd: fd}
	c.all = append(c.all, conn)
	c.byFD[int32(fd)] = conn
	if err := syscall.Connect(fd, &c.to); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", c.spec.Address, err)
	}
	if err := errors.Join(syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1), syscall.SetNonblock(fd, true)); err != nil {
		return nil, fmt.Errorf("setting up a connection: %w", err)
	}
	// Each change is told once, writable or readable: what is told is used up.
	const edge = 1 << 31 // EPOLLET, which package syscall has as a negative number
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | edge, Fd: int32(fd)}
	if err := syscall.EpollCtl(c.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	if c.spec.Kind != query {
		conn.request = newRequest(c.spec.Kind, c.spec.Key, c.spec.Lines)
	}
	return conn, nil
}

// mostStarting is how many of many connections have their first request under way at
// once.
const mostStarting = 256

// patience is how long callers wait for what is under way when they have ended.
const patience = 2 * slow

// run calls until the time is over and all is answered.
func (c *callers) run(ctx context.Context) (*callerFigures, error) {
	if c.spec.Kind == idle {
		return &c.figures, c.visit(ctx)
	}
	for range c.spec.Connections {
		conn, err := c.connect()
		if err != nil {
			return nil, err
		}
		c.free = append(c.free, conn)
	}
	start := time.Now()
	from := start.Add(c.spec.WarmUp)
	to := from.Add(c.spec.Measure)
	for {
		now := time.Now()
		if !c.counts && !now.Before(from) && now.Before(to) {
			c.counts = true
			if err := c.tell(event{Begins: true}); err != nil {
				return nil, err
			}
		}
		if c.counts && !now.Before(to) {
			c.counts = false
			if err := c.tell(event{Ends: true}); err != nil {
				return nil, err
			}
		}
		over := !now.Before(to)
		if over && c.open == 0 {
			break
		}
		if now.After(to.Add(patience)) {
			return nil, fmt.Errorf("%d requests were not answered in %v", c.open, patience)
		}
		if !over {
			if err := c.startDue(start, now); err != nil {
				return nil, err
			}
		}
		if err := c.poll(ctx); err != nil {
			return nil, err
		}
	}
	c.figures.P50, c.figures.P99 = quantile(c.took, 0.5), quantile(c.took, 0.99)
	return &c.figures, nil
}

// visit opens all connections and has one request answered on each.
func (c *callers) visit(ctx context.Context) error {
	for c.started < int64(c.spec.Connections) || c.open > 0 {
		for c.started < int64(c.spec.Connections) && c.open < mostStarting {
			conn, err := c.connect()
			if err == nil {
				err = c.start(conn, time.Now())
			}
			if err != nil {
				return err
			}
		}
		if err := c.poll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startDue starts the requests whose time has come on connections that are free.
func (c *callers) startDue(start, now time.Time) error {
	for len(c.free) > 0 {
		due := now
		if c.spec.Rate > 0 {
			if due = start.Add(time.Duration(float64(c.started) / c.spec.Rate * float64(time.Second))); due.After(now) {
				return nil
			}
		}
		// By turns: the gateway ends a connection on which nothing comes.
		conn := c.free[0]
		c.free = c.free[1:]
		if err := c.start(conn, due); err != nil {
			return err
		}
	}
	return nil
}

// start begins a request that was due at a time.
func (c *callers) start(conn *connection, due time.Time) error {
	if c.spec.Kind == query {
		conn.request = c.queries[c.started%int64(len(c.queries))]
	} else {
		c.n.fill(conn.request, time.Now())
	}
	c.started++
	c.open++
	conn.left, conn.began, conn.counts, conn.busy = conn.request.text, due, c.counts, true
	conn.answer.reset()
	return conn.write()
}

// write writes what can be written.
func (conn *connection) write() error {
	for len(conn.left) > 0 {
		n, err := syscall.Write(conn.fd, conn.left)
		switch {
		case err == nil:
			conn.left = conn.left[n:]
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case !errors.Is(err, syscall.EINTR):
			return os.NewSyscallError("writing a request", err)
		}
	}
	return nil
}

// pollTime is how long it waits for something to happen: what is due is looked at so
// often.
const pollTime = time.Millisecond

// poll serves the connections on which something has happened.
func (c *callers) poll(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var events [256]syscall.EpollEvent
	n, err := syscall.EpollWait(c.epoll, events[:], int(pollTime/time.Millisecond))
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return os.NewSyscallError("epoll_wait", err)
	}
	now := time.Now()
	for _, e := range events[:max(n, 0)] {
		conn := c.byFD[e.Fd]
		if err := conn.write(); err != nil {
			return err
		}
		if e.Events&^syscall.EPOLLOUT == 0 {
			continue
		}
		if err := c.read(conn, now); err != nil {
			return err
		}
	}
	return nil
}

// readSize is how much is read at once.
const readSize = 256 << 10

// read reads what has come.
func (c *callers) read(conn *connection, now time.Time) error {
	for {
		a := &conn.answer
		n, err := syscall.Read(conn.fd, c.buffer)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("reading an answer", err)
		case n == 0:
			return fmt.Errorf("the gateway has closed a connection with %d bytes of an answer", len(a.text))
		case !conn.busy:
			return fmt.Errorf("an answer that nobody asked for: %.300q", c.buffer[:n])
		}
		a.text = append(a.text, c.buffer[:n]...)
		whole, err := a.whole()
		if err != nil {
			return err
		}
		if whole {
			return c.answered(conn, now)
		}
		if n < len(c.buffer) {
			return nil // there is no more now
		}
	}
}

// answered ends a request.
func (c *callers) answered(conn *connection, now time.Time) error {
	if err := conn.answer.check(c.spec.Kind, c.spec.Lines); err != nil {
		return err
	}
	c.figures.Messages += int64(len(conn.request.ids))
	if c.counts {
		c.figures.Requests++
		if conn.counts {
			c.took = append(c.took, int32(now.Sub(conn.began)/time.Microsecond))
		}
	}
	if c.spec.Kind == batch && len(c.figures.Kept) < c.spec.Keep {
		c.keep(conn)
	}
	conn.busy = false
	c.open--
	if c.spec.Kind == idle {
		conn.request, conn.answer = nil, answer{} // there are many, and this was all
		return nil
	}
	c.free = append(c.free, conn)
	return nil
}

// keep keeps the receipts of a batch.
func (c *callers) keep(conn *connection) {
	for i, r := range conn.answer.receipts() {
		if i < len(conn.request.users) && len(c.figures.Kept) < c.spec.Keep {
			at := conn.request.users[i] - len("u")
			c.figures.Kept = append(c.figures.Kept, sent{r, string(conn.request.text[at : at+len("u")+userDigits])})
		}
	}
}

// quantile is the time, in ms, that a part of all took at the most; nil = there are none.
func quantile(us []int32, part float64) *float64 {
	if len(us) == 0 {
		return nil
	}
	slices.Sort(us)
	ms := float64(us[min(len(us)-1, int(float64(len(us))*part))]) / 1000
	return &ms
}
