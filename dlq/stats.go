package dlq

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Count counts dead letters of one value.
type Count struct {
	Value   string `json:"value"` // empty: it has none
	Records int    `json:"records"`
	Open    int    `json:"open"`    // neither redriven nor dismissed
	Expired int    `json:"expired"` // of the open ones: a redrive would no longer send them
}

func (c *Count) add(r *record, expired bool) {
	c.Records++
	if r.marked {
		return
	}
	c.Open++
	if expired {
		c.Expired++
	}
}

// kinds are the properties that are counted by.
var kinds = [...]string{"lane", "reason", "last_answer", "app", "sender", "provider", "day"}

// Kinds are the keys of Stats.By, in display order.
func Kinds() []string { return slices.Clone(kinds[:]) }

// Stats are the numbers of dead letters, by kind and value. A letter for both
// providers counts for each. Its JSON keys are those of `pushctl dlq stats`.
type Stats struct {
	Records int `json:"records"`
	Open    int `json:"open"`
	Expired int `json:"expired"`
	// By has the values of each kind, the most frequent first; days (UTC, of
	// dead-lettering) have the newest first.
	By map[string][]Count `json:"by"`
}

// StatsOptions say which dead letters to count.
type StatsOptions struct {
	Filter                 // Marked is always on: the counts tell the open ones from all
	Top      int           // at most this many values of each kind; 0 = all
	Progress func(Reading) // as in ListOptions
}

// Check finds invalid options. The error is an *OptionError.
func (o *StatsOptions) Check() error {
	if err := o.Filter.Check(); err != nil {
		return err
	}
	return notNegative("top", o.Top)
}

// Stats counts the dead letters that pass the filter.
func (q *Queues) Stats(ctx context.Context, o StatsOptions) (Stats, error) {
	if err := o.Check(); err != nil {
		return Stats{}, err
	}
	o.Marked = true
	t, now := newTally(), time.Now()
	if err := q.each(ctx, &o.Filter, o.Progress, func(r *record) error { t.add(r, now); return nil }); err != nil {
		return Stats{}, err
	}
	return t.stats(o.Top), nil
}

// tally counts by kind and value. It belongs to one goroutine.
type tally struct {
	total Count
	by    map[string]map[string]*Count
}

func newTally() *tally {
	t := &tally{by: make(map[string]map[string]*Count)}
	for _, kind := range kinds {
		t.by[kind] = make(map[string]*Count)
	}
	return t
}

func (t *tally) add(r *record, now time.Time) {
	expired := r.expired(now)
	t.total.add(r, expired)
	count := func(kind, value string) {
		c := t.by[kind][value]
		if c == nil {
			value = strings.Clone(value) // cloned: it shares memory with a record
			c = &Count{Value: value}
			t.by[kind][value] = c
		}
		c.add(r, expired)
	}
	count("lane", r.lane.Name)
	count("reason", r.Reason)
	count("last_answer", r.lastAnswer())
	count("app", r.message.App)
	count("sender", r.message.SenderID)
	count("day", r.Timestamp.UTC().Format(time.DateOnly))
	providers := r.providers()
	if len(providers) == 0 {
		providers = []string{""}
	}
	for _, p := range providers {
		count("provider", p)
	}
}

// stats are the most frequent values of each kind, days in their order.
func (t *tally) stats(top int) Stats {
	s := Stats{Records: t.total.Records, Open: t.total.Open, Expired: t.total.Expired, By: make(map[string][]Count)}
	for _, kind := range kinds {
		list := make([]Count, 0, len(t.by[kind]))
		for _, c := range t.by[kind] {
			list = append(list, *c)
		}
		slices.SortFunc(list, func(x, y Count) int {
			if kind == "day" {
				return strings.Compare(y.Value, x.Value)
			}
			return cmp.Or(cmp.Compare(y.Records, x.Records), strings.Compare(x.Value, y.Value))
		})
		if top > 0 && len(list) > top {
			list = list[:top]
		}
		s.By[kind] = list
	}
	return s
}
