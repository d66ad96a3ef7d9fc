package quota

import (
	"context"
	"testing"
	"time"
)

// fill is a gateway's attempt to send as much as it can, for some time.
func (g *gateway) fill(long time.Duration) (admitted int) {
	for began := time.Now(); time.Since(began) < long; time.Sleep(10 * time.Millisecond) {
		taken, _ := g.take(25)
		admitted += taken.Len()
	}
	return admitted
}

// Without Redis each of N gateways admits its part, and no more: of the window in which Redis went
// away of what was left, and then of the limit.
func TestRedisIsAway(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1000}}, func(f *fleet) {
		gateways := []*gateway{f.join(), f.join(), f.join(), f.join()}
		for _, g := range gateways {
			defer g.close()
		}
		time.Sleep(2 * time.Second)
		first := gateways[0].fill(200 * time.Millisecond)
		for first < 600 {
			taken, _ := gateways[0].take(min(25, 600-first))
			first += taken.Len()
		}
		for _, g := range gateways[1:] { // they hear of it
			if taken, _ := g.take(1); taken.Len() != 1 {
				f.t.Fatal("one was refused")
			}
		}
		left := 1000 - first - 3
		f.redis.Close()
		time.Sleep(3 * time.Second)
		if got := gateways[0].fill(5 * time.Second); got > 0 && first > 250 {
			t.Errorf("it had %d, a quarter is 250, and it got %d more", first, got)
		}
		for i, g := range gateways[1:] {
			// What it held as a lease comes on top: next to nothing, of a limit like this.
			if got := g.fill(5 * time.Second); got > left/4+25 || got < left/4-25 {
				t.Errorf("gateway %d admits %d, %d were left", i+1, got, left)
			}
		}
		f.over(0)
		time.Sleep(time.Minute)
		for i, g := range gateways {
			if got := g.fill(5 * time.Second); got != 250 {
				t.Errorf("gateway %d admits %d of the next minute, want 250", i, got)
			}
			if st := g.Of("a").Standings(nil)[0]; !st.Part || st.Remaining != 0 {
				t.Errorf("gateway %d stands at %+v", i, st)
			}
		}
		if err := f.redis.Restart(); err != nil {
			f.t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for i, g := range gateways {
			if got := g.fill(time.Second); got != 0 {
				t.Errorf("gateway %d admits %d when all is used up and Redis is back", i, got)
			}
			if st := g.Of("a").Standings(nil)[0]; st.Part || st.Used != 1000 {
				t.Errorf("gateway %d stands at %+v", i, st)
			}
		}
		time.Sleep(time.Minute)
		if got := gateways[2].fill(5 * time.Second); got != 1000 {
			t.Errorf("of the minute after that %d", got)
		}
		f.over(0)
	})
}

// A gateway that has never reached Redis admits a part of the limit, as configured.
func TestRedisWasNeverThere(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1000, Hour: 2100}, Gateways: 5}, func(f *fleet) {
		f.redis.Close()
		g := f.join()
		defer g.close()
		for minute, want := range []int{200, 200, 20, 0} {
			if got := g.fill(30 * time.Second); got != want {
				t.Errorf("minute %d: %d, want %d", minute, got, want)
			}
			time.Sleep(30 * time.Second)
		}
		if taken, took := g.take(1); taken.Len() != 0 || took > 0 {
			t.Errorf("it waits %s for nothing", took)
		}
	})
}

// A limit that has no whole part for each is 0, and not unlimited.
func TestALimitBelowTheGateways(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 3}, Gateways: 4}, func(f *fleet) {
		f.redis.Close()
		g := f.join()
		defer g.close()
		if got := g.fill(10 * time.Second); got != 0 {
			t.Errorf("%d were admitted", got)
		}
	})
}

