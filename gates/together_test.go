package gates_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// jury is a store for a worker that judges together with others: it has their word, and what
// this worker has told last.
type jury struct {
	*board
	told []gates.Evidence // guarded by board.mu, as the next two
	word []gates.Word
	asks int
}

func (j *jury) Consult(ctx context.Context, es []gates.Evidence) ([]gates.Pause, []gates.Word, error) {
	ps, err := j.Told(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told, j.asks = es, j.asks+1
	return ps, j.word, err
}

// inJury runs a test with a worker whose gates judge by a jury.
func inJury(t *testing.T, o gates.Options, test func(g *gateway, j *jury)) {
	synctest.Test(t, func(t *testing.T) {
		o.Together = true
		g, j := &gateway{t: t, now: time.Now(), reg: prometheus.NewRegistry()}, &jury{board: newBoard()}
		var err error
		if g.gates, err = gates.New([]push.Route{fcmShop, apnsShop}, o, gates.NewMetrics(g.reg), slog.New(slog.DiscardHandler), g.now); err != nil {
			t.Fatal(err)
		}
		g.gate = g.gates.Of(fcmShop)
		ctx, stop := context.WithCancel(t.Context())
		var sharing sync.WaitGroup
		sharing.Go(func() { g.gates.Share(ctx, j) })
		test(g, j)
		stop()
		sharing.Wait()
	})
}

// evidence is what the worker has told of its route; ok is false if that is nothing.
func (j *jury) evidence() (e gates.Evidence, ok bool) {
	j.set(func() {
		for i := range j.told {
			if j.told[i].Route == fcmShop {
				e, ok = j.told[i], true
			}
		}
	})
	return e, ok
}

// The odd error among many good answers is not worth a word, as long as nobody is closed:
// the others read all that is told, each second. Once one is, it counts that this worker is well.
func TestTheOddErrorIsNotTold(t *testing.T) {
	inJury(t, gateOptions(), func(g *gateway, j *jury) {
		second := func(goods, bads int) (gates.Evidence, bool) {
			g.sendNow(goods, good)
			g.sendNow(bads, broken)
			time.Sleep(time.Second + time.Millisecond)
			synctest.Wait()
			return j.evidence()
		}
		if e, ok := second(990, 10); ok {
			t.Errorf("told of 1 %% of bad answers: %+v", e)
		}
		j.set(func() { j.word = []gates.Word{{Route: fcmShop, Workers: 1, Closed: 1, Failing: 1, Bad: 30}} })
		second(0, 0)
		if e, ok := second(0, 0); !ok || e.Good != 990 || e.Bad != 10 {
			t.Errorf("told of %+v, %v, while another one is closed", e, ok)
		}
		j.set(func() { j.word = nil })
		second(0, 0)
		if e, ok := second(0, 0); ok {
			t.Errorf("told of %+v when no other one is closed any more", e)
		}
		if e, ok := second(0, 100); !ok || e.Bad != 110 {
			t.Errorf("told of %+v, %v, of 10 %% bad answers", e, ok)
		}
	})
}

// say has the others' word about the route be this from the next second on.
func (j *jury) say(w gates.Word) {
	w.Route = fcmShop
	j.set(func() { j.word = []gates.Word{w} })
	time.Sleep(time.Second + time.Millisecond)
	synctest.Wait()
}

// tries is how many of ten sends are let through now.
func (g *gateway) tries() []*sending {
	g.now = time.Now()
	return g.admit(10)
}

// closedBy is a worker whose answers close its route while another one's is closed too.
func (j *jury) closedBy(g *gateway, r push.Result, n int) {
	g.t.Helper()
	j.say(gates.Word{Workers: 1, Closed: 1, Failing: 1, Bad: 9})
	g.sendNow(n, r)
	if g.pause(fcmShop) == 0 {
		g.t.Fatal("the route is not closed")
	}
}

func togetherOptions() gates.Options {
	o := gateOptions()
	o.FirstProbes = 3
	return o
}

// That a worker's own credentials are refused is no evidence for others, who may have better
// ones: neither what halts its route nor its probes.
func TestARefusedKeyIsNoEvidence(t *testing.T) {
	inJury(t, togetherOptions(), func(g *gateway, j *jury) {
		for _, n := range []int{30, 1} {
			g.sendNow(n, badKey)
			if g.pause(fcmShop) == 0 {
				t.Fatal("not halted")
			}
			for range 3 {
				time.Sleep(time.Second)
				synctest.Wait()
				if e, ok := j.evidence(); ok {
					t.Errorf("told of %+v", e)
				}
			}
			time.Sleep(g.pause(fcmShop))
		}
	})
}

// When its pause is over a worker asks for probes, sends as many as it is granted, and tells
// what became of them, once.
func TestProbesAreAskedFor(t *testing.T) {
	inJury(t, togetherOptions(), func(g *gateway, j *jury) {
		j.closedBy(g, broken, 20)
		synctest.Wait()
		if e, _ := j.evidence(); !e.Closed || e.Asks || e.Bad != 20 || e.For <= 0 {
			t.Errorf("told of %+v, when it has closed", e)
		}
		time.Sleep(g.pause(fcmShop))
		if n := len(g.tries()); n > 0 {
			t.Fatalf("%d probes that nobody has granted", n)
		}
		time.Sleep(200 * time.Millisecond)
		if e, _ := j.evidence(); !e.Asks {
			t.Errorf("told of %+v, want that it asks for probes", e)
		}
		j.say(gates.Word{Closed: 1, Probes: 2})
		ds := g.tries()
		if len(ds) != 2 {
			t.Fatalf("%d probes, want the two that were granted", len(ds))
		}
		j.say(gates.Word{Closed: 1})
		g.now = time.Now()
		var told, second gates.Evidence
		g.answer(ds, good)
		synctest.Wait()
		told, _ = j.evidence()
		time.Sleep(time.Second)
		synctest.Wait()
		second, _ = j.evidence()
		if told.Answered.Good != 2 || told.Answered.Bad != 0 || second.Answered.Good != 0 {
			t.Errorf("told of %+v, and then of %+v, want two good answers once", told, second)
		}
		g.now = time.Now()
		g.send(2*2, good) // the next round is its own
		synctest.Wait()
		if e, _ := j.evidence(); e.Answered.Good != 0 {
			t.Errorf("told of %+v, of probes that nobody has granted", e)
		}
	})
}

// Whoever waits for the fleet does not for long, and not at all where that cannot answer.
func TestTheFleetIsNotWaitedForForLong(t *testing.T) {
	o := togetherOptions()
	inJury(t, o, func(g *gateway, j *jury) {
		j.closedBy(g, broken, 20)
		over := time.Now().Add(g.pause(fcmShop))
		for n := 0; n == 0; n = len(g.tries()) {
			if time.Sleep(100 * time.Millisecond); time.Since(over) > 3*o.ProbeTimeout {
				t.Fatal("no probe without a grant")
			}
		}
		if waited := time.Since(over); waited < 2*o.ProbeTimeout {
			t.Errorf("a probe without a grant after %v", waited)
		}
	})
	inJury(t, o, func(g *gateway, j *jury) {
		j.closedBy(g, broken, 20)
		j.set(func() { j.fails = true })
		time.Sleep(g.pause(fcmShop) + time.Second)
		if n := len(g.tries()); n != o.FirstProbes {
			t.Errorf("%d probes while the store is away, want its own %d", n, o.FirstProbes)
		}
	})
	inJury(t, o, func(g *gateway, j *jury) {
		j.closedBy(g, askedFor(5*time.Second), 1)
		time.Sleep(g.pause(fcmShop))
		if n := len(g.tries()); n != o.FirstProbes {
			t.Errorf("%d probes after a pause that the provider asked for, want %d at once", n, o.FirstProbes)
		}
	})
}

// The fleet's next round may be later than the end of a worker's pause, up to the longest one;
// and one that went well is passed on.
func TestTheFleetsRoundCounts(t *testing.T) {
	o := togetherOptions()
	for left, want := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, time.Hour: o.LongestPause} {
		inJury(t, o, func(g *gateway, j *jury) {
			j.closedBy(g, broken, 20)
			j.say(gates.Word{Closed: 1, Left: left})
			if got := g.pause(fcmShop); got < want-2*time.Second || got > want {
				t.Errorf("a pause of %v, with %v left until the next round: want %v", got, left, want)
			}
		})
	}
	inJury(t, o, func(g *gateway, j *jury) {
		j.closedBy(g, broken, 20)
		time.Sleep(g.pause(fcmShop))
		j.say(gates.Word{Closed: 1, Well: true})
		if n := len(g.tries()); n != 2*o.FirstProbes {
			t.Errorf("%d probes after a round of others that went well, want %d", n, 2*o.FirstProbes)
		}
	})
}

