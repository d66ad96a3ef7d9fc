package gates

import "time"

// Condition is the state of a gate in words.
type Condition string

// The conditions.
const (
	Open    Condition = "open"
	Paused  Condition = "paused"
	Probing Condition = "probing" // the pause is over, and not everything is let through yet
	Halted  Condition = "halted"  // paused because the provider refuses our credentials or set-up
)

// wordKept is how long a gate that is open tells the last bad word.
const wordKept = time.Minute

// View is what a gate is at, for those who watch it.
type View struct {
	Condition Condition
	Until     time.Time // of a pause; zero = there is none
	Word      string    // the last bad one, of this pause or the last minute: the provider's or ours
	// Admitted counts sends that were let through since the start, also those that came
	// back unsent.
	Admitted uint64
	Answers  []Answered // of the last minute, most first

	Quarantined int // origins that are stopped
}

// View returns what the gate is at. It changes nothing, and holds the gate's lock for as
// long as it takes to add up a minute.
func (g *Gate) View(now time.Time) View {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := View{Condition: Open, Admitted: g.admitted, Answers: g.answered.sum(now), Quarantined: len(g.wards)}
	switch {
	case g.state == gateProbing, g.state == gateClosed && !now.Before(g.until):
		v.Condition = Probing
	case g.state == gateClosed && g.halted:
		v.Condition, v.Until = Halted, g.until
	case g.state == gateClosed:
		v.Condition, v.Until = Paused, g.until
	}
	if v.Condition != Open && !g.wordAt.Before(g.past.since) || now.Sub(g.wordAt) < wordKept {
		v.Word = g.word
	}
	return v
}
