package quota

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"
)

// Two gateways under pressure: never more than the limit, and never much less.
func TestTwoGatewaysUnderPressure(t *testing.T) {
	for _, tt := range []struct {
		why       string
		perSecond [2]float64
		each      int
		delay     time.Duration
		least     int
	}{
		{"both send half more than they may", [2]float64{750, 750}, 1, time.Millisecond, 950},
		{"hardly more than they may", [2]float64{540, 540}, 1, time.Millisecond, 950},
		{"one sends nearly all", [2]float64{1000, 60}, 1, time.Millisecond, 950},
		{"five times as much", [2]float64{2500, 2500}, 1, time.Millisecond, 950},
		{"in batches", [2]float64{1000, 1000}, 100, time.Millisecond, 950},
		{"in batches of half the limit", [2]float64{2000, 2000}, 500, time.Millisecond, 950},
		{"singles beside large batches", [2]float64{300, 3000}, 300, time.Millisecond, 950},
		{"a Redis that takes 20 ms", [2]float64{750, 750}, 1, 10 * time.Millisecond, 950},
	} {
		t.Run(tt.why, func(t *testing.T) {
			inFleet(t, Options{Default: Limits{Second: 1000}}, func(f *fleet) {
				const seconds = 6
				for i, perSecond := range tt.perSecond {
					g := f.join()
					defer g.close()
					g.link.set(tt.delay)
					each := tt.each
					if i == 0 && tt.why == "singles beside large batches" {
						each = 1
					}
					g.load(perSecond, each, seconds*time.Second)
				}
				f.running.Wait()
				f.over(0)
				f.each(time.Second, 1, seconds-1, func(i, admitted, asked int) {
					if admitted < tt.least {
						t.Errorf("second %d: %d of %d were admitted, want at least %d", i, admitted, asked, tt.least)
					}
				})
			})
		})
	}
}

// What is well under the limit is never refused, and waits for nothing once it flows.
func TestWhatIsUnderTheLimitIsNotRefused(t *testing.T) {
	for _, tt := range []struct {
		why       string
		limits    Limits
		perSecond float64
		each      int
		gateways  int
	}{
		{"singles", Limits{Second: 1000, Minute: 50_000, Hour: 1_000_000}, 300, 1, 3},
		{"batches", Limits{Second: 1000}, 400, 100, 2},
		{"a small limit", Limits{Second: 20}, 7, 1, 2},
		{"a smaller one", Limits{Minute: 60}, 0.2, 1, 4},
	} {
		t.Run(tt.why, func(t *testing.T) {
			inFleet(t, Options{Default: tt.limits}, func(f *fleet) {
				for range tt.gateways {
					g := f.join()
					defer g.close()
					g.link.set(500 * time.Microsecond)
					g.load(tt.perSecond, tt.each, 5*time.Second)
				}
				f.running.Wait()
				f.over(0)
				f.each(time.Second, 0, 6, func(i, admitted, asked int) {
					if tt.limits.Second > 0 && admitted+tt.gateways*tt.each < asked { // of each one may wait for the next second
						t.Errorf("second %d: %d of %d were admitted", i, admitted, asked)
					}
				})
				f.each(time.Minute, 0, 1, func(_, admitted, asked int) {
					if admitted != asked {
						t.Errorf("%d of %d were admitted", admitted, asked)
					}
				})
			})
		})
	}
}

// Nobody waits for Redis while messages flow, also not where a window begins, and a refusal
// does not wait either.
func TestNobodyWaitsForRedis(t *testing.T) {
	inFleet(t, Options{Default: Limits{Second: 10_000, Minute: 30_000}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.link.set(2 * time.Millisecond)
		waited, refused := 0, 0
		for i := range 20_000 { // ten seconds, of which the limit of a minute is over after seven and a half
			taken, took := g.take(2)
			if i > 1000 && took > 0 {
				if waited++; took > 10*time.Millisecond {
					t.Errorf("message %d waited %s", i, took)
				}
			}
			if taken.Len() < 2 {
				refused++
			}
			time.Sleep(500*time.Microsecond - took)
		}
		if waited > 30 {
			t.Errorf("%d of 19,000 waited", waited)
		}
		if refused != 5000 {
			t.Errorf("%d were refused, want 5,000", refused)
		}
		f.over(0)
	})
}

