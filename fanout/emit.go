package fanout

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Emitter is stage 2, of one lane: it makes the lane's records of each chunk. It is safe
// for concurrent use.
type Emitter struct {
	Options
	window *window
	pace   *pace
	pages  sync.Pool // of *page

	mu    sync.Mutex
	open  map[place]chan struct{} // guarded by mu; chunks at work here; each is closed when its work is over
	spent map[string]time.Time    // guarded by mu; until when a sender is not asked for of whom nothing was left
}

// place names a chunk.
type place struct {
	message uuid.UUID
	part    int
}

// NewEmitter makes the second stage of a lane.
func NewEmitter(lane string, o Options) *Emitter {
	return &Emitter{Options: o, open: make(map[place]chan struct{}), spent: make(map[string]time.Time), window: newWindow(&o.Limits), pace: newPace(lane, o.Lag, &o.Limits),
		pages: sync.Pool{New: func() any { return new(page) }}}
}

// errCancelled and errLeaving are why a chunk stops before its end.
var (
	errCancelled = errors.New("the message is cancelled")
	errLeaving   = errors.New("another process goes on with the chunk")
	errTokenless = errors.New("the message has click tokens, and this process signs none: set gateway.clicks as gateways have it")
)

// Do does the work of one record of the lane's ChunksTopic. With nil all that follows
// from it is durable; with an error it must be done again, with the same ids.
func (e *Emitter) Do(ctx context.Context, w *Work) error {
	c, err := DecodeChunk(w.Value)
	if err != nil {
		return dead(ctx, e.Producer, e.Metrics, e.Log, w, err)
	}
	over, err := e.alone(ctx, c, w.Leaving)
	if err != nil {
		return err
	}
	defer over()
	ended, err := e.Notes.Ended(ctx, c.Message, c.Part)
	if err != nil {
		return fmt.Errorf("looking whether a chunk has ended: %w", err)
	}
	if ended { // and the one that follows it is there: that comes first
		e.Metrics.chunk(c.Lane, "ended_before")
		return nil
	}
	if err := e.begin(ctx, c, w.Leaving); err != nil {
		return e.stop(ctx, c, &c.Done, false, err)
	}
	done, err := e.emit(ctx, c, w.Leaving)
	if err != nil {
		return e.stop(ctx, c, done, true, err)
	}
	if next := c.Part + cmp.Or(c.Open, e.Limits.Open); next < c.To.Parts {
		if err := put(ctx, e.Producer, (&Chunk{Job: c.Job, Part: next}).record(ChunksTopic(c.Lane))); err != nil {
			return err
		}
	}
	return e.end(ctx, c, &done.Counts, "ended")
}

