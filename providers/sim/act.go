package sim

import (
	"fmt"
	"strings"
	"time"
)

// Do names something that the simulator does to a request, or to the
// connection it came over, other than what validation asks for.
type Do uint8

// Everything that can be done. Those from DoOneStream on are done to a whole
// connection, and the request that was the occasion is processed as usual,
// whether or not its answer still gets out.
const (
	DoNothing Do = iota

	DoAnswer  // gives Act.Reply
	DoLapse   // accepts, and the token dies after Act.For
	DoExhaust // uses up the project's quota of this minute (FCM)
	DoHang    // does not process the request and never answers it
	DoWedge   // ExpiredProviderToken, and the connection refuses every token from then on

	DoOneStream // SETTINGS of one stream until the next accepted push; a second one ends it
	DoSlowDown  // SETTINGS of one stream until the next accepted push; others are refused
	DoDisconnect
	DoDrain   // GOAWAY, the answers up to its last stream, close
	DoAbandon // GOAWAY, close, without the answers
	DoKill    // TCP reset
	DoMute    // no answer any more; PING and SETTINGS are acknowledged
	DoDeaf    // no PING is answered any more
	DoStall   // reads nothing for Act.For
	DoBlackHole
	DoTooManyStreams // FCM's GOAWAY to the 101st stream
	DoTimedOut       // FCM's GOAWAY to an idle connection
	DoTooManyPings   // FCM's GOAWAY to a ping flood

	DoRefuse // resets new connections for Act.For; not the one at hand

	doCount
)

// doNames are the names in commands and events, and the behaviour of the
// providers' contract that each of them is. DoAnswer is what its Reply is.
var doNames = [doCount]struct {
	name      string
	behaviour int
}{
	DoNothing:        {"nothing", 0},
	DoAnswer:         {"answer", 0},
	DoLapse:          {"lapse", 6},
	DoExhaust:        {"exhaust", 21},
	DoHang:           {"hang", 16},
	DoWedge:          {"wedge", 8},
	DoOneStream:      {"one_stream", 2},
	DoSlowDown:       {"slow_down", 3},
	DoDisconnect:     {"disconnect", 4},
	DoDrain:          {"drain", 14},
	DoAbandon:        {"abandon", 15},
	DoKill:           {"kill", 15},
	DoMute:           {"mute", 16},
	DoDeaf:           {"deaf", 16},
	DoStall:          {"stall", 16},
	DoBlackHole:      {"black_hole", 16},
	DoTooManyStreams: {"too_many_streams", 25},
	DoTimedOut:       {"session_timed_out", 25},
	DoTooManyPings:   {"too_many_pings", 25},
	DoRefuse:         {"refuse", 17},
}

// String is its name in commands and events.
func (d Do) String() string {
	if d >= doCount {
		d = DoNothing
	}
	return doNames[d].name
}

// ParseDo finds what a name stands for. DoNothing has no name that parses.
func ParseDo(name string) (Do, bool) {
	for d := DoAnswer; d < doCount; d++ {
		if strings.EqualFold(doNames[d].name, name) {
			return d, true
		}
	}
	return DoNothing, false
}

// connection reports whether it is done to a whole connection.
func (d Do) connection() bool { return d >= DoOneStream && d < DoRefuse }

// Act is something to do, with what it needs to know.
type Act struct {
	Do    Do
	Reply Reply         // of DoAnswer
	For   time.Duration // of DoLapse, DoStall and DoRefuse; by the simulated clock
	// Reason is in the JSON that GOAWAY carries (DoDrain, DoAbandon,
	// DoDisconnect). Empty means the usual one.
	Reason string
	// Unprocessed is how many of the newest streams in flight a GOAWAY leaves
	// above its last stream id, so that they count as never received.
	Unprocessed int
	// Shutdowns is how many more requests of the connection are answered
	// 503 Shutdown before a DoDrain sends its GOAWAY.
	Shutdowns int
}

// Validate rejects what cannot be done to a provider's requests.
func (a *Act) Validate(p Provider) error {
	switch {
	case a.Do == DoNothing || a.Do >= doCount:
		return fmt.Errorf("nothing to do")
	case a.Do == DoAnswer && a.Reply.Provider() != p:
		return fmt.Errorf("%s is no answer of %s", a.Reply, p)
	case a.Do == DoExhaust && p != FCM:
		return fmt.Errorf("%s is of fcm", a.Do)
	case (a.Do == DoWedge || a.Do == DoLapse) && p == OAuth, a.Do == DoWedge && p != APNS:
		return fmt.Errorf("%s is not of %s", a.Do, p)
	case a.For < 0 || a.Unprocessed < 0 || a.Shutdowns < 0:
		return fmt.Errorf("%s: negative", a.Do)
	case a.Do == DoRefuse && a.For == 0:
		return fmt.Errorf("%s: for how long?", a.Do)
	}
	return nil
}

// behaviour is the number of what an act shows.
func (a *Act) behaviour() int {
	if a.Do == DoAnswer {
		return a.Reply.Behaviour()
	}
	return doNames[a.Do].behaviour
}
