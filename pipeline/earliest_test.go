package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/push"
)

// crowd is a line of one partition whose records expire, and what a slow model knows of
// it: every record that ever came, in the order of turns.
type crowd struct {
	clock   time.Time
	line    *line
	tracker *Tracker
	offset  int64
	order   []*person // also those that were taken: their turns are still to pass
	ahead   []*Batch  // admitted, and not put yet
}

type person struct {
	d     *Delivery
	waits bool
	turn  time.Time // zero = it has not come
}

func newCrowd() *crowd {
	shop := push.Route{Platform: push.APNS, App: "shop"}
	c := &crowd{
		clock: time.Date(2026, 11, 26, 3, 4, 5, 6e8, time.UTC), line: &line{route: &route{Route: shop}, waiting: newTurns(true)},
		tracker: NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 1 << 20}),
	}
	c.line.waiting.now = func() time.Time { return c.clock }
	return c
}

func (c *crowd) sleep(d time.Duration) { c.clock = c.clock.Add(d) }

// batch admits records that expire after so long: 0 = never, less = they are critical.
func (c *crowd) batch(expire ...time.Duration) *Batch {
	b := &Batch{Tracker: c.tracker, Items: make([]Item, len(expire))}
	for i, after := range expire {
		it := &b.Items[i]
		it.ID, it.Offset, it.Priority = fmt.Sprint(c.offset), c.offset, push.Low
		c.offset++
		switch {
		case after < 0:
			it.Priority = push.Critical
		case after > 0:
			it.ExpiresAt = c.clock.Add(after)
		}
		it.Deliveries = []Delivery{{Item: it, Route: c.line.Route, Device: Device{Hash: it.ID}}}
	}
	c.tracker.Admit(b)
	return b
}

// put puts a batch into the line and the model.
func (c *crowd) put(b *Batch) {
	if c.first() == len(c.order) { // nobody waits, so nobody's turn is still to pass
		c.order = nil
	}
	var ds []*Delivery
	var came []*person
	for i := range b.Items {
		d := &b.Items[i].Deliveries[0]
		ds, came = append(ds, d), append(came, &person{d: d, waits: true})
	}
	at := len(c.order)
	for at > 0 && c.order[at-1].d.Item.Offset > ds[0].Item.Offset {
		at--
	}
	if at = max(at, c.first()); at < len(c.order) { // ahead of others: as if it had been there with them
		for _, p := range came {
			p.turn = c.order[at].turn
		}
	}
	c.order = slices.Insert(c.order, at, came...)
	c.line.waiting.put(c.line, ds)
}

// first is the index of the first that waits.
func (c *crowd) first() int {
	if at := slices.IndexFunc(c.order, func(p *person) bool { return p.waits }); at >= 0 {
		return at
	}
	return len(c.order)
}

// next is what the rules say is taken next.
func (c *crowd) next(now time.Time, first bool) *person {
	var best *person
	for _, p := range c.order {
		if !p.waits {
			continue
		}
		if best == nil {
			best = p
		}
		if seq, full := c.tracker.holder(); first && full && p.d.Item.seq == seq && p.d.Item.batch == best.d.Item.batch {
			return p // not ahead of what came back
		}
	}
	if best == nil || !best.turn.IsZero() && now.Sub(best.turn) >= Overtaken {
		return best
	}
	for _, p := range c.order {
		if p.waits && expirySecond(p.d.Item) < expirySecond(best.d.Item) {
			best = p
		}
	}
	return best
}

// take takes at most n and returns them, each of which is what the rules say.
func (c *crowd) take(t interface{ Fatalf(string, ...any) }, n int) []*Delivery {
	now := c.clock
	waiting := 0
	for _, p := range c.order {
		if p.waits {
			waiting++
		}
	}
	if got := len(c.line.waiting.next(nil, n)); got != min(n, waiting) {
		t.Fatalf("next returns %d of %d, but %d wait", got, n, waiting)
	}
	group := c.line.waiting.take(nil, n)
	if len(group) != min(n, waiting) {
		t.Fatalf("took %d of %d, but %d wait", len(group), n, waiting)
	}
	for i, d := range group {
		want := c.next(now, i == 0)
		p := c.order[slices.IndexFunc(c.order, func(p *person) bool { return p.d == d && p.waits })]
		if p != want && (expirySecond(d.Item) != expirySecond(want.d.Item) || !want.turn.IsZero() && now.Sub(want.turn) >= Overtaken) {
			t.Fatalf("place %d: got %s (second %d), want %s (second %d, turn %v, now %v)", i, d.Item.ID, expirySecond(d.Item), want.d.Item.ID, expirySecond(want.d.Item), want.turn, now)
		}
		p.waits = false
	}
	c.pass(len(group), now)
	return group
}

// pass lets n turns pass.
func (c *crowd) pass(n int, now time.Time) {
	for _, p := range c.order {
		if n > 0 && p.turn.IsZero() {
			p.turn = now
			n--
		}
	}
}

// putBack puts back what was taken.
func (c *crowd) putBack(ds []*Delivery) {
	turn := c.clock.Add(-Overtaken)
	at := c.first()
	if at < len(c.order) && !c.order[at].turn.IsZero() && c.order[at].turn.Before(turn) {
		turn = c.order[at].turn
	}
	back := make([]*person, len(ds))
	for i, d := range ds {
		back[i] = &person{d: d, waits: true, turn: turn}
	}
	c.order = slices.Insert(c.order, at, back...)
	c.line.waiting.putBack(ds[0].share, ds)
}

