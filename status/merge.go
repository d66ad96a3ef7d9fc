package status

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// ErrClosed is what calls get from a store that has been closed.
var ErrClosed = errors.New("status store is closed")

// executor sends the rows of one bucket to the server, once, and must not keep
// them after it returns.
type executor interface {
	insert(ctx context.Context, bucket int64, rows *encodedRows) error
}

// mergeOptions are the limits of a merger.
type mergeOptions struct {
	rows        int           // a batch is full at this many rows
	bytes       int           // or at this many bytes of values
	linger      time.Duration // from a batch's first row to its sending
	lingering   int           // rows that linger at most; beyond it, what is due next goes
	concurrency int           // full batches in flight at once, or as much in smaller ones
	timeout     time.Duration // of one attempt
	packed      bool          // what a row says besides its key goes as one value
	backoff     push.Backoff
}

// merger turns the rows of many concurrent calls into batches of one bucket.
//
// A batch lingers (in fresh) until it is full or its time is up, is then
// ready, takes more rows for as long as no worker has come for it, and after a
// failure goes to failed for its back-off. So one bucket whose replicas
// are down holds up neither the workers nor the other buckets.
type merger struct {
	opts    mergeOptions
	bucket  func(id string) int64
	exec    executor
	metrics *metrics
	place   string       // where the rows go, for errors
	trouble func() error // how the store's latest request failed, if it did

	ctx   context.Context // ends at close
	stop  context.CancelFunc
	wake  chan struct{} // the head of fresh or failed has changed
	owned sync.WaitGroup

	mu        sync.Mutex
	work      sync.Cond // on mu: ready or flow has changed, or ctx has ended
	open      map[int64]*batch
	fresh     dueHeap  // lingering
	lingering int      // rows in fresh
	failed    dueHeap  // in their back-off
	ready     []*batch // waiting, in order
	flow      flow
	free      []*batch
}

// call is one Write in progress. Its fields are guarded by the merger's mutex.
type call struct {
	left      int   // rows not yet acknowledged
	last      error // of the last attempt at any of its rows
	abandoned bool  // its caller has given up
	prompt    bool  // pushes wait for it
	done      chan struct{}
}

// share says how many rows of a batch belong to a call.
type share struct {
	call *call
	rows int
}

// batch holds rows of one bucket until they are durable. It is guarded by the
// merger's mutex until a worker takes it; then it belongs to the worker.
type batch struct {
	bucket   int64
	rows     encodedRows
	shares   []share
	attempts int
	prompt   bool // it has a row of a prompt call
	due      time.Time
	index    int // in fresh or failed; -1 = in neither
}

func newMerger(opts mergeOptions, bucket func(string) int64, exec executor, m *metrics, place string, trouble func() error) *merger {
	ctx, stop := context.WithCancel(context.Background())
	g := &merger{
		opts: opts, bucket: bucket, exec: exec, metrics: m, place: place, trouble: trouble,
		ctx: ctx, stop: stop, wake: make(chan struct{}, 1),
		open: make(map[int64]*batch), flow: newFlow(opts.concurrency),
	}
	g.work.L = &g.mu
	m.concurrency.Set(float64(opts.concurrency))
	g.owned.Go(g.runClock)
	for range opts.concurrency * fullWeight {
		g.owned.Go(g.runWorker)
	}
	return g
}

// close ends everything in progress and waits for it. Calls in progress get
// ErrClosed; any of their rows may be durable.
func (g *merger) close() {
	g.stop()
	g.mu.Lock()
	g.work.Broadcast()
	g.mu.Unlock()
	g.owned.Wait()
}

// write adds the rows to the batches of their buckets and waits until all are
// durable. It keeps nothing of rows after it returns.
func (g *merger) write(ctx context.Context, rows []push.Row) error {
	return g.add(ctx, rows, false)
}

