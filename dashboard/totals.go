package dashboard

import (
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// Kind is what counts are told apart by. As a filter, an empty field selects everything.
type Kind struct {
	Lane     string `json:"lane,omitempty"`
	App      string `json:"app,omitempty"`
	Type     string `json:"type,omitempty"`
	Provider string `json:"provider,omitempty"`
	State    string `json:"state,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// admits reports whether a filter selects a kind.
func (k Kind) admits(of Kind) bool {
	return (k.Lane == "" || k.Lane == of.Lane) && (k.App == "" || k.App == of.App) && (k.Type == "" || k.Type == of.Type) &&
		(k.Provider == "" || k.Provider == of.Provider) && (k.State == "" || k.State == of.State) && (k.Reason == "" || k.Reason == of.Reason)
}

const (
	// hour is the minutes that totals are kept for, the present one included.
	hour = 60
	// maxKinds bounds the kinds of an hour: 20,000 of 500 bytes and their names.
	maxKinds = 20_000
)

// cell is the counts of a kind by minute; a minute's place is its number modulo hour.
type cell struct {
	minutes [hour]int64
	sum     int64
}

// totals are the counts of the last hour by their kind.
type totals struct {
	cells  map[Kind]*cell
	minute int64 // the present one, since 1970
}

func newTotals() totals { return totals{cells: make(map[Kind]*cell)} }

// advance drops the minutes that are older than an hour, and the kinds that had nothing
// since.
func (t *totals) advance(now time.Time) {
	to := now.Unix() / 60
	if to <= t.minute {
		return
	}
	t.drop(max(t.minute+1, to-hour+1), to)
	t.minute = to
}

// drop drops what is in the places of some minutes, at most an hour of them.
func (t *totals) drop(first, last int64) {
	for k, c := range t.cells {
		for m := first; m <= last; m++ {
			c.sum -= c.minutes[m%hour]
			c.minutes[m%hour] = 0
		}
		if c.sum == 0 {
			delete(t.cells, k)
		}
	}
}

// since is where the hour begins.
func (t *totals) since() time.Time { return time.Unix((t.minute-hour+1)*60, 0).UTC() }

// add counts n of a kind at a time that is not after the present minute. Kinds beyond the
// bound are counted without app, type and reason. What is taken away again, with the time at
// which it was counted, is taken from where it was.
func (t *totals) add(k Kind, at time.Time, n int64) {
	m := at.Unix() / 60
	if n == 0 || m <= t.minute-hour || m > t.minute {
		return
	}
	c := t.cells[k]
	if c == nil && (n < 0 || len(t.cells) >= maxKinds) {
		k.App, k.Type, k.Reason = other, other, other
		c = t.cells[k]
	}
	if c == nil && (n < 0 || len(t.cells) >= maxKinds+maxSeries) { // lanes, providers or states are without end
		k = Kind{other, other, other, other, other, other}
		c = t.cells[k]
	}
	if c == nil {
		c = &cell{}
		t.cells[k] = c
	}
	c.minutes[m%hour] += n
	c.sum += n
}

// total adds a count to the outcomes, or takes it away again if it is negative: a range of
// offsets has been told once more, and further. The caller holds the lock.
func (f *Feed) total(c *events.Count, told time.Time) {
	if c.N < -maxCount || c.N > maxCount {
		return
	}
	k := Kind{Lane: cut(c.Lane), App: cut(c.App), Type: cut(c.Type), Provider: cut(c.Provider), State: cut(c.State), Reason: cut(c.Reason)}
	k.Lane = strings.TrimSuffix(k.Lane, retrySuffix)
	f.totals.add(k, told, c.N)
}
