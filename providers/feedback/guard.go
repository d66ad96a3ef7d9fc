// Package feedback judges what a provider says about tokens. A wrong
// environment, topic or project makes every token look dead; removing them
// all would be worse than any outage. A Guard tells the one dead token from
// the wrong set-up, and both from a campaign or a sender whose tokens are bad.
package feedback

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Window and thresholds of a Guard.
const (
	window = 1000 // how many of the latest answers count
	// most dead tokens among them that are believed: 5 %.
	most = window / 20
	// unproven is how many are believed on a route without a success in the
	// window: a set-up that is wrong from the start shows here before most tokens
	// are removed.
	unproven = 10
)

const (
	// nearlyAll is the part of the dead tokens that an origin must have for it to be at
	// fault, and not the set-up, under which everybody's tokens look dead.
	nearlyAll = 0.9
	// others is how many pushes of others must have been accepted meanwhile: the set-up
	// works.
	witnesses = 5
	// onTrial is for how long an origin is stopped where there are no witnesses, as when its
	// messages come one after the other: whether others' pushes are accepted shows then.
	// doubtful is how many of their tokens may be called dead meanwhile.
	onTrial  = time.Minute
	doubtful = unproven / 2
	// mostDoubled is how often a trial gets twice as long, each time that nobody else sends.
	mostDoubled = 6
	// underWay is how long answers to what an origin had sent before it was stopped may
	// still come: somewhat more than a send's deadline.
	underWay = 15 * time.Second
)

// Guard counts the latest answers of one route. The zero value is ready; its
// methods may be called at once from several goroutines. It remembers names of origins
// for dead tokens only, of window answers at the most: some 200 KB.
type Guard struct {
	mu        sync.Mutex // guards all below
	ring      [window]answer
	origins   [][2]push.Origin // of the dead ones in ring; nil = there was none yet
	accepted  [][2]uint64      // of the accepted ones since then, marks of their origins
	seed      maphash.Seed     // of the marks
	next      int
	dead      int
	successes int
	fault     push.Culprit // of the origin whose tokens were bad last
	faultAt   time.Time
	trial     bool // it is on trial
	proofs    int  // pushes of others that were accepted since that began
	own       int  // its own
	trials    int  // that ended without a proof, one after the other
}

type answer uint8

const (
	other answer = iota
	success
	dead
)

// Success counts a push of a message that was accepted. If it completes what proves that the
// origin on trial was at fault, it returns that. What is accepted of the origin itself is no
// proof: its tokens may be partly good, or the set-up partly wrong.
func (g *Guard) Success(m *push.Message) *push.Culprit {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.accepted != nil {
		g.accepted[g.next] = g.marks(m)
	}
	g.count(success)
	if !g.trial {
		return nil
	}
	of, n := m.Origins()
	if slices.Contains(of[:n], g.fault.Origin) {
		g.own++
		return nil
	}
	if g.proofs++; g.proofs < witnesses {
		return nil
	}
	g.trial, g.fault.For, g.trials = false, 0, 0
	fault := g.fault
	return &fault
}

// marks stand for a message's origins, so that no name is kept; 0 = there is none. The
// caller holds mu.
func (g *Guard) marks(m *push.Message) (marks [2]uint64) {
	of, n := m.Origins()
	for i, o := range of[:n] {
		marks[i] = g.mark(o)
	}
	return marks
}

// mark is never 0. It costs each push that is accepted some nanoseconds.
func (g *Guard) mark(o push.Origin) uint64 {
	h := 31*maphash.String(g.seed, o.Name) + maphash.String(g.seed, o.Sender)
	if o.Kind == push.OfSender {
		h = ^h
	}
	return h | 1
}

// Other counts an answer that says nothing about the token.
func (g *Guard) Other() {
	g.mu.Lock()
	g.count(other)
	g.mu.Unlock()
}