// Among what waits of a partition, what a full tracker waits for goes first, then what
// has been overtaken for 5 s since its turn, then what expires soonest: after any history
// of batches that come in any order, are taken at any pace, come back and are removed.
func TestWhatExpiresFirstIsSentFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd()
		var taken []*Delivery
		after := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Just(24*time.Hour), rapid.Just(-time.Second),
			rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.IntRange(1, 30_000).Draw(t, "ms")) * time.Millisecond
			}))
		t.Repeat(map[string]func(*rapid.T){
			"poll": func(t *rapid.T) {
				c.ahead = append(c.ahead, c.batch(rapid.SliceOfN(after, 1, 20).Draw(t, "expire")...))
			},
			"put": func(t *rapid.T) {
				if len(c.ahead) > 0 {
					i := rapid.IntRange(0, min(len(c.ahead)-1, 2)).Draw(t, "batch")
					c.put(c.ahead[i])
					c.ahead = slices.Delete(c.ahead, i, i+1)
				}
			},
			"take": func(t *rapid.T) {
				taken = append(taken, c.take(t, rapid.IntRange(1, 15).Draw(t, "n"))...)
			},
			"wait": func(t *rapid.T) {
				c.sleep(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"done": func(t *rapid.T) {
				n := rapid.IntRange(0, len(taken)).Draw(t, "n")
				var items []*Item
				for _, d := range taken[:n] {
					items = append(items, d.Item)
				}
				c.tracker.Done(items)
				taken = taken[n:]
			},
			"full": func(t *rapid.T) { c.tracker.SetFull(rapid.Bool().Draw(t, "full")) },
			"come back": func(t *rapid.T) {
				if n := rapid.IntRange(0, min(3, len(taken))).Draw(t, "n"); n > 0 {
					c.putBack(taken[:n])
					taken = taken[n:]
				}
			},
			"remove": func(t *rapid.T) {
				digit := fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "digit"))
				gone := c.line.waiting.remove(func(d *Delivery) bool { return d.Item.ID == digit })
				c.order = slices.DeleteFunc(c.order, func(p *person) bool {
					goes := p.waits && p.d.Item.ID == digit
					if goes && !slices.Contains(gone, p.d) {
						t.Fatalf("%s is not removed", digit)
					}
					return goes
				})
			},
		})
		c.tracker.SetFull(false)
		for len(c.line.waiting.next(nil, 1)) > 0 {
			c.take(t, 10)
		}
		for _, s := range c.line.waiting.shares {
			if e := s.waiting.(*earliest); e.count != 0 || len(e.places) != 0 || len(e.soonest) != 0 || e.turned != 0 || e.early != 0 {
				t.Fatalf("empty, it has %d places, a heap of %d, %d and %d turns", len(e.places), len(e.soonest), e.turned, e.early)
			}
		}
	})
}

// At an even pace nothing waits longer than 5 s beyond its turn, although what comes
// always expires sooner; and the last that came, if it expires first, goes at once.
func TestNothingIsOvertakenForMoreThanFiveSeconds(t *testing.T) {
	const group, pace = 10, 100 * time.Millisecond // 100 a second
	c := newCrowd()
	begun := c.clock
	for i := range 40 { // 2,000 records: 20 s, each of which expires before those ahead of it
		expire := make([]time.Duration, 50)
		for j := range expire {
			expire[j] = time.Duration(5000-i*50-j) * time.Second
		}
		c.put(c.batch(expire...))
	}
	c.put(c.batch(30 * time.Second))
	for place := 0; place < 2001; place += group {
		for _, d := range c.take(t, group) {
			turn := time.Duration(d.Item.Offset/group) * pace
			if late := c.clock.Sub(begun) - turn; late > Overtaken+pace {
				t.Errorf("record %d went %v after its turn", d.Item.Offset, late)
			}
			if d.Item.Offset == 2000 && place > 0 {
				t.Errorf("what expired first went at place %d", place)
			}
		}
		c.sleep(pace)
	}
}

// The partition with the earliest goes first, and each has one turn in a round.
func TestTheRoundBeginsWithTheEarliest(t *testing.T) {
	l := &line{route: &route{}, waiting: newTurns(true)}
	put := func(partition string, n int, expires time.Duration) {
		ds := waitingFor(partition, n)
		for _, d := range ds {
			d.Item.Priority, d.Item.ExpiresAt = push.Low, time.Now().Add(expires)
		}
		l.waiting.put(l, ds)
	}
	take := func(n int, want string) {
		t.Helper()
		if got := hashes(l.waiting.take(nil, n)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	put("a", 6, 24*time.Hour)
	put("b", 2, time.Hour)
	put("c", 2, time.Minute)
	take(2, "c0 c1")
	put("c", 1, time.Second) // again, but c has had its turn
	take(2, "b0 b1")
	take(2, "a0 a1")
	take(2, "c0 a2") // the next round; what is left of c's turn is the next one's
	put("b", 1, time.Minute)
	take(1, "b0")
	take(3, "a3 a4 a5")
}

// Deliveries of a batch that is done do not stay in a line because others of their
// partition wait: neither in the order in which they came nor in that of their expiry.
func TestWhatIsTakenIsLetGo(t *testing.T) {
	c := newCrowd()
	c.put(c.batch(0, time.Hour, time.Hour, time.Hour, time.Hour))
	for range 100 {
		c.put(c.batch(24*time.Hour, 24*time.Hour, time.Hour))
		c.take(t, 3)
		c.sleep(6 * time.Second) // so that what has a day is overdue
	}
	for _, s := range c.line.waiting.shares {
		e := s.waiting.(*earliest)
		if len(e.soonest) > 2*e.count+1 || len(e.places) > 30 {
			t.Errorf("%d wait: %d places, a heap of %d", e.count, len(e.places), len(e.soonest))
		}
	}
}
