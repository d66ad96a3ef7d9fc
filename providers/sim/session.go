package sim

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/providers/sim/engine"
)

// didComplain is the Event.Do of what a client does against HTTP/2.
const didComplain = "protocol_error"

// neverIdle is no stream of a client.
const neverIdle uint32 = 1 << 31

// session is what the simulator makes of one connection: its requests go to
// the policy, and what the policy, a rule or a command wants done to the
// connection it has the engine do.
type session struct {
	policy  *policy
	dials   *dials
	streams int // as Options.MaxConcurrentStreams
	memory  *Conn
	conn    *engine.Conn // nil with HTTP/1.1

	// Of the request at hand; only the engine's reader touches these.
	req   Request
	ans   Answer
	drain *orderedAct // follows the answer

	farewell farewell

	// Guarded by the hold of the connection.
	provider  Provider // Nobody until the first request tells
	alone     bool     // one stream until authenticated
	slow      bool     // one stream until the next acceptance
	pings     window
	idleAt    uint32 // the last stream when it was found idle; neverIdle at first
	idleSince time.Time
}

// orderedAct is an act and who asked for it.
type orderedAct struct {
	act Act
	by  string
}

// farewell is a drain that waits for the last requests before it.
type farewell struct {
	waits atomic.Bool // a hint of act, which nearly never is there

	mu  sync.Mutex
	act *orderedAct
}

func (f *farewell) set(a *orderedAct) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.act = a
	f.waits.Store(true)
}

// next counts one request. It reports whether that is answered 503 Shutdown,
// and returns the drain behind the very last one.
func (f *farewell) next() (warned bool, drain *orderedAct) {
	if !f.waits.Load() {
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.act == nil {
		return false, nil
	}
	if f.act.act.Shutdowns--; f.act.act.Shutdowns > 0 {
		return true, nil
	}
	drain, f.act = f.act, nil
	f.waits.Store(false)
	return true, drain
}

// Answer implements engine.Answers.
func (s *session) Answer(r *engine.Request) *engine.Answer {
	req := &s.req
	req.Method, req.Path, req.Fields, req.Body = r.Method, r.Path, r.Fields, r.Body
	req.Conn, req.Stream, req.now = s.memory, r.Stream, r.At
	req.shutdown, s.drain = s.farewell.next()
	s.policy.Answer(req, &s.ans)
	out := &s.ans.Answer
	out.Receipt = s.ans.decided.receipt()
	if act := s.ans.act; act != nil {
		out.Never = act.Do == DoHang
		if s.conn == nil {
			http1Act(act, out)
		}
	}
	return out
}

// http1Act does what there is in HTTP/1.1 of an act on a connection: never
// answering, and ending the connection instead of answering.
func http1Act(a *Act, ans *engine.Answer) {
	switch a.Do {
	case DoMute, DoStall, DoBlackHole:
		ans.Latency = engine.Forever
	case DoKill, DoAbandon, DoDisconnect:
		ans.Cut = true
	}
}

// Dropped implements engine.Answers.
func (s *session) Dropped(stream uint32, r engine.Receipt, undone bool) {
	s.policy.dropped(s.memory, stream, decisionOf(r), undone)
}

// Begin implements engine.Session.
func (s *session) Begin(c *engine.Conn) (streams int) {
	s.conn = c
	s.alone = s.policy.rules.Load().OneStream && s.provider != FCM
	return s.granted()
}

// Adjust notes, from a request's path, whose connection it is, and adjusts how
// many streams it may have to what the request came to.
func (s *session) Adjust(h engine.Held) {
	if s.provider == Nobody {
		if p := providerOf(s.req.Path); p == APNS || p == FCM {
			s.provider = p
		}
	}
	if s.alone && s.memory.trusted.Load() {
		s.alone = false
	}
	if s.slow && s.ans.Reply.Accepted() {
		s.slow = false
	}
	h.Grant(s.granted())
}

// Queued does to the connection what the policy or a rule wants done.
func (s *session) Queued(stream uint32) {
	if act := s.ans.act; act != nil && act.Do >= DoOneStream {
		s.do(act, s.ans.by, stream)
	}
	if s.drain != nil {
		s.do(&s.drain.act, s.drain.by, 0)
	}
}

func (s *session) granted() int {
	streams := s.policy.rules.Load().Streams
	switch {
	case s.alone || s.slow:
		return 1
	case s.provider == FCM && streams > 0:
		return streams
	}
	return s.streams
}

// Over implements engine.Session.
func (s *session) Over(h engine.Held, stream, previous uint32) {
	streams := s.policy.rules.Load().Streams
	switch {
	case s.alone:
		h.GoAway(engine.GoAway{Code: engine.RefusedStream, Last: previous, Debug: tooManyAlone})
		s.note(DoOneStream, byRule, stream, tooManyAlone)
	case s.provider == FCM && streams > 0 && h.Acknowledged():
		h.GoAway(engine.GoAway{Code: engine.ProtocolError, Last: previous, Debug: tooManyStreams})
		s.note(DoTooManyStreams, byRule, stream, tooManyStreams)
	default:
		h.Refuse(stream)
		if s.slow {
			s.note(DoSlowDown, byRule, stream, "refused")
		}
	}
}

// Pinged counts a PING of the client.
func (s *session) Pinged(h engine.Held) {
	f := s.policy.fate
	if s.provider == FCM && !h.Leaving() && s.pings.over(f.rules.Load().Pings, f.clock.Now()) {
		s.act(h, &Act{Do: DoTooManyPings}, byRule, 0)
	}
}

// Idle closes an idle connection to Google when its time has come.
func (s *session) Idle(h engine.Held) time.Duration {
	f := s.policy.fate
	limit := f.rules.Load().Idle
	if limit == 0 || s.provider != FCM || h.Leaving() {
		return 0
	}
	if s.idleAt != h.Last() {
		s.idleAt, s.idleSince = h.Last(), f.clock.Now()
	}
	left := limit - f.clock.Now().Sub(s.idleSince)
	if left <= 0 {
		s.act(h, &Act{Do: DoTimedOut}, byRule, 0)
		return 0
	}
	return max(f.clock.passing(left), time.Millisecond)
}

// Complained implements engine.Session.
func (s *session) Complained(stream uint32, what string) {
	s.policy.events.add(Event{
		Provider: s.provider.String(), Conn: s.memory.id, Stream: stream, Do: didComplain, By: byValidation, Detail: what,
	})
}
