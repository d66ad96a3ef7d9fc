package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/gateway/quota"
)

// sending is the messages of one request, and waits for what the producer says of them:
// it wakes once, when all is said. Its memory is used again for another request, but
// never while the producer may still say something.
type sending struct {
	entries []*entry // those of this request, in their order
	spare   []*entry // others, to be used again
	text    []byte   // memory for the answer
	check
	quota     *quota.Sender    // nil = without limits
	standings []quota.Standing // of the sender, when it was admitted
	firsts    Firsts           // nil = nothing is kept of what is accepted
	looking
	byID map[string]*entry // memory for pair

	spent time.Duration // of the time for Kafka's word, before it is asked
	timer *time.Timer
	all   chan struct{} // capacity 1; gets one when nothing is missing

	mu      sync.Mutex
	missing int         // guarded by mu; messages of which nothing was said
	over    bool        // guarded by mu; nobody waits any more: what is said now is not heard
	taken   quota.Taken // guarded by mu once something is produced
}

// entry is one message, or what is wrong with it.
type entry struct {
	message
	line    int // of a batch, from 1
	problem *Problem
	name    [16]byte // of what is kept of it
	first   *claim   // of the same message, which was accepted before; nil = none is known
	twin    *entry   // a line before it that is the same message; nil = there is none
	topic   [16]byte // id of the lane's topic

	// said is what the producer calls. It is made once for all requests.
	said func(Place, error)

	// Guarded by the sending's mu until it is over or nothing is missing.
	heard bool
	place Place
	err   error
}

func newSending() *sending {
	s := &sending{all: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	s.timer.Stop()
	return s
}

// goes reports whether a message is to be produced.
func (e *entry) goes() bool { return e.problem == nil && e.first == nil && e.twin == nil }

// add makes an entry.
func (s *sending) add(line int) *entry {
	var e *entry
	if n := len(s.spare); n > 0 {
		e, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		e = &entry{}
		e.said = func(at Place, err error) { s.say(e, at, err) }
	}
	e.line = line
	s.entries = append(s.entries, e)
	return e
}

// begin counts what is to be produced, and reports whether it is anything.
func (s *sending) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.goes() {
			s.missing++
		}
	}
	return s.missing > 0
}

// say is what the producer said of one message.
func (s *sending) say(e *entry, at Place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		if err != nil {
			s.giveBack()
		} else {
			s.keep(e, at, nil) // its caller was told to repeat it
		}
		return
	}
	e.heard, e.place, e.err = true, at, err
	if s.missing--; s.missing == 0 {
		s.all <- struct{}{}
	}
}

// giveBack takes a message that Kafka has not taken off the limits of its sender: it will come
// again, with its id. The caller holds mu.
func (s *sending) giveBack() {
	if s.quota != nil {
		s.quota.Return(&s.taken, 1)
	}
}

// wait waits until the producer has said something of each, or it is too late.
func (s *sending) wait(ctx context.Context) {
	select {
	case <-s.all:
		return
	case <-s.timer.C:
	case <-ctx.Done(): // nobody waits for the answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = s.missing > 0
}

// reuse puts the memory of a sending that has ended well into a pool.
func (s *sending) reuse(pool *sync.Pool) {
	s.timer.Stop()
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		return // the producer has some of it
	}
	select {
	case <-s.all: // the last word came when it was too late
	default:
	}
	for _, e := range s.entries {
		*e = entry{said: e.said}
	}
	s.spare = append(s.spare, s.entries...)
	clear(s.entries)
	s.entries, s.text, s.check = s.entries[:0], s.text[:0], check{}
	s.looking.release()
	s.quota, s.standings, s.taken, s.firsts, s.spent = nil, s.standings[:0], quota.Taken{}, nil, 0
	pool.Put(s)
}

// produce hands the messages that have no problem, that are not known to be accepted before (recall),
// and that their sender may send, to Kafka and waits until each is confirmed, or it is too late. A request
// that ends early changes nothing: what was handed over is written.
func (g *Gateway) produce(ctx context.Context, s *sending) {
	g.admit(ctx, s)
	if !s.begin() {
		return
	}
	s.timer.Reset(g.o.Times.Confirm - s.spent)
	g.findTopics(ctx, s)
	for _, e := range s.entries {
		if e.goes() {
			g.o.Producer.Produce(e.record, e.said)
		}
	}
	s.wait(ctx)
	for _, e := range s.entries {
		if e.goes() {
			g.confirmed(s, e)
		}
	}
}

// findTopics finds the ids of the topics that the messages go to. They are known before
// anything is produced, for receipts of records that nobody waits for any more are of no
// use; without an answer a receipt does without.
func (g *Gateway) findTopics(ctx context.Context, s *sending) {
	var last *entry
	for _, e := range s.entries {
		if !e.goes() {
			continue
		}
		if last != nil && last.lane == e.lane {
			e.topic = last.topic
		} else if topic, known := g.progress.knownTopic(e.lane.Name); known {
			e.topic = topic
		} else {
			g.awaitTopics(ctx, s)
			return
		}
		last = e
	}
}

// awaitTopics waits for them, but no longer than half of the time that a request has.
func (g *Gateway) awaitTopics(ctx context.Context, s *sending) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Confirm/2)
	defer cancel()
	topics := make(map[string][16]byte, 1)
	for _, e := range s.entries {
		if !e.goes() {
			continue
		}
		topic, asked := topics[e.lane.Name]
		if !asked {
			topic = g.progress.topicOf(ctx, e.lane.Name)
			topics[e.lane.Name] = topic
		}
		e.topic = topic
	}
}

// confirmed is what the producer's word on a message means. One of which it has said nothing
// yet may still be written, whether the caller waits or not: it counts until it has said no.
func (g *Gateway) confirmed(s *sending, e *entry) {
	if e.heard && e.err != nil {
		s.mu.Lock()
		s.giveBack()
		s.mu.Unlock()
	}
	switch {
	case !e.heard:
		e.problem = g.unconfirmed(&e.message)
	case errors.Is(e.err, ErrBufferFull):
		g.o.Metrics.sent(e.lane.Name, "buffer_full")
		e.problem = newProblem(codeBufferFull, "so many messages wait for Kafka that this one was not taken: send it again").of(e.id).after(1)
	case e.err != nil:
		g.o.Log.Warn("Kafka did not take a message", "lane", e.lane.Name, "error", e.err)
		e.problem = g.unconfirmed(&e.message)
	default:
		e.lane.accepted.Inc()
		if e.named { // nobody else can know its id
			s.value = s.keep(e, e.place, s.value)
		}
	}
}

func (g *Gateway) unconfirmed(m *message) *Problem {
	g.o.Metrics.sent(m.lane.Name, "unconfirmed")
	return newProblem(codeUnconfirmed, "Kafka did not confirm it in time. It may have been accepted: send it again with this id, and it is pushed once").of(m.id).after(2)
}
