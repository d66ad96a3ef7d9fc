package quota

import (
	"testing"
	"time"
)

// Redis is away for so long that its clock is known to a second only: each gateway still has
// its part of each second, and what answers when Redis is back is not judged by a span that
// does not widen.
func TestRedisIsAwayForLong(t *testing.T) {
	for _, long := range []time.Duration{time.Minute, 5 * time.Minute, 20 * time.Minute} {
		t.Run(long.String(), func(t *testing.T) {
			inFleet(t, Options{Default: Limits{Second: 1000}}, func(f *fleet) {
				g := f.join()
				defer g.close()
				time.Sleep(2 * time.Second)
				g.fill(100 * time.Millisecond)
				f.redis.Close()
				g.fill(3 * time.Second)
				time.Sleep(long)
				got := 0 // of five times the limit
				for range 10_000 {
					taken, _ := g.take(5)
					got += taken.Len()
					time.Sleep(time.Millisecond)
				}
				if got < 9000 {
					t.Errorf("%d in ten seconds of 1,000 each, with Redis away for %s", got, long)
				}
				f.over(0)
			})
		})
	}
}

// A lease that is used long after an answer is no part of an outage: the span is as wide as the
// clocks may have come apart.
func TestSpan(t *testing.T) {
	for _, tt := range []struct {
		why   string
		away  bool
		after time.Duration
		wide  time.Duration
	}{
		{"at once", false, 0, time.Millisecond + time.Microsecond},
		{"after a quarter of an hour", false, 1024 * time.Second, 2*time.Second + time.Millisecond + time.Microsecond},
		{"after a quarter of an hour of an outage", true, 1024 * time.Second, 2*(carried>>10) + time.Millisecond + time.Microsecond},
	} {
		var c clock
		c.heard(int64(time.Hour), 0, int64(time.Millisecond))
		now := int64(time.Millisecond + tt.after)
		if earliest, latest := c.span(now, tt.away); time.Duration(latest-earliest) != tt.wide {
			t.Errorf("%s: %s wide, want %s", tt.why, time.Duration(latest-earliest), tt.wide)
		}
		c.heard(int64(time.Hour+time.Second+tt.after), now, now+int64(time.Second))
		if earliest, latest := c.span(now+int64(time.Second), false); earliest > int64(time.Hour+2*time.Second+tt.after) || latest < int64(time.Hour+time.Second+tt.after) {
			t.Errorf("%s: %s to %s when it has answered", tt.why, time.Duration(earliest), time.Duration(latest))
		}
	}
}

// What a gateway says of a sender before Redis has answered is by the wall clock, which is no
// evidence of Redis's: a batch without a valid line and a scrape of metrics ask for it.
func TestTheWallClockIsNoEvidence(t *testing.T) {
	inFleet(t, Options{Default: Limits{Second: 1000}}, func(f *fleet) {
		const ahead = 8 * time.Millisecond
		g := f.join()
		defer g.close()
		g.link.set(10 * time.Millisecond)
		g.link.skew(ahead)
		s := g.Of("a")
		s.Standings(nil)
		for range 3000 {
			g.take(1)
			time.Sleep(time.Millisecond)
		}
		s.mu.Lock()
		earliest, latest := s.clock.span(g.now(), false)
		s.mu.Unlock()
		if redis := time.Now().Add(ahead).UnixNano(); latest < redis || earliest > redis {
			t.Errorf("Redis's clock is taken to be %s to %s off its own", time.Duration(earliest-redis), time.Duration(latest-redis))
		}
	})
}
