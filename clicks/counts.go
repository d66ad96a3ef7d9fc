package clicks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Question is which reports of a user are counted.
type Question struct {
	User, App string
	Sender    string    // of the notifications; empty = of all
	From, To  time.Time // of days of Sent, both included, UTC
}

const selectReports = "SELECT event, type, sender, sent FROM clicks WHERE user = ? AND period = ? AND app = ? LIMIT ?"

// Counts counts reports by day, the latest first, and by type. more = there are so many that
// some were not looked at: the counts are too low.
func (s *Store) Counts(ctx context.Context, q *Question) (list []Count, more bool, err error) {
	leave, err := s.place(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	t := tally{q: q}
	var event int8
	var kind, sender string
	var sent time.Time
	for _, p := range append(between(dayOf(q.From), dayOf(q.To).Add(24*time.Hour)), timeless) {
		// One more than is counted, to see whether there is one.
		err := s.tables.Query(ctx, selectReports, []any{q.User, p, q.App, MostRows - t.looked + 1}, []any{&event, &kind, &sender, &sent}, func() {
			t.add(Event(event), kind, sender, sent)
		})
		if err != nil {
			return nil, false, fmt.Errorf("clicks: counting by type and day: %w", err)
		}
		if t.more {
			break
		}
	}
	return t.list(), t.more, nil
}

// tally adds up reports. It is used by one goroutine.
type tally struct {
	q      *Question
	looked int  // reports, counted or not
	more   bool // there was one more than may be looked at
	counts map[tallied]*Count
}

type tallied struct {
	day  time.Time
	kind string
}

func (t *tally) add(e Event, kind, sender string, sent time.Time) {
	if t.looked == MostRows {
		t.more = true
		return
	}
	t.looked++
	day := dayOf(sent)
	if t.q.Sender != "" && t.q.Sender != sender || day.Before(dayOf(t.q.From)) || day.After(dayOf(t.q.To)) {
		return
	}
	if t.counts == nil {
		t.counts = make(map[tallied]*Count)
	}
	c := t.counts[tallied{day, kind}]
	if c == nil {
		c = &Count{Day: day, Type: kind}
		t.counts[tallied{day, kind}] = c
	}
	switch e {
	case Clicked:
		c.Clicked++
	case Unsubscribed:
		c.Unsubscribed++
	}
}

// list is what was counted, the latest day first.
func (t *tally) list() []Count {
	list := make([]Count, 0, len(t.counts))
	for _, c := range t.counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Or(b.Day.Compare(a.Day), cmp.Compare(a.Type, b.Type)) })
	return list
}
