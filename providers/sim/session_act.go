package sim

import (
	"encoding/json"

	"github.com/pushfleet/pushfleet/providers/sim/engine"
)

const (
	tooManyAlone   = "Maximum active streams violated for this endpoint."
	tooManyStreams = "exceeded_max_concurrent_streams"
	timedOut       = "session_timed_out"
	tooManyPings   = "too_many_pings"
)

// do does something to the connection. stream is the occasion, or 0.
func (s *session) do(a *Act, by string, stream uint32) {
	ended := false
	s.conn.Hold(func(h engine.Held) {
		ended = h.Ended()
		switch {
		case ended:
		case a.Do == DoRefuse || a.Do == DoKill:
			s.note(a.Do, by, stream, "")
		default:
			s.act(h, a, by, stream)
		}
	})
	switch {
	case ended:
		return
	case a.Do == DoRefuse:
		s.dials.refuse(s.memory.address, a, by)
	case a.Do == DoKill:
		s.conn.Kill()
	}
	s.conn.Wake()
}

// act is do for all that only changes the connection's state.
func (s *session) act(h engine.Held, a *Act, by string, stream uint32) {
	switch a.Do {
	case DoOneStream:
		s.memory.trusted.Store(false)
		s.alone = true
		h.Grant(s.granted())
	case DoSlowDown:
		if s.slow {
			return
		}
		s.slow = true
		h.Grant(s.granted())
		h.RefuseAllButOldest(stream)
	case DoDisconnect:
		h.GoAway(engine.GoAway{Code: engine.EnhanceYourCalm, Last: h.Last(), Debug: s.reason(a, APNSTooManyRequests), Abrupt: true})
	case DoDrain:
		if a.Shutdowns > 0 {
			s.farewell.set(&orderedAct{*a, by})
			return
		}
		h.GoAway(engine.GoAway{Code: engine.NoError, Last: h.LastBut(a.Unprocessed), Debug: s.reason(a, APNSShutdown)})
	case DoAbandon:
		h.GoAway(engine.GoAway{Code: engine.NoError, Last: h.LastBut(a.Unprocessed), Debug: s.reason(a, APNSShutdown), Abrupt: true})
		h.DropAll()
	case DoTooManyStreams:
		h.GoAway(engine.GoAway{Code: engine.ProtocolError, Last: h.Last(), Debug: tooManyStreams})
	case DoTimedOut:
		h.GoAway(engine.GoAway{Code: engine.NoError, Last: h.Last(), Debug: timedOut})
	case DoTooManyPings:
		h.GoAway(engine.GoAway{Code: engine.EnhanceYourCalm, Last: h.Last(), Debug: tooManyPings})
	case DoMute:
		h.Mute()
	case DoDeaf:
		h.Deafen()
	case DoStall:
		s.stall(h, a)
	case DoBlackHole:
		h.Mute()
		h.Deafen()
		s.stall(h, a)
	}
	s.note(a.Do, by, stream, a.Reason)
}

// stall stops the reader for a simulated time; 0 means until the end.
func (s *session) stall(h engine.Held, a *Act) {
	d := engine.Forever
	if a.For > 0 {
		d = s.policy.clock.passing(a.For)
	}
	h.Stall(d)
}

// note writes an event. It is called with the connection held.
func (s *session) note(d Do, by string, stream uint32, detail string) {
	s.policy.events.add(Event{
		Provider: s.provider.String(), Conn: s.memory.id, Stream: stream, Do: d.String(),
		Behaviour: doNames[d].behaviour, By: by, Detail: detail,
	})
}

// reason is the debug data of Apple's GOAWAY. Google's is plain text.
func (s *session) reason(a *Act, usual Reply) string {
	text := a.Reason
	if text == "" && s.provider != FCM {
		text = usual.String()
	}
	if text == "" || s.provider == FCM {
		return text
	}
	quoted, _ := json.Marshal(text) // a string always encodes
	return `{"reason":` + string(quoted) + `}`
}
