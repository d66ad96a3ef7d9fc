// Package feedback judges what a provider says about tokens. A wrong
// environment, topic or project makes every token look dead; removing them
// all would be worse than any outage. A Guard tells the one dead token from
// the wrong set-up.
package feedback

import "sync"

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

// Guard counts the latest answers of one route. The zero value is ready; its
// methods may be called at once from several goroutines.
type Guard struct {
	mu        sync.Mutex
	ring      [window]answer
	next      int
	dead      int
	successes int
}

type answer uint8

const (
	other answer = iota
	success
	dead
)

// Success counts a push that was accepted.
func (g *Guard) Success() {
	g.mu.Lock()
	g.count(success)
	g.mu.Unlock()
}

// Other counts an answer that says nothing about the token.
func (g *Guard) Other() {
	g.mu.Lock()
	g.count(other)
	g.mu.Unlock()
}

// Dead counts an answer that calls the token dead for a reason which a wrong
// set-up would also give, and reports whether to believe it.
func (g *Guard) Dead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(dead)
	if g.successes == 0 {
		return g.dead <= unproven
	}
	return g.dead <= most
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