// Dead counts an answer that calls the token of a message dead for a reason which a wrong
// set-up would also give, and completes its result: Gone where the token is to be believed
// dead. Otherwise the token is kept and the message waits. If nearly all such answers are
// of one origin, that is to be stopped; else the route is, because its set-up is wrong.
func (g *Guard) Dead(m *push.Message, result push.Result, now time.Time) push.Result {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trial && g.own >= witnesses && now.Sub(g.faultAt) >= g.fault.For {
		g.trial = false // nobody else is there to prove anything, but the set-up works
		g.trials++
	}
	switch {
	case g.late(m, now):
		return g.stopped(result)
	case g.believes(m):
		result.Class = push.Gone
		return result
	}
	fault, found := g.atFault()
	if !found {
		return g.doubted(result)
	}
	g.fault, g.faultAt = fault, now
	for i := range g.origins { // what it brought about says nothing of the others
		if g.ring[i] == dead && slices.Contains(g.origins[i][:], fault.Origin) {
			g.add(dead, -1)
			g.ring[i] = other
		}
	}
	switch {
	case g.late(m, now):
		return g.stopped(result)
	case g.believable():
		result.Class = push.Gone
		return result
	}
	return g.doubted(result)
}

// believes counts a dead token and reports whether to believe that. The caller holds mu.
func (g *Guard) believes(m *push.Message) bool {
	of, _ := m.Origins()
	for i := range of {
		of[i] = of[i].Clone() // it is a part of a record
	}
	if g.origins == nil {
		g.origins, g.accepted, g.seed = make([][2]push.Origin, window), make([][2]uint64, window), maphash.MakeSeed()
	}
	g.origins[g.next] = of
	g.count(dead)
	return g.believable()
}

// late reports whether a message is of the origin that was found last, and may have been
// sent before that was stopped. The caller holds mu.
func (g *Guard) late(m *push.Message, now time.Time) bool {
	if g.fault.Origin.Name == "" || now.Sub(g.faultAt) >= underWay {
		return false
	}
	of, n := m.Origins()
	return slices.Contains(of[:n], g.fault.Origin)
}

// stopped is the result of a message whose origin is at fault. The caller holds mu.
func (g *Guard) stopped(result push.Result) push.Result {
	fault := g.fault
	result.Scope, result.Halt, result.Culprit = push.ScopeDevice, true, &fault
	return result
}

// doubted is the result of a message whose token is kept, though no origin is at fault.
// While one is on trial, a few such stop nothing. The caller holds mu.
func (g *Guard) doubted(result push.Result) push.Result {
	result.Scope, result.Halt = push.ScopeRoute, true
	if g.trial && g.dead <= doubtful {
		result.Scope = push.ScopeDevice
	}
	return result
}

// believable reports whether so few tokens are called dead that they may be. The caller
// holds mu.
func (g *Guard) believable() bool {
	switch {
	case g.trial:
		return false // nothing proves the set-up yet
	case g.successes == 0:
		return g.dead <= unproven
	}
	return g.dead <= most
}

// atFault is the origin of nearly all dead tokens, its campaign before its sender, while
// pushes are accepted all the same. Without such ones it is put on trial, and a second one
// meanwhile is not: then the set-up is wrong. The caller holds mu.
func (g *Guard) atFault() (push.Culprit, bool) {
	counts := make(map[push.Origin]int)
	for i := range g.origins {
		if g.ring[i] == dead {
			for _, o := range g.origins[i] {
				if o.Name != "" {
					counts[o]++
				}
			}
		}
	}
	for _, kind := range []push.OriginKind{push.OfCampaign, push.OfSender} {
		for o, n := range counts {
			if o.Kind != kind || float64(n) < nearlyAll*float64(g.dead) {
				continue
			}
			switch {
			case g.others(o, n) >= witnesses:
				g.trials = 0
				return push.Culprit{Origin: o}, true
			case !g.trial:
				g.trial, g.proofs, g.own = true, 0, 0
				return push.Culprit{Origin: o, For: onTrial << min(g.trials, mostDoubled)}, true
			}
			return push.Culprit{}, false
		}
	}
	return push.Culprit{}, false
}

// others is how many pushes of others were accepted since half of an origin's n dead
// tokens were called so. The caller holds mu.
func (g *Guard) others(o push.Origin, n int) (accepted int) {
	passed, own := 0, g.mark(o)
	for k := range window {
		i := (g.next + k) % window // from the oldest on
		switch g.ring[i] {
		case dead:
			if slices.Contains(g.origins[i][:], o) {
				passed++
			}
		case success:
			if 2*passed >= n && !slices.Contains(g.accepted[i][:], own) {
				accepted++
			}
		}
	}
	return accepted
}

func (g *Guard) count(a answer) {
	g.add(g.ring[g.next], -1)
	g.ring[g.next] = a
	g.add(a, 1)
	g.next = (g.next + 1) % window
}

func (g *Guard) add(a answer, n int) {
	switch a {
	case success:
		g.successes += n
	case dead:
		g.dead += n
	}
}
