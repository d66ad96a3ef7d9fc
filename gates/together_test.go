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