// alone waits until no copy of the chunk is at work here. Whoever dies may leave one, and
// they are in one partition: side by side each would produce a copy of the next chunk too.
func (e *Emitter) alone(ctx context.Context, c *Chunk, leaving <-chan struct{}) (over func(), err error) {
	at := place{c.Message, c.Part}
	for {
		e.mu.Lock()
		other := e.open[at]
		if other == nil {
			own := make(chan struct{})
			e.open[at] = own
			e.mu.Unlock()
			return func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				delete(e.open, at)
				close(own)
			}, nil
		}
		e.mu.Unlock()
		select {
		case <-other:
		case <-leaving:
			return nil, errLeaving
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin waits until the lane's workers have caught up.
func (e *Emitter) begin(ctx context.Context, c *Chunk, leaving <-chan struct{}) error {
	for {
		if err := e.may(ctx, c, leaving); err != nil {
			return err
		}
		behind, err := e.pace.behind(ctx, leaving)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLeaving):
			return err
		case err != nil:
			return fmt.Errorf("asking how far lane %s is: %w", c.Lane, err)
		case !behind:
			return nil
		}
		e.Metrics.waits.WithLabelValues(c.Lane).Inc()
		select {
		case <-leaving:
			return errLeaving
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// may says why a chunk may not go on; nil = it may.
func (e *Emitter) may(ctx context.Context, c *Chunk, leaving <-chan struct{}) error {
	select {
	case <-leaving:
		return errLeaving
	default:
	}
	state, err := e.Notes.State(ctx, c.Message)
	switch {
	case err != nil:
		return fmt.Errorf("reading the state of a message: %w", err)
	case state == Paused:
		return errPaused
	case state == Cancelled:
		return errCancelled
	}
	return nil
}

// emit produces the records of a chunk, page by page, and waits for the acks of all. It
// returns how far it came, of which all is acknowledged unless the error is another one
// than that of may.
func (e *Emitter) emit(ctx context.Context, c *Chunk, leaving <-chan struct{}) (*Cursor, error) {
	done := c.Done
	f := flight{producer: e.Producer}
	limit := e.pageOf(c.Job)
	var stopped error
	for {
		if stopped = e.may(ctx, c, leaving); stopped != nil {
			break
		}
		expired := c.expired(time.Now()) // nobody gets it any more: what could only be awaited for that is over
		if c.Clicks && e.Tokens == nil && !expired {
			stopped = errTokenless
			break
		}
		if e.isSpent(c.Sender) {
			stopped = errSpent
			break
		}
		members, err := e.Audience.Page(ctx, c.Job, c.Part, done.After, limit)
		if errors.Is(err, ErrNoAudience) && expired {
			e.Log.Warn("a chunk ends, as its message has expired; who else was in its audience is not counted", "message", c.Message, "part", c.Part, "error", err)
			break
		}
		if errors.Is(err, ErrNoAudience) {
			stopped = err
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading receivers: %w", err)
		}
		if len(members) == 0 {
			break
		}
		members, spent, err := e.afford(ctx, c, members, &done.Counts)
		if errors.Is(err, errUnasked) {
			stopped = err
			break
		}
		if err != nil {
			return nil, err
		}
		if len(members) == 0 {
			stopped = errSpent
			break
		}
		counts := done.Counts
		stopped, err = e.launch(ctx, c, members, &counts, &f, leaving)
		if err != nil {
			return nil, err
		}
		if stopped != nil {
			break
		}
		done.Counts = counts
		done.After = members[len(members)-1].User
		if spent {
			stopped = errSpent
			break
		}
	}
	if stopped != nil && !orderly(stopped) {
		return nil, stopped
	}
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return &done, stopped
}

// orderly reports whether a chunk that stops so can go on from where it is.
func orderly(err error) bool {
	return errors.Is(err, errPaused) || errors.Is(err, errSpent) || errors.Is(err, errUnasked) || errors.Is(err, errTokenless) || errors.Is(err, ErrNoAudience) || errors.Is(err, errCancelled) || errors.Is(err, errLeaving)
}

// pageOf is how many members of a job are read at once: no more than half of the window
// has room for.
func (e *Emitter) pageOf(j *Job) int {
	return max(1, min(e.Limits.Page, e.Limits.Records, e.Limits.Bytes/2/j.mostBytes()))
}

// page is the memory of the records of one page.
type page struct {
	text    []byte // keys and values
	records []Record
}

// launch produces the records of a page. stopped says why it has not: its chunk may not go
// on any more.
func (e *Emitter) launch(ctx context.Context, c *Chunk, members []Member, counts *Counts, f *flight, leaving <-chan struct{}) (stopped, err error) {
	if err := f.failed(); err != nil {
		return nil, fmt.Errorf("waiting for Kafka: %w", err)
	}
	p := e.pages.Get().(*page)
	p.fill(c.Job, members, counts, e.Tokens, e.Quota != nil && e.Quota.Limits(c.Sender))
	if stopped, err = e.paced(ctx, c, len(p.records), leaving); stopped != nil || err != nil {
		e.pages.Put(p)
		return stopped, err
	}
	giveBack, err := e.window.take(ctx, int64(len(p.records)), int64(len(p.text)))
	if err != nil {
		return nil, err
	}
	e.pace.produced(len(p.records))
	e.Metrics.emitted.WithLabelValues(c.Lane).Add(float64(len(p.records)))
	f.launch(p.records, func() {
		giveBack()
		e.pages.Put(p)
	})
	return nil, nil
}

// paced waits until the rate lets so many records go, or their chunk may not go on any more:
// stopped says why. A page can wait for minutes.
func (e *Emitter) paced(ctx context.Context, c *Chunk, records int, leaving <-chan struct{}) (stopped, err error) {
	for left := e.pace.reserve(records); left > 0; left -= lookEvery {
		select {
		case <-leaving:
			return errLeaving, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(left, lookEvery)):
		}
		switch err := e.may(ctx, c, leaving); {
		case err == nil:
		case orderly(err):
			return err, nil
		default:
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// fill makes the records of those members who get the message, and counts all.
func (p *page) fill(j *Job, members []Member, counts *Counts, tokens Tokens, admitted bool) {
	p.records = p.records[:0]
	p.text = p.text[:0]
	if need := len(members) * (len(j.Rest) + 256); cap(p.text) < need {
		p.text = make([]byte, 0, need)
	}
	now := time.Now()
	for i := range members {
		m := &members[i]
		if m.Passed {
			continue
		}
		if why, skipped := j.skip(m, now); skipped {
			counts.Skipped[why]++
			continue
		}
		start := len(p.text)
		p.text = append(p.text, m.User...)
		value := len(p.text)
		// If the text is moved to larger memory, earlier records keep the former one.
		p.text = j.appendRecord(p.text, m.User, m.Priority, tokens)
		p.records = append(p.records, Record{Topic: j.Topic, Partition: PartitionOf(m.User, j.Partitions), At: j.Accepted, Traceparent: j.Traceparent, Admitted: admitted,
			Key: p.text[start:value:value], Value: p.text[value:len(p.text):len(p.text)]})
		counts.Emitted++
	}
}

// stop is what becomes of a chunk that does not get to its end: done is how far it came.
func (e *Emitter) stop(ctx context.Context, c *Chunk, done *Cursor, begun bool, why error) error {
	switch {
	case errors.Is(why, errCancelled):
		counts := done.Counts
		counts.Stopped = true
		return e.end(ctx, c, &counts, "cancelled")
	case errors.Is(why, errPaused):
		return e.hold(ctx, c, done, "held")
	case errors.Is(why, errSpent):
		return e.hold(ctx, c, done, "over_limit")
	case errors.Is(why, errTokenless): // another process may sign them
		e.Log.Warn("a chunk waits", "message", c.Message, "error", why)
		return e.hold(ctx, c, done, "tokenless")
	case errors.Is(why, ErrNoAudience): // likewise
		e.Log.Warn("a chunk waits", "message", c.Message, "error", why)
		return e.hold(ctx, c, done, "no_audience")
	case errors.Is(why, errUnasked): // repeated here it would fill the window of its partition, and keep others waiting
		e.Log.Warn("a chunk waits, as nobody says how many receivers its sender may reach", "sender", c.Sender, "error", why)
		return e.hold(ctx, c, done, "limit_unknown")
	case errors.Is(why, errLeaving) && begun && *done != c.Done:
		// The next owner goes on from here, behind the others. As it is, it would begin anew.
		err := put(ctx, e.Producer, (&Chunk{Job: c.Job, Part: c.Part, Done: *done}).record(ChunksTopic(c.Lane)))
		if err == nil {
			e.Metrics.chunk(c.Lane, "given_back")
		}
		return err
	}
	return why
}

// hold puts a chunk out of the way of others, as far as it came.
func (e *Emitter) hold(ctx context.Context, c *Chunk, done *Cursor, result string) error {
	if err := put(ctx, e.Producer, (&Chunk{Job: c.Job, Part: c.Part, Done: *done}).record(HoldTopic(c.Lane))); err != nil {
		return err
	}
	e.Metrics.chunk(c.Lane, result)
	return nil
}

// end notes that a chunk has ended.
func (e *Emitter) end(ctx context.Context, c *Chunk, counts *Counts, how string) error {
	if err := e.Notes.End(ctx, c.Message, c.Part, counts); err != nil {
		return fmt.Errorf("noting that a chunk has ended: %w", err)
	}
	e.settle(ctx, c)
	e.Metrics.chunk(c.Lane, how)
	for why, n := range counts.Skipped {
		e.Metrics.skipped.WithLabelValues(c.Lane, skipNames[why]).Add(float64(n))
	}
	return nil
}

// record is a chunk's record. Its key spreads the chunks of a message, and puts copies of
// one chunk behind each other.
func (c *Chunk) record(topic string) Record {
	key := binary.BigEndian.AppendUint16(append(make([]byte, 0, len(c.Message)+2), c.Message[:]...), uint16(c.Part))
	return Record{Topic: topic, Partition: -1, Key: key, Value: c.encode()}
}