// Redis loses everything, again and again, and hears of all that was used from those who used it.
func TestRedisIsWiped(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 3000}}, func(f *fleet) {
		gateways := []*gateway{f.join(), f.join(), f.join()}
		for _, g := range gateways {
			defer g.close()
		}
		for _, g := range gateways {
			g.load(300, 1, 10*time.Second)
		}
		for range 5 {
			time.Sleep(time.Second)
			f.redis.Wipe()
		}
		f.running.Wait()
		f.over(0)
		got := 0
		for range 60 {
			for _, g := range gateways {
				taken, _ := g.take(10)
				got += taken.Len()
			}
			time.Sleep(100 * time.Millisecond)
		}
		f.over(0)
		f.each(time.Minute, 0, 1, func(_, admitted, asked int) {
			if admitted < 2950 {
				t.Errorf("%d of %d were admitted", admitted, asked)
			}
		})
	})
}

// Redis is wiped when the gateway that used the limit up sends nothing more: it tells within a second.
// Who asks sooner gets what others had once more, and not more than that.
func TestRedisIsWipedWhileAGatewayIsSilent(t *testing.T) {
	for after, over := range map[time.Duration]int{0: 1000, 1100 * time.Millisecond: 0, 10 * time.Second: 0} {
		t.Run(after.String(), func(t *testing.T) {
			inFleet(t, Options{Default: Limits{Hour: 1000}}, func(f *fleet) {
				a, b := f.join(), f.join()
				defer a.close()
				defer b.close()
				time.Sleep(2 * time.Second)
				if got := a.fill(time.Second); got != 1000 {
					t.Errorf("%d of 1,000 at first", got)
				}
				time.Sleep(10 * time.Second)
				f.redis.Wipe()
				time.Sleep(after)
				b.fill(time.Second)
				time.Sleep(2 * time.Second)
				b.fill(time.Second)
				f.over(over)
				if s := a.Of("a"); after > 0 {
					s.mu.Lock()
					if s.busy {
						t.Error("it still asks")
					}
					s.mu.Unlock()
				}
			})
		})
	}
}

// A slow Redis is no reason to refuse what could be admitted, as long as it answers in time,
// nor to admit more.
func TestASlowRedis(t *testing.T) {
	for _, delay := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} { // of each direction
		t.Run(delay.String(), func(t *testing.T) {
			inFleet(t, Options{Default: Limits{Second: 1000, Minute: 100_000}}, func(f *fleet) {
				for range 2 {
					g := f.join()
					defer g.close()
					g.link.set(delay)
					g.load(350, 1, 8*time.Second)
				}
				f.running.Wait()
				f.over(0)
				f.each(time.Second, 3, 7, func(i, admitted, asked int) {
					if delay < 50*time.Millisecond && admitted < 650 {
						t.Errorf("second %d: %d of %d were admitted", i, admitted, asked)
					}
				})
			})
		})
	}
}

// What is under the limit is not refused for ever where Redis answers after a message has waited
// for it: what comes too late is kept for who comes again.
func TestASlowRedisAndFewMessages(t *testing.T) {
	for _, tt := range []struct {
		why   string
		limit Limits
		delay time.Duration // of each direction
		pause time.Duration
		each  int
		least int // of 20
	}{
		{"a small limit", Limits{Minute: 60}, 40 * time.Millisecond, time.Second, 1, 15},
		{"as callers come again", Limits{Minute: 60}, 40 * time.Millisecond, 2 * time.Second, 1, 15},
		{"a small limit of seconds", Limits{Second: 20}, 40 * time.Millisecond, 2010 * time.Millisecond, 1, 15},
		{"a batch", Limits{Minute: 90}, 40 * time.Millisecond, 2 * time.Second, 3, 15},
		{"few under a large limit", Limits{Second: 100_000}, 40 * time.Millisecond, 2010 * time.Millisecond, 1, 15},
		{"a Redis that is slower still", Limits{Minute: 60}, 150 * time.Millisecond, 2 * time.Second, 1, 15},
	} {
		t.Run(tt.why, func(t *testing.T) {
			inFleet(t, Options{Default: tt.limit}, func(f *fleet) {
				g := f.join()
				defer g.close()
				g.link.set(tt.delay)
				time.Sleep(2 * time.Second)
				got := 0
				for range 20 {
					taken, _ := g.take(tt.each)
					got += taken.Len()
					time.Sleep(tt.pause)
				}
				if got < tt.least*tt.each {
					t.Errorf("%d of %d messages under the limit were admitted", got, 20*tt.each)
				}
				f.over(0)
				time.Sleep(5 * time.Second)
				s := g.Of("a")
				s.mu.Lock()
				defer s.mu.Unlock()
				if held := s.windows[0].cur.held; held != 0 || s.busy {
					t.Errorf("it holds %d, and asks: %t, when nobody comes again", held, s.busy)
				}
			})
		})
	}
}