// Of a limit that is used up at one gateway all know at once, and when it ends.
func TestSmallLimits(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 5}}, func(f *fleet) {
		a, b := f.join(), f.join()
		defer a.close()
		defer b.close()
		time.Sleep(2 * time.Second)
		for i := range 7 {
			g := []*gateway{a, b}[i%2]
			if got, took := g.take(1); got.Len() != min(max(5-i, 0), 1) || took > MaxWait {
				t.Errorf("message %d: %d were admitted after %s", i, got.Len(), took)
			}
		}
		st := a.Of("a").Standings(nil)
		if len(st) != 1 || st[0].Used != 5 || st[0].Remaining != 0 || st[0].Part || st[0].Reset < 57*time.Second || st[0].Reset > 58*time.Second {
			t.Errorf("stands at %+v", st)
		}
		if got, took := a.take(1); got.Len() != 0 || took > 0 {
			t.Errorf("%d after %s, and it is known that there is none", got.Len(), took)
		}
		time.Sleep(60 * time.Second)
		if got, _ := b.take(7); got.Len() != 5 {
			t.Errorf("in the next minute %d", got.Len())
		}
	})
}

// What is given back can be sent, and what is given back too late, or twice, cannot.
func TestReturn(t *testing.T) {
	inFleet(t, Options{Default: Limits{Second: 3, Minute: 10}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		s := g.Of("a")
		taken := s.Take(context.Background(), 3)
		for range 3 {
			s.Return(&taken, 2)
		}
		if taken.Len() != 0 {
			t.Fatalf("%d are still taken", taken.Len())
		}
		if again := s.Take(context.Background(), 9); again.Len() != 3 {
			t.Errorf("all was given back, and %d are admitted", again.Len())
		}
		time.Sleep(time.Second)
		late := s.Take(context.Background(), 3)
		time.Sleep(time.Second)
		s.Return(&late, 3)
		if got := s.Take(context.Background(), 9); got.Len() != 3 {
			t.Errorf("%d in a second, with those that came back of another one", got.Len())
		}
		time.Sleep(time.Second)
		if got := s.Take(context.Background(), 9); got.Len() != 3 {
			t.Errorf("%d, and 6 of the minute are used", got.Len())
		}
		time.Sleep(time.Second)
		if got := s.Take(context.Background(), 9); got.Len() != 1 {
			t.Errorf("%d, and 9 of the minute are used", got.Len())
		}
	})
}

// What comes back when nothing flows any more is there for the other gateways.
func TestWhatComesBackLate(t *testing.T) {
	inFleet(t, Options{Default: Limits{Hour: 1}}, func(f *fleet) {
		a, b := f.join(), f.join()
		defer a.close()
		defer b.close()
		taken, _ := a.take(1)
		time.Sleep(10 * time.Second)
		a.Of("a").Return(&taken, 1)
		time.Sleep(200 * time.Millisecond)
		if got, _ := b.take(1); got.Len() != 1 {
			t.Error("what came back is not there for another gateway")
		}
	})
}

// A gateway that dies takes what it held, and no more, and only until the window ends.
func TestADeadGatewayTakesItsChunk(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 10_000}}, func(f *fleet) {
		a, b := f.join(), f.join()
		defer a.close()
		b.load(500, 1, 5*time.Second)
		f.running.Wait()
		b.kill()
		admitted := 2500
		for range 30 {
			got, _ := a.take(1000)
			admitted += got.Len()
			time.Sleep(120 * time.Millisecond)
		}
		// It held what it needs in 120 ms: 60.
		if admitted < 9_900 || admitted > 10_000 {
			t.Errorf("%d were admitted, and the dead one held less than 100", admitted)
		}
		time.Sleep(time.Minute)
		admitted = 0
		for range 30 {
			got, _ := a.take(1000)
			admitted += got.Len()
			time.Sleep(120 * time.Millisecond)
		}
		if admitted != 10_000 {
			t.Errorf("%d were admitted in the next minute", admitted)
		}
	})
}

