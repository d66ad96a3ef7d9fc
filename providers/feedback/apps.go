package feedback

import (
	"errors"
	"sync"
	"time"
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

// Believe counts answers about devices of an app, of which so many called a token dead,
// and reports whether these are to be removed.
func (g *AppGuard) Believe(app string, answers, dead int, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.apps[app]
	if a == nil {
		a = new(appAnswers)
		g.apps[app] = a
	}
	all, gone := a.count(now.UnixNano()/int64(g.options.Window/slots), answers, dead)
	return all < g.options.Answers || float64(gone) <= g.options.Share*float64(all)
}

// slots are the parts of a window: its oldest answers are forgotten a slot at a time.
const slots = 10

// appAnswers are the answers about one app, in the latest slots. Numbers of slots only
// grow: what a clock that was set back brings counts in the latest.
type appAnswers struct {
	latest        int64
	answers, dead [slots]int
}

// count adds to a slot, and returns the sums of the window that ends with it.
func (a *appAnswers) count(slot int64, answers, dead int) (all, gone int) {
	for n := max(a.latest+1, slot-slots+1); n <= slot; n++ {
		a.answers[n%slots], a.dead[n%slots] = 0, 0
	}
	a.latest = max(a.latest, slot)
	a.answers[a.latest%slots] += answers
	a.dead[a.latest%slots] += dead
	for i := range slots {
		all, gone = all+a.answers[i], gone+a.dead[i]
	}
	return all, gone
}
