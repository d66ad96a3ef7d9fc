package gates_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/gates"
)

func TestBudget(t *testing.T) {
	type step struct {
		passed        time.Duration
		earn          int
		take, granted int
	}
	o := gates.BudgetOptions{Share: 0.1, Floor: 10, Burst: 100}
	for _, row := range []struct {
		why   string
		steps []step
	}{
		{"starts full", []step{{0, 0, 101, 100}, {0, 0, 1, 0}}},
		{"the floor: 10 a second", []step{{0, 0, 100, 100}, {time.Second, 0, 100, 10}, {500 * time.Millisecond, 0, 100, 5}}},
		{"a tenth of what succeeds", []step{{0, 0, 100, 100}, {0, 200, 100, 20}, {0, 9, 1, 0}, {0, 1, 1, 1}}},
		{"never more than the burst", []step{{time.Hour, 1_000_000, 1000, 100}}},
		{"takes nothing, gets nothing", []step{{0, 0, 0, 0}, {0, 0, -5, 0}, {0, 0, 100, 100}}},
		{"time that goes back costs nothing", []step{{0, 0, 50, 50}, {-time.Second, 0, 60, 50}}},
		{"time that goes back earns nothing, and nothing twice", []step{{0, 0, 100, 100}, {-time.Second, 0, 1, 0}, {time.Second, 0, 1, 0}, {100 * time.Millisecond, 0, 5, 1}}},
	} {
		now := startTime
		b := gates.NewBudget(o, now)
		for i, s := range row.steps {
			now = now.Add(s.passed)
			b.Earn(now, s.earn)
			if got, _ := b.Take(now, s.take); got != s.granted {
				t.Errorf("%s: step %d: got %d of %d granted, want %d", row.why, i, got, s.take, s.granted)
			}
		}
	}
}

// Over any period, no more is granted than the burst, the floor and a share of
// the successes. What was not granted is available when Take said it would be.
func TestBudgetProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := gates.BudgetOptions{
			Share: float64(rapid.IntRange(0, 100).Draw(rt, "percent")) / 100,
			Floor: float64(rapid.IntRange(1, 1000).Draw(rt, "floor")) / 10,
			Burst: float64(rapid.IntRange(1, 5000).Draw(rt, "burst")),
		}
		now := startTime
		b := gates.NewBudget(o, now)
		successes, total := 0, 0
		for range rapid.IntRange(1, 300).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(0, 3_000_000).Draw(rt, "us")) * time.Microsecond)
			case 1:
				n := rapid.IntRange(0, 5000).Draw(rt, "successes")
				successes += n
				b.Earn(now, n)
			case 2:
				n := rapid.IntRange(0, 3000).Draw(rt, "wanted")
				got, again := b.Take(now, n)
				total += got
				switch {
				case got < 0 || got > n:
					rt.Fatalf("got %d of %d granted", got, n)
				case (got < n) != !again.IsZero():
					rt.Fatalf("got %d of %d granted, next try at %v", got, n, again)
				case got < n && !again.After(now):
					rt.Fatalf("next try is at once: the caller would spin")
				case got < n:
					now = again
					one, _ := b.Take(now, 1)
					if one != 1 {
						rt.Fatalf("no token at the named time")
					}
					total++
				}
			default:
				n := rapid.IntRange(0, total).Draw(rt, "returned")
				b.Return(n)
				total -= n
			}
			earned := o.Burst + o.Floor*now.Sub(startTime).Seconds() + o.Share*float64(successes)
			if float64(total) > earned+1e-6 {
				rt.Fatalf("got %d granted, but only %v earned", total, earned)
			}
		}
	})
}

func TestGatesEarnBudgets(t *testing.T) {
	g := newGateway(t, gateOptions())
	g.gate.Retries.Take(g.now, 2000)
	g.gate.DeadLetters.Take(g.now, 100)
	g.send(1000, good)
	g.send(400, broken)
	g.send(1, unsent)
	if n, _ := g.gate.Retries.Take(g.now, 1000); n != 100 {
		t.Errorf("got %d retries for 1000 deliveries, want 100", n)
	}
	if n, _ := g.gate.DeadLetters.Take(g.now, 1000); n != 10 {
		t.Errorf("got %d dead letters for 1000 deliveries, want 10", n)
	}
	if n, _ := g.gates.Of(apnsShop).Retries.Take(g.now, 10_000); n != 2000 {
		t.Errorf("got %d in the other route's budget, want its own 2000", n)
	}
}
