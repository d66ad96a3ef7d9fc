package gates_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// fixedRate lets so many through, and notes what it is told.
type fixedRate struct {
	left, urgent             int
	epoch                    uint32
	again                    time.Time
	good, overQuota, failing int
	told                     []uint32 // epochs
}

func (r *fixedRate) Take(now time.Time, urgent bool, n int) (int, uint32, time.Time) {
	left := &r.left
	if urgent && r.urgent > 0 {
		left = &r.urgent
	}
	n = min(n, *left)
	*left -= n
	return n, r.epoch, r.again
}

func (r *fixedRate) Epoch() uint32 { return r.epoch }

func (r *fixedRate) Answered(_ time.Time, epoch uint32, good, overQuota, failing int) {
	r.told = append(r.told, epoch)
	r.good, r.overQuota, r.failing = r.good+good, r.overQuota+overQuota, r.failing+failing
}

// rated is a gateway whose route has a rate.
func rated(t *testing.T, r *fixedRate) *gateway {
	o := gateOptions()
	o.Rates = map[push.Route]gates.Rate{fcmShop: r}
	return newGateway(t, o)
}

var (
	overQuota = push.Result{Class: push.Again, Scope: push.ScopeRoute, After: time.Minute, Pressure: push.OverQuota, Reason: "RATE_LIMIT_EXCEEDED"}
	failing   = push.Result{Class: push.Again, Scope: push.ScopeRoute, After: 10 * time.Second, Pressure: push.Failing, Reason: "UNAVAILABLE"}
)

// The gate asks the rate for what it would let through itself, and no more; what the
// rate does not allow is short of the rate, and not of the route.
func TestARateIsAskedLast(t *testing.T) {
	r := &fixedRate{left: 7, urgent: 2, again: startTime.Add(5 * time.Millisecond)}
	g := rated(t, r)
	_, n, _, _ := g.gate.Admit(g.now, gates.Free, false, 10)
	if n != 7 {
		t.Errorf("let %d through, want the 7 that the rate allows", n)
	}
	if _, n, again, lack := g.gate.Admit(g.now, gates.Free, false, 10); n != 0 || lack != gates.RateSpent || !again.Equal(r.again) {
		t.Errorf("then %d, short of %s, again at %v", n, lack, again)
	}
	if _, n, _, _ := g.gate.Admit(g.now, gates.Free, true, 10); n != 2 {
		t.Errorf("let %d urgent ones through, want 2", n)
	}
	tokens := func() int {
		n, _ := g.gate.Retries.Take(g.now, 1<<20)
		g.gate.Retries.Return(n)
		return n
	}
	before := tokens()
	if _, n, _, lack := g.gate.Admit(g.now, gates.Retry, false, 10); n != 0 || lack != gates.RateSpent || tokens() != before {
		t.Errorf("%d retries, short of %s, which cost %d tokens; want none", n, lack, before-tokens())
	}
	// A probe needs a token too; a closed gate takes none.
	g.answer(g.admitOther(t, r), askedFor(time.Minute))
	r.left = 5
	if _, n, _, lack := g.gate.Admit(g.now, gates.Free, false, 5); n != 0 || lack != gates.RouteStopped || r.left != 5 {
		t.Errorf("while it is closed: %d, short of %s, %d left of the rate's 5", n, lack, r.left)
	}
	g.pass(time.Minute)
	r.left = 0
	if _, n, _, lack := g.gate.Admit(g.now, gates.Free, false, 5); n != 0 || lack != gates.RateSpent {
		t.Errorf("a probe without a token: %d, short of %s", n, lack)
	}
	r.left = 5
	if _, n, _, _ := g.gate.Admit(g.now, gates.Free, false, 5); n != 1 || r.left != 4 {
		t.Errorf("%d probes, which took %d; want one", n, 5-r.left)
	}
}

// admitOther lets one send through, whatever is left.
func (g *gateway) admitOther(t *testing.T, r *fixedRate) []*sending {
	t.Helper()
	r.left = 1
	return g.admit(1)
}

// A rate is told of answers to sends of its epoch: what they say of the provider, and
// nothing of what only a connection, a device or our own code had to do with.
func TestARateHearsOfAnswers(t *testing.T) {
	r := &fixedRate{left: 1000, epoch: 3}
	g := rated(t, r)
	for _, result := range []push.Result{good, gone, refused, overQuota, failing, away, timedOut, tooMany, unsent, expired, unfit, badKey} {
		g.answer(g.admit(1), result)
	}
	if r.good != 3 || r.overQuota != 1 || r.failing != 1 {
		t.Errorf("it heard of %d good ones, %d over quota and %d failing, want 3, 1 and 1", r.good, r.overQuota, r.failing)
	}
	g = rated(t, r)
	*r = fixedRate{left: 1000, epoch: 3}
	stale := g.admit(10)
	r.epoch = 4
	g.answer(stale, overQuota)
	if len(r.told) > 0 {
		t.Errorf("it heard of answers of epoch 3 as those of %v", r.told)
	}
	late := g.admit(2)
	r.epoch = 5
	g.answer(late, good)
	if len(r.told) != 1 || r.told[0] != 4 || r.good != 2 {
		t.Errorf("it heard of %d good answers, of epochs %v; want the 2 that the provider has counted, as those of epoch 4", r.good, r.told)
	}
}