// add is write. Prompt rows linger for 10 ms at the most.
func (g *merger) add(ctx context.Context, rows []push.Row, prompt bool) error {
	if len(rows) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing %d status rows to %s: %w", len(rows), g.place, err)
	}
	c := &call{left: len(rows), prompt: prompt, done: make(chan struct{})}
	for rest := rows; len(rest) > 0; {
		n := min(push.Stretch/2, len(rest))
		for n < min(push.Stretch/2+together, len(rest)) && rest[n].ID == rest[n-1].ID {
			n++
		}
		g.admit(c, rest[:n])
		rest = rest[n:]
		runtime.Gosched() // as push.Yielding does, without the lock
	}
	select {
	case <-c.done:
		return nil
	case <-g.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return g.abandon(ctx, c, len(rows))
	}
}

// together is how many rows of an id that follow each other in a call are in one batch, at the
// least, as long as a row has no more than 1 KiB: of these a worker that dies has written all or
// none, as a batch is of one partition, whose mutation is atomic.
const together = 64

// full reports whether a batch takes no more rows. same = the next one is of the id of its last.
func (g *merger) full(b *batch, same bool) bool {
	if same && b.rows.len() < g.opts.rows+together && len(b.rows.data) < g.opts.bytes+together<<10 {
		return false
	}
	return b.rows.len() >= g.opts.rows || len(b.rows.data) >= g.opts.bytes
}

// admit encodes some of a call's rows into the batches of their buckets. All calls wait
// for each other here, so they are not many at a time.
func (g *merger) admit(c *call, rows []push.Row) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b *batch
	for i := range rows {
		r := &rows[i]
		bucket := g.bucket(r.ID)
		if b == nil || b.bucket != bucket {
			b = g.batchOf(bucket)
		}
		b.add(c, r)
		if b.lingers() {
			g.lingering++
			if c.prompt {
				g.hasten(b)
			}
		}
		if g.full(b, false) && (i+1 == len(rows) || g.full(b, rows[i+1].ID == r.ID)) {
			g.fill(b)
			b = nil
		}
	}
	g.ripen()
	g.metrics.unacknowledged.Add(float64(len(rows)))
}

// abandon gives a call up: its caller's context has ended. The error says how
// the rows failed or, if they may not have been sent at all, how others did.
func (g *merger) abandon(ctx context.Context, c *call, rows int) error {
	trouble := g.trouble()
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.left == 0 {
		return nil
	}
	c.abandoned = true
	g.sweep()
	last := c.last
	if last == nil {
		last = trouble
	}
	if last != nil {
		return fmt.Errorf("writing %d status rows to %s: %w after: %w", rows, g.place, context.Cause(ctx), last)
	}
	return fmt.Errorf("writing %d status rows to %s: no answer: %w", rows, g.place, context.Cause(ctx))
}

// sweep drops the batches that no caller waits for any more. Callers that give
// up come again with the same rows: without sweep these would pile up for as
// long as a server hangs.
func (g *merger) sweep() {
	g.fresh = g.sweepTimers(g.fresh)
	g.failed = g.sweepTimers(g.failed)
	kept := g.ready[:0]
	for _, b := range g.ready {
		if b.wanted() {
			kept = append(kept, b)
		} else {
			g.drop(b)
		}
	}
	clear(g.ready[len(kept):])
	g.ready = kept
}

// sweepTimers is sweep for batches that wait for their time.
func (g *merger) sweepTimers(h dueHeap) dueHeap {
	kept := h[:0]
	for _, b := range h {
		if b.wanted() {
			b.index = len(kept)
			kept = append(kept, b)
		} else {
			g.uncount(b)
			g.drop(b)
		}
	}
	clear(h[len(kept):])
	heap.Init(&kept)
	return kept
}

// drop releases a batch that no worker has.
func (g *merger) drop(b *batch) {
	if g.open[b.bucket] == b {
		delete(g.open, b.bucket)
	}
	g.release(b)
}

