package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// Sender is a sender under one of the limits of senders that workers keep, or gateways.
type Sender struct {
	Sender string  `json:"sender"`
	Rule   string  `json:"rule"`
	Limit  int     `json:"limit"`  // notifications in a window
	Window float64 `json:"window"` // seconds
	// Share is what is taken of its bucket or window now, reckoned from what was told last:
	// at least 0, 1 = nothing is left, more is owed.
	Share float64 `json:"share"`
	// Wait is how long another notification waits for its token, in seconds.
	Wait    float64 `json:"wait,omitempty"`
	Limited int64   `json:"limited"` // how often one was put off or refused in the last hour
	// Minutes are the greatest shares of the last hour by minute in percent, at most
	// mostPercent, the oldest first.
	Minutes []int `json:"minutes"`
}

const (
	// maxSenders bounds the pairs of sender and rule that are kept, at 2 KB each: workers
	// tell their 20 fullest.
	maxSenders = 100
	// mostPercent is the greatest share that is drawn. A sender may owe a day.
	mostPercent = 200
	// longest bounds times, rates and shares that are told, so that what is reckoned with them is a number.
	longest = 1e9
)

// underRule is a sender and the rule that it is under.
type underRule struct{ sender, rule string }

// bucket is what was told of the bucket of a sender.
type bucket struct {
	limit         int
	window, fills float64   // seconds; fills 0 = it is a fixed window
	share         float64   // at that time
	at            time.Time // of the newest that was told
	greatest      ring      // by minute, in percent
	limited       ring      // by minute
}

// buckets are those of the senders that were told of in the last hour, as far as they are
// the fullest.
type buckets struct {
	of     map[underRule]*bucket
	minute int64 // the present one, since 1970
}

func newBuckets() buckets { return buckets{of: make(map[underRule]*bucket)} }

// advance forgets the senders that nothing was told of for an hour.
func (b *buckets) advance(now time.Time) {
	if to := now.Unix() / 60; to > b.minute {
		b.minute = to
		for k, one := range b.of {
			if one.greatest.newest <= to-hour {
				delete(b.of, k)
			}
		}
	}
}

// tell takes what a worker told at a time, which is not after the present minute.
func (b *buckets) tell(l *events.SenderLimit, at time.Time) {
	m := at.Unix() / 60
	if m <= b.minute-hour || m > b.minute {
		return
	}
	share := between(l.Share, longest)
	k := underRule{cut(l.Sender), cut(l.Rule)}
	one := b.of[k]
	if one == nil {
		if len(b.of) >= maxSenders && !b.makeRoom(share) {
			return
		}
		one = &bucket{greatest: newRing(hour), limited: newRing(hour)}
		b.of[k] = one
	}
	if slot := one.greatest.slot(m); slot != nil {
		*slot = max(*slot, percent(share))
	}
	if l.Limited > 0 && l.Limited <= maxCount {
		one.limited.add(m, l.Limited)
	}
	if at.Before(one.at) {
		return
	}
	one.limit, one.window, one.fills = l.Limit, between(l.Window, longest), between(l.Fills, longest)
	one.share, one.at = between(l.Now, longest), at
}

// between is a number from 0 to most.
func between(f, most float64) float64 { return min(max(f, 0), most) }

func percent(share float64) int64 { return int64(math.Round(100 * min(share, mostPercent/100))) }

// makeRoom forgets the least full of all if it was less full than a newcomer is.
func (b *buckets) makeRoom(share float64) bool {
	var least underRule
	lowest := int64(math.MaxInt64)
	for k, one := range b.of {
		if p := slices.Max(one.minutes(b.minute)); p < lowest {
			least, lowest = k, p
		}
	}
	if lowest >= percent(share) {
		return false
	}
	delete(b.of, least)
	return true
}

// minutes are the greatest shares of the hour that ends with a minute, in percent. Where
// nothing was told in a minute, nobody asked for tokens: the bucket fills.
func (b *bucket) minutes(last int64) []int64 {
	list := make([]int64, hour)
	left := 0.0
	for i := range list {
		at := last - hour + 1 + int64(i)
		greatest := max(float64(b.greatest.sum(at, at+1)), left)
		list[i] = int64(math.Round(greatest))
		begun := time.Unix((last-hour+1+int64(i))*60, 0)
		left = b.after(greatest/100, begun, begun.Add(time.Minute)) * 100
	}
	return list
}

// after is what is left of a share, from one time to another, if nobody takes tokens
// meanwhile.
func (b *bucket) after(share float64, from, to time.Time) float64 {
	if b.fills > 0 {
		return max(share-max(to.Sub(from).Seconds(), 0)/b.fills, 0)
	}
	if to.Before(b.ends(from)) {
		return share
	}
	return 0
}

// ends is when the fixed window ends that a time is in.
func (b *bucket) ends(at time.Time) time.Time {
	window := max(time.Duration(b.window*float64(time.Second)), time.Second)
	return at.UTC().Truncate(window).Add(window)
}

// wait is how long another notification waits for its token, in seconds.
func (b *bucket) wait(share float64, now time.Time) float64 {
	switch {
	case b.limit <= 0:
		return 0
	case b.fills > 0:
		return max(0, (share-1)*b.fills+b.window/float64(b.limit))
	case share >= 1:
		return b.ends(now).Sub(now).Seconds()
	}
	return 0
}

// showSenders shows the fullest first. A filter by the reason of a rule narrows them to it;
// of its other words they know nothing.
func (f *Feed) showSenders(s *Snapshot, limit int) {
	rule, narrowed := limitedBy(s.Filter.Reason)
	list := make([]Sender, 0, len(f.buckets.of))
	for k, b := range f.buckets.of {
		if narrowed && rule != k.rule {
			continue
		}
		one := Sender{Sender: k.sender, Rule: k.rule, Limit: b.limit, Window: b.window, Share: b.after(b.share, b.at, f.now), Limited: b.limited.sum(f.buckets.minute-hour+1, f.buckets.minute+1)}
		one.Wait, one.Share = round(b.wait(one.Share, f.now)), round(one.Share)
		for _, p := range b.minutes(f.buckets.minute) {
			one.Minutes = append(one.Minutes, int(p))
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(x, y Sender) int {
		return cmp.Or(cmp.Compare(y.Share, x.Share), cmp.Compare(slices.Max(y.Minutes), slices.Max(x.Minutes)), cmp.Compare(y.Limited, x.Limited),
			strings.Compare(x.Sender, y.Sender), strings.Compare(x.Rule, y.Rule))
	})
	s.Limits.Senders = bound(s, "senders", list, limit/5)
}

// round keeps four digits after the point.
func round(f float64) float64 { return math.Round(1e4*f) / 1e4 }
