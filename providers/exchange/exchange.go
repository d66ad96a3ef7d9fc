// Package exchange turns deliveries into requests of an h2 pool and answers into
// results: the part of a provider that is the same for all that multiplex HTTP/2.
// What a request looks like and what an answer means is its Codec's business; what
// providers share whatever they speak is in calls.
package exchange

import (
	"context"
	"errors"
	"sync"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// Draft is a request being written, with buffers that are kept from one
// delivery to the next.
type Draft struct {
	h2.Request
	Values []byte // where header values are put together
	Work   []byte // for whatever needs a second buffer

	// IDs keeps the names that answers give messages; set while an answer is read.
	IDs *calls.IDs

	// Repeats is how often the codec has had it sent again.
	Repeats int

	delivery *pipeline.Delivery
	pool     *h2.Pool
}

// Park is called by Codec.Read before it arranges for Resume and returns
// Parked.
func (r *Draft) Park() { r.Repeats++ }

// Resume sends a parked request again, on any connection. It does not block.
func (r *Draft) Resume() { r.pool.Resend(&r.Request, false) }

// Next is what is to happen after an answer.
type Next uint8

// The possible next steps.
const (
	Settled         Next = iota // the result stands
	SettledRetire               // the result stands, and the connection is not used again
	SettledCalm                 // the result stands, and the whole pool slows down
	Repeat                      // send it again, on any connection
	RepeatElsewhere             // send it again, and not use this connection again
	Parked                      // the codec has it, and calls Resume later or has called it
)

// Codec is one provider's language. Its methods may be called at once from
// several goroutines, and must not block.
type Codec interface {
	// Encode writes the request for d. It appends to the draft's buffers,
	// which come with length 0. When ok is false nothing is sent, and the
	// result is d's.
	Encode(d *pipeline.Delivery, r *Draft) (result push.Result, ok bool)
	// Read says what an answer means. To have the request sent again it
	// changes the draft as needed and returns Repeat or RepeatElsewhere; it
	// bounds that by r.Repeats. d and r are not kept, except r when Parked.
	Read(d *pipeline.Delivery, r *Draft) (push.Result, Next)
	// Left amends the result of a request that has no answer because the
	// connection ended, with this reason in the provider's GOAWAY. How certain
	// the result is must stay. A request that was not accepted can be sent
	// again: Left changes the draft as needed and returns Repeat.
	Left(reason string, result push.Result, r *Draft) (push.Result, Next)
}

// Sender is a codec on a pool. The pool is the caller's to close.
type Sender struct {
	codec  Codec
	pool   *h2.Pool
	drafts sync.Pool // *Draft
	groups sync.Pool // *group
	bad    suspect
}

// New makes a Sender.
func New(pool *h2.Pool, codec Codec) *Sender { return &Sender{codec: codec, pool: pool} }

// Lane returns the provider that sends through one lane of the pool.
func (s *Sender) Lane(lane int) pipeline.Provider { return provider{s, lane} }

type provider struct {
	*Sender
	lane int
}

// chunk is how many requests are written before they are queued together: the
// first of a batch leaves while the rest is written.
const chunk = 256

// Submit implements pipeline.Provider. What is refused without sending is
// handed to done before Submit returns, on the caller's goroutine.
func (p provider) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	answered := h2.NewGroup(func(rs []*h2.Request) { p.finish(rs, done) })
	var (
		reqs    = make([]*h2.Request, 0, min(chunk, len(ds)))
		places  = make([]int, 0, cap(reqs)) // of each request in ds
		refused []*pipeline.Delivery
		refPos  []int
	)
	for start := 0; start < len(ds); start += chunk {
		reqs, places, refused, refPos = reqs[:0], places[:0], refused[:0], refPos[:0]
		for n := range push.Prefetching(min(chunk, len(ds)-start), func(n int) byte { return linesToWrite(ds[start+n]) }) {
			i := start + n
			if r := p.draft(ds[i]); r != nil {
				reqs, places = append(reqs, &r.Request), append(places, i)
			} else {
				refused, refPos = append(refused, ds[i]), append(refPos, i)
			}
		}
		blame(refused, len(reqs)+len(refused))
		n, err := p.pool.SubmitTo(ctx, p.lane, reqs, answered)
		if err != nil {
			taken := places[n]
			for _, r := range reqs[n:] {
				p.drop(r.Tag.(*Draft))
			}
			for i, at := range refPos {
				if at > taken {
					for _, d := range refused[i:] {
						d.Result = push.Result{}
					}
					refused = refused[:i]
					break
				}
			}
			if len(refused) > 0 {
				done(refused)
			}
			return taken, err
		}
		if len(refused) > 0 {
			done(refused)
		}
	}
	return len(ds), nil
}

// draft encodes d, or sets its result and returns nil. A message that makes the
// codec panic is tried again, since that may have been a coincidence, and then
// refused.
func (s *Sender) draft(d *pipeline.Delivery) *Draft {
	for try := 1; ; try++ {
		r := s.blank(d)
		result, ok, panicked := s.encode(d, r)
		switch {
		case panicked != nil && try < pipeline.PoisonTries: // r is in an unknown state, and not used again
		case panicked != nil:
			d.Result = push.Result{Class: push.Refused, Panic: panicked, Reason: panicked.Stage}
			return nil
		case ok:
			return r
		default:
			d.Result = result
			d.Result.Local = true
			s.drop(r)
			return nil
		}
	}
}