// batchOf is the batch of a bucket that takes rows, new if there is none.
func (g *merger) batchOf(bucket int64) *batch {
	if b := g.open[bucket]; b != nil {
		return b
	}
	var b *batch
	if n := len(g.free); n > 0 {
		b, g.free = g.free[n-1], g.free[:n-1]
	} else {
		b = &batch{rows: encodedRows{packed: g.opts.packed}}
	}
	b.bucket, b.attempts, b.prompt = bucket, 0, false
	g.open[bucket] = b
	g.schedule(b, g.opts.linger)
	return b
}

func (b *batch) add(c *call, r *push.Row) {
	b.rows.append(r)
	if n := len(b.shares); n > 0 && b.shares[n-1].call == c {
		b.shares[n-1].rows++
		return
	}
	b.shares = append(b.shares, share{c, 1})
}

// wanted reports whether any caller still waits for the batch.
func (b *batch) wanted() bool {
	for i := range b.shares {
		if !b.shares[i].call.abandoned {
			return true
		}
	}
	return false
}

// fill closes a full batch to more rows and makes it ready.
func (g *merger) fill(b *batch) {
	delete(g.open, b.bucket)
	if b.index >= 0 {
		g.ripe(b)
	}
}

func (g *merger) push(b *batch) {
	g.ready = append(g.ready, b)
	g.work.Signal()
}

// runClock makes batches ready when their time is up.
func (g *merger) runClock() {
	for {
		select {
		case <-time.After(g.expire()):
		case <-g.wake:
		case <-g.ctx.Done():
			return
		}
	}
}

func (g *merger) runWorker() {
	for {
		b, mark, ok := g.take()
		if !ok {
			return
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(g.ctx, g.opts.timeout)
		err := g.exec.insert(ctx, b.bucket, &b.rows)
		cancel()
		f := classify(err)
		g.metrics.observe(f, b.rows.len(), time.Since(start))
		g.finish(b, mark, f, err)
	}
}

// weight is the weight of a batch in the flow.
func (g *merger) weight(b *batch) int {
	return max(weightOf(b.rows.len(), g.opts.rows), weightOf(len(b.rows.data), g.opts.bytes))
}

// take waits for a ready batch and a place in the flow, and wakes the next
// worker while there is more of both.
func (g *merger) take() (b *batch, mark int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if g.ctx.Err() != nil {
			return nil, 0, false
		}
		if !g.workable() {
			g.work.Wait()
			continue
		}
		b = g.ready[0]
		g.ready[0], g.ready = nil, g.ready[1:]
		if g.open[b.bucket] == b {
			delete(g.open, b.bucket)
		}
		mark = g.flow.start(g.weight(b))
		if g.workable() {
			g.work.Signal()
		}
		return b, mark, true
	}
}

// workable reports whether there is a ready batch and a place for it.
func (g *merger) workable() bool {
	return len(g.ready) > 0 && g.flow.fits(g.weight(g.ready[0]))
}

// finish acknowledges the rows of a batch, or puts it back for another attempt.
func (g *merger) finish(b *batch, mark int, f failure, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flow.end(g.weight(b), mark, f)
	g.metrics.concurrency.Set(float64(g.flow.limit) / fullWeight)
	if err == nil {
		for _, s := range b.shares {
			if s.call.left -= s.rows; s.call.left == 0 {
				close(s.call.done)
			}
		}
		g.release(b)
		return
	}
	for _, s := range b.shares {
		s.call.last = err
	}
	if !b.wanted() {
		g.release(b)
		return
	}
	b.attempts++
	g.schedule(b, g.opts.backoff.After(b.attempts))
}

// freeBatches bounds the memory kept for later batches: about 40 KiB each.
const freeBatches = 64

// release removes a batch and keeps its memory for another.
func (g *merger) release(b *batch) {
	g.metrics.unacknowledged.Sub(float64(b.rows.len()))
	if len(g.free) == freeBatches {
		return
	}
	clear(b.shares)
	b.shares = b.shares[:0]
	b.rows.reset()
	g.free = append(g.free, b)
}
