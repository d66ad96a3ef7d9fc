package feedback

import (
	"errors"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// AppOptions are the thresholds of an AppGuard.
type AppOptions struct {
	Share   float64       // of the answers; above it no token is believed dead. Above 0, up to 1
	Window  time.Duration // the answers of so long count; 1 s or more
	Answers int           // fewer of them prove nothing; 1 or more
}

// AppGuard keeps the tokens of an app while too many of them are called dead, whatever
// the reason and the platform: a Guard knows only reasons that a wrong set-up gives, of
// one route. It counts the answers that one worker gets. Its method may be called by
// several goroutines at once.
type AppGuard struct {
	options AppOptions

	mu   sync.Mutex
	apps map[string]*appAnswers // guarded by mu
}

// NewAppGuard returns an error when an option cannot work.
func NewAppGuard(o AppOptions) (*AppGuard, error) {
	if !(o.Share > 0 && o.Share <= 1) || o.Window < time.Second || o.Answers < 1 {
		return nil, errors.New("feedback: a guard of apps needs a share above 0 and up to 1, a window of a second or more, and an answer or more")
	}
	return &AppGuard{options: o, apps: make(map[string]*appAnswers)}, nil
}

// Believe counts answers about devices of an app, some of which called the token of a
// message dead, and reports whether these are to be removed. If not, and nearly all dead
// tokens of the window are of one origin while others' are well, fault is that: from then
// on what it brought about counts no more.
func (g *AppGuard) Believe(app string, answers int, dead []*push.Message, now time.Time) (believe bool, fault *push.Culprit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.apps[app]
	if a == nil {
		a = new(appAnswers)
		g.apps[app] = a
	}
	all, gone := a.count(now.UnixNano()/int64(g.options.Window/slots), answers, dead)
	if g.believes(all, gone) {
		return true, nil
	}
	o, n := a.worst()
	if float64(n) < nearlyAll*float64(gone) || all-gone < witnesses || !g.believes(all-n, gone-n) {
		return false, nil
	}
	a.forget(o)
	return false, &push.Culprit{Origin: o}
}

func (g *AppGuard) believes(all, gone int) bool {
	return all < g.options.Answers || float64(gone) <= g.options.Share*float64(all)
}

// slots are the parts of a window: its oldest answers are forgotten a slot at a time.
const slots = 10

// mostOrigins bounds the origins that a slot tells apart; of others those that bring
// about the least have no place. It is 200 KB an app at the most.
const mostOrigins = 100

// appAnswers are the answers about one app, in the latest slots. Numbers of slots only
// grow: what a clock that was set back brings counts in the latest.
type appAnswers struct {
	latest        int64
	answers, dead [slots]int
	origins       [slots]map[push.Origin]int // of the dead ones
}

// count adds to a slot, and returns the sums of the window that ends with it.
func (a *appAnswers) count(slot int64, answers int, dead []*push.Message) (all, gone int) {
	for n := max(a.latest+1, slot-slots+1); n <= slot; n++ {
		a.answers[n%slots], a.dead[n%slots], a.origins[n%slots] = 0, 0, nil
	}
	a.latest = max(a.latest, slot)
	at := a.latest % slots
	a.answers[at] += answers
	a.dead[at] += len(dead)
	for _, m := range dead {
		a.blame(at, m)
	}
	for i := range slots {
		all, gone = all+a.answers[i], gone+a.dead[i]
	}
	return all, gone
}

// blame counts a dead token for its message's origins.
func (a *appAnswers) blame(at int64, m *push.Message) {
	of, n := m.Origins()
	for _, o := range of[:n] {
		by := a.origins[at]
		switch _, known := by[o]; {
		case known:
			by[o]++
			continue
		case len(by) >= mostOrigins && !makeRoom(by):
			continue
		case by == nil:
			by = make(map[push.Origin]int)
			a.origins[at] = by
		}
		by[o.Clone()] = 1 // it is a part of a record
	}
}

// makeRoom removes one of those that were there once, if there is one: who is at fault comes
// again and again, and must not find all places taken.
func makeRoom(by map[push.Origin]int) bool {
	for o, n := range by {
		if n == 1 {
			delete(by, o)
			return true
		}
	}
	return false
}

// worst is the origin with the most dead tokens, a campaign before its sender.
func (a *appAnswers) worst() (o push.Origin, n int) {
	sums := make(map[push.Origin]int)
	for _, by := range a.origins {
		for of, k := range by {
			if sums[of] += k; sums[of] > n || sums[of] == n && of.Kind == push.OfCampaign {
				o, n = of, sums[of]
			}
		}
	}
	return o, n
}

// forget takes out what an origin brought about.
func (a *appAnswers) forget(o push.Origin) {
	for i, by := range a.origins {
		n := by[o]
		a.answers[i], a.dead[i] = a.answers[i]-n, a.dead[i]-n
		delete(by, o)
	}
}