// One that ends gives back what it held.
func TestAGatewayThatEndsGivesBack(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1000}}, func(f *fleet) {
		a, b := f.join(), f.join()
		defer a.close()
		b.load(100, 1, 3*time.Second)
		f.running.Wait()
		b.close()
		admitted := 300
		for range 20 {
			got, _ := a.take(100)
			admitted += got.Len()
		}
		if admitted != 1000 {
			t.Errorf("%d were admitted", admitted)
		}
	})
}

// One that ends just before a window does gives back what it had leased of the next one, also
// where it has not heard of that lease.
func TestAGatewayThatEndsGivesBackTheNextWindow(t *testing.T) {
	for _, delay := range []time.Duration{0, 70 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			inFleet(t, Options{Default: Limits{Minute: 1000}}, func(f *fleet) {
				a, b := f.join(), f.join()
				defer a.close()
				time.Sleep(57 * time.Second)
				b.link.set(delay)
				b.load(200, 1, 2950*time.Millisecond)
				f.running.Wait()
				b.close()
				time.Sleep(time.Second)
				got := 0
				for range 50 {
					taken, _ := a.take(100)
					got += taken.Len()
					time.Sleep(20 * time.Millisecond)
				}
				if got != 1000 {
					t.Errorf("%d of 1,000 of the next minute", got)
				}
			})
		})
	}
}

// A sender that holds something of the next window asks until it has gone back.
func TestTheNextWindowGoesBack(t *testing.T) {
	q, err := New(nil, Options{Fleet: "f", Member: "g", Gateways: 1, Default: Limits{Hour: 1000}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := q.Of("a")
	s.guess(10 * int64(time.Second))
	s.busy, s.asked = true, 10*int64(time.Second)
	s.windows[0].next.held, s.windows[0].next.told = 5, true
	if _, ends := s.due(s.asked); ends {
		t.Error("it ends, and holds 5 of the next hour")
	}
	if a := s.ask(s.asked, false); s.windows[0].next.held != 0 || a.needs[0].parts[1].number < 0 || a.needs[0].parts[1].count != 0 {
		t.Errorf("it still holds %d, and asks %+v", s.windows[0].next.held, a.needs[0])
	}
	if _, ends := s.due(s.asked); !ends {
		t.Error("it asks for ever")
	}
}

// Random histories: gateways come, die, stand still and are slow, and never is there more than
// the limit in any window.
func TestNeverOverInAnyHistory(t *testing.T) {
	near := 0
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 15))
			limits := Limits{Second: 5 + chance.IntN(400), Minute: 500 + chance.IntN(2000)}
			limits.Hour = limits.Minute + chance.IntN(1000)
			inFleet(t, Options{Default: limits}, func(f *fleet) {
				time.Sleep(time.Duration(chance.IntN(60_000)) * time.Millisecond)
				gateways := []*gateway{f.join(), f.join()}
				for _, g := range gateways {
					g.load(float64(limits.Second), 1, 3*time.Second)
				}
				for range 25 {
					i := chance.IntN(len(gateways))
					g := gateways[i]
					switch chance.IntN(8) {
					case 0:
						g.kill()
						gateways[i] = f.join()
					case 1:
						g.close()
						gateways[i] = f.join()
					case 2:
						if len(gateways) < 4 {
							gateways = append(gateways, f.join())
						}
					case 3: // it stands still: what it asked comes when it goes on
						g.link.set(time.Duration(chance.IntN(200)) * time.Millisecond / 2)
					case 4:
						g.link.set(0)
					case 5:
						g.load(float64(1+chance.IntN(600)), 1+chance.IntN(3), time.Duration(chance.IntN(2000))*time.Millisecond)
					case 6:
						n := 1 + chance.IntN(300) // chance is for one goroutine
						f.running.Go(func() { g.take(n) })
					case 7:
						time.Sleep(time.Duration(chance.IntN(3000)) * time.Millisecond)
					}
					time.Sleep(time.Duration(chance.IntN(100)) * time.Millisecond)
				}
				f.running.Wait()
				for _, g := range gateways {
					g.close()
				}
				f.over(0)
				full := false
				for _, p := range limits.Policies() {
					for w, n := range f.asked {
						full = full || w.length == p.Window && n > p.Limit && f.admitted[w] > p.Limit/2
					}
				}
				if full {
					near++
				}
			})
		})
	}
	if near < 15 {
		t.Errorf("a limit was near in %d of 20 histories", near)
	}
}