// A worker without answers of its own believes two others, and no single one; who has a good
// answer, or has just opened, believes itself.
func TestWhoIsBelieved(t *testing.T) {
	two := gates.Word{Workers: 2, Closed: 2, Failing: 2, Bad: 10}
	for _, tt := range []struct {
		why    string
		word   gates.Word
		own    []push.Result
		closes bool
	}{
		{"two are closed", two, nil, true},
		{"one is closed", gates.Word{Workers: 1, Closed: 1, Failing: 1, Bad: 1000}, nil, false},
		{"one is closed, and here is a bad answer", gates.Word{Workers: 1, Closed: 1, Failing: 1, Bad: 1000}, []push.Result{broken}, true},
		{"two see mostly bad ones", gates.Word{Workers: 2, Bad: 30, Good: 20}, nil, true},
		{"two see mostly good ones", gates.Word{Workers: 2, Bad: 30, Good: 31}, nil, false},
		{"two are closed that fail no more", gates.Word{Closed: 2}, nil, false},
		{"two are closed, and a push was accepted here", two, []push.Result{good}, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			o := gateOptions()
			o.Window, o.FirstPause = time.Minute, 10*time.Second
			inJury(t, o, func(g *gateway, j *jury) {
				time.Sleep(o.Window)
				for _, r := range tt.own {
					g.sendNow(1, r)
				}
				j.say(tt.word)
				if closed := g.pause(fcmShop) > 0; closed != tt.closes {
					t.Errorf("closed %v, want %v", closed, tt.closes)
				}
			})
		})
	}
	o := gateOptions()
	o.FullProbes, o.FirstPause = 1, 10*time.Second
	inJury(t, o, func(g *gateway, j *jury) {
		j.say(two)
		j.say(gates.Word{})
		time.Sleep(g.pause(fcmShop) + time.Millisecond) // and the fleet has been asked at its end
		synctest.Wait()
		g.sendNow(1, good) // a probe: it opens
		j.say(two)
		if g.pause(fcmShop) > 0 {
			t.Error("closed by others right after its own probes went well")
		}
		time.Sleep(o.Window)
		if g.pause(fcmShop) == 0 {
			t.Errorf("still open %v later, with others' evidence alone", o.Window)
		}
	})
}