// blank is an empty draft for d.
func (s *Sender) blank(d *pipeline.Delivery) *Draft {
	r, _ := s.drafts.Get().(*Draft)
	if r == nil {
		r = &Draft{pool: s.pool}
		r.Tag = r
	}
	r.Path, r.Header, r.Body = r.Path[:0], r.Header[:0], r.Body[:0]
	r.Values, r.Work = r.Values[:0], r.Work[:0]
	r.Expires, r.Deadline, r.Lease, r.Repeats, r.delivery = d.Expires.Time(), d.Deadline.Time(), d, 0, d
	return r
}

// encode calls the codec's Encode and returns its panic.
func (s *Sender) encode(d *pipeline.Delivery, r *Draft) (result push.Result, ok bool, panicked *push.PanicError) {
	defer func() { panicked = push.Recovered(string(pipeline.StepEncode), recover()) }()
	result, ok = s.codec.Encode(d, r)
	return result, ok, nil
}

// read calls the codec's Read. If it panics, what the answer meant is unknown.
func (s *Sender) read(d *pipeline.Delivery, r *Draft) (result push.Result, next Next) {
	defer func() {
		if p := push.Recovered(string(pipeline.StepRead), recover()); p != nil {
			result, next = calls.Panicked(p), Settled
		}
	}()
	return s.codec.Read(d, r)
}

// blame halts the route if the codec panicked on so many of n messages that the
// codec itself must be at fault: then the messages do not go to the DLQ.
func blame(refused []*pipeline.Delivery, n int) {
	panicked := 0
	for _, d := range refused {
		if d.Result.Panic != nil {
			panicked++
		}
	}
	if !pipeline.TooManyPoisoned(panicked, n) {
		return
	}
	for _, d := range refused {
		if p := d.Result.Panic; p != nil {
			d.Result = push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, Panic: p, Reason: string(push.Panicked)}
		}
	}
}

func (s *Sender) drop(r *Draft) {
	r.delivery, r.Lease = nil, nil
	s.drafts.Put(r)
}

// group is the memory in which a group of answers is read.
type group struct {
	settled []*pipeline.Delivery
	ids     calls.IDs
}

// finish reads a group of answers and passes on those that are settled.
func (s *Sender) finish(rs []*h2.Request, done func([]*pipeline.Delivery)) {
	g, _ := s.groups.Get().(*group)
	if g == nil {
		g = new(group)
	}
	ds := g.settled[:0]
	for i := range push.Prefetching(len(rs), func(i int) byte { return linesToRead(rs[i]) }) {
		req := rs[i]
		r := req.Tag.(*Draft)
		d := r.delivery
		result, next := Unanswered(req), Settled
		if req.Outcome == h2.Answered && !cut(req) {
			r.IDs = &g.ids
			result, next = s.read(d, r)
		} else if left, ok := errors.AsType[*h2.GoAwayError](req.Err); ok && left.Reason != "" {
			result, next = s.codec.Left(left.Reason, result, r)
			if req.Outcome != h2.NotAccepted {
				next = Settled
			}
		}
		switch next {
		case Repeat, RepeatElsewhere:
			r.Repeats++
			s.pool.Resend(req, next == RepeatElsewhere)
			continue
		case Parked:
			continue // r may be under way again, or even gone
		case SettledRetire:
			s.pool.Retire(req)
			result.Ended = result.Class == push.Again && result.Scope == push.ScopeConnection // the others on it are told the same
		case SettledCalm:
			s.pool.Calm()
		}
		if result.Class != push.Unsent {
			result.Conn = req.Conn
		}
		if req.Outcome == h2.Answered && s.bad.answered(req.Conn, result.BlamesRoute()) {
			s.pool.Retire(req)
		}
		d.Result = result
		ds = append(ds, d)
		s.drop(r)
	}
	if len(ds) > 0 {
		done(ds)
	}
	clear(ds)
	g.settled = ds
	s.groups.Put(g)
}

// cut reports whether an answer broke off before it said why it is not a
// success: then there is a status, and nothing to read it by.
func cut(r *h2.Request) bool { return r.Answer.Broken && r.Answer.Status != 200 }

// Unanswered is the result of a request that ended without a whole answer.
func Unanswered(r *h2.Request) push.Result {
	result := push.Result{Class: push.Again, Scope: push.ScopeConnection}
	if r.Outcome == h2.Ambiguous || r.Outcome == h2.Answered && r.Answer.Status >= 500 {
		result.Certainty = push.Ambiguous
	}
	switch {
	case r.Outcome == h2.ExpiredUnsent:
		return calls.Expired()
	case errors.Is(r.Err, h2.ErrMalformed):
		return push.Result{Class: push.Refused, Local: true, Reason: string(push.InvalidMessage)}
	case errors.Is(r.Err, h2.ErrNotConnected), errors.Is(r.Err, h2.ErrHeaderLimit), errors.Is(r.Err, h2.ErrClosed) && r.Outcome == h2.NotAccepted:
		result.Reason, result.Ended = string(push.NotConnected), true
	case errors.Is(r.Err, h2.ErrLeaseLapsed) && r.Outcome == h2.NotAccepted:
		return push.Result{} // another worker may have it: no attempt, and no end
	case errors.Is(r.Err, h2.ErrDeadline), errors.Is(r.Err, h2.ErrExpired):
		result.Reason = string(push.Timeout)
	default:
		_, reset := errors.AsType[*h2.ResetError](r.Err)
		result.Reason, result.Ended = string(push.ConnectionLost), !reset
	}
	return result
}