// One that answers after more than a second is one that is away: each has its part.
func TestARedisThatIsTooSlow(t *testing.T) {
	inFleet(t, Options{Default: Limits{Second: 1000}}, func(f *fleet) {
		gateways := []*gateway{f.join(), f.join()}
		time.Sleep(2 * time.Second)
		for _, g := range gateways {
			defer g.close()
			g.load(800, 1, 10*time.Second)
		}
		time.Sleep(2 * time.Second)
		for _, g := range gateways {
			g.link.set(700 * time.Millisecond)
		}
		f.running.Wait()
		f.each(time.Second, 4, 9, func(i, admitted, asked int) {
			if admitted != 1000 {
				t.Errorf("second %d: %d of %d were admitted, want half of the limit at each", i, admitted, asked)
			}
		})
	})
}

// A gateway whose wall clock is wrong admits as the others do: by Redis's clock. Here it is
// Redis's that is wrong, which is the same.
func TestClocksThatDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, -400 * time.Millisecond, 300 * time.Millisecond, 49 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			inFleet(t, Options{Default: Limits{Second: 1000, Hour: 3000}}, func(f *fleet) {
				g := f.join()
				defer g.close()
				time.Sleep(10 * time.Minute)
				g.link.skew(ahead)
				started := time.Now()
				byRedis := map[int64]int{}
				for time.Since(started) < 4*time.Second {
					taken, _ := g.take(5)
					byRedis[time.Now().Add(ahead).Unix()] += taken.Len()
					time.Sleep(time.Millisecond)
				}
				all := 0
				for second, n := range byRedis {
					all += n
					if n > 1000 {
						t.Errorf("%d in second %d of Redis", n, second)
					}
				}
				if all != 3000 {
					t.Errorf("%d of the 3,000 of an hour in four seconds of five times the limit", all)
				}
			})
		})
	}
}

// Redis's clock goes back, as after a fail-over: what was used of that window stays used.
func TestRedisGoesBack(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 500}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		at := time.Now().Add(time.Minute)
		f.redis.Mini.SetTime(at)
		if got := g.fill(time.Second); got != 500 {
			f.t.Fatalf("%d at first", got)
		}
		f.redis.Mini.SetTime(at.Add(time.Minute))
		if got := g.fill(time.Second); got != 500 {
			f.t.Fatalf("%d in the next minute", got)
		}
		f.redis.Mini.SetTime(at.Add(time.Second))
		if got := g.fill(2 * time.Second); got != 0 {
			t.Errorf("%d when it is the minute before again", got)
		}
		f.redis.Mini.SetTime(at.Add(62 * time.Second))
		if got := g.fill(2 * time.Second); got != 0 {
			t.Errorf("%d when the next minute comes again", got)
		}
	})
}

// Who goes away while he waits gets nothing, and takes nothing.
func TestWhoGoesAwayTakesNothing(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 5}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.link.set(20 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if taken := g.Of("a").Take(ctx, 5); taken.Len() != 0 {
			t.Errorf("%d", taken.Len())
		}
		time.Sleep(time.Second)
		if taken, _ := g.take(9); taken.Len() != 5 {
			t.Errorf("%d of 5 are left", taken.Len())
		}
	})
}
