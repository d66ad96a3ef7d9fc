package pipeline

import (
	"slices"

	"github.com/pushfleet/pushfleet/push"
)

// Kind is what endings are counted by.
type Kind struct {
	Lane, App, Type, Reason string
	Platform                push.Platform // none before the device look-up
	State                   push.State    // 0 = a copy, which has no row
}

// Came says how many endings were of a kind.
type Came struct {
	Kind *Kind
	N    int64
}

// Range is what became of the records of a partition from an offset to another one, which
// is not in it. All of them have ended. Ranges of a partition follow each other without a
// gap, and one begins where the next owner may have to: at a committed offset.
//
// Whoever counts the same records again comes to the same: an item that a former owner of
// its partition has ended counts as what that owner's rows say, and not as a copy. Rows
// know the place of their record, so true copies are told apart.
type Range struct {
	Partition push.Partition
	TopicID   [16]byte // zero = not known
	From, To  int64
	Came      []Came
}

// kinds appends what an item came to, one for each device, or one for all of it. Its
// deliveries have ended.
func (it *Item) kinds(told Endings, to []*Kind) []*Kind {
	for i := range it.Ended {
		r := &it.Ended[i]
		to = append(to, told.Kind(it, r.Platform, r.State, r.Reason))
	}
	found := len(it.Ended)
	for j := range it.Deliveries {
		if r := it.Deliveries[j].found; r != nil {
			found++
			to = append(to, told.Kind(it, r.Platform, r.State, r.Reason))
		}
	}
	switch {
	case it.Verdict == push.Duplicate && found > 0:
	case it.Verdict == push.Duplicate:
		to = append(to, told.Kind(it, push.NoPlatform, 0, string(it.Reason)))
	case it.Verdict != push.Undecided:
		to = it.wholeKinds(told, to)
	default:
		for j := range it.Deliveries {
			if d := &it.Deliveries[j]; d.ending.State != 0 && !it.hasEnded(d.Device.Hash, d.ending.State) {
				to = append(to, told.Kind(it, d.Route.Platform, d.ending.State, string(d.ending.Reason)))
			}
		}
	}
	return to
}

// wholeKinds appends the kinds of an item that was decided as a whole: see verdictRows.
func (it *Item) wholeKinds(told Endings, to []*Kind) []*Kind {
	state, reason := it.Verdict.State(), string(it.Reason)
	if it.Detail != "" {
		reason += ":" + it.Detail
	}
	kind := told.Kind(it, push.NoPlatform, state, reason)
	if len(it.Devices) == 0 {
		if !it.hasEnded("", state) {
			to = append(to, kind)
		}
		return to
	}
	for _, device := range it.Devices {
		if !it.hasEnded(device, state) {
			to = append(to, kind)
		}
	}
	return to
}

// hasEnded reports whether a former owner has written the same row.
func (it *Item) hasEnded(device string, state push.State) bool {
	return slices.ContainsFunc(it.Ended, func(r push.Row) bool { return r.Device == device && r.State == state })
}

// EndedBefore returns those of an id's rows that a former owner of the item's partition
// has written for this very record: what it came to there.
func (it *Item) EndedBefore(rows []push.Row) (ended []push.Row) {
	place := it.Partition.Place(it.Offset)
	for i := range rows {
		if r := &rows[i]; r.Place == place && r.Step == it.Step() && (r.State.Final() || r.State.HandedOver()) {
			ended = append(ended, *r)
		}
	}
	return ended
}

// ended is a kind that a record came to besides the one that the record itself holds, or
// of a record that is tracked no more.
type ended struct {
	offset int64
	kind   *Kind
}

// count notes what an item came to. The caller holds mu.
func (t *Tracker) count(it *Item, rec *record) {
	kinds := it.Came
	it.Came = nil
	if !t.counts {
		return
	}
	if rec != nil && len(kinds) > 0 {
		rec.kind, kinds = kinds[0], kinds[1:]
	}
	for _, k := range kinds {
		t.ended = append(t.ended, ended{it.Offset, k})
	}
}

// Settled returns the offset below which every record has its outcome: the watermark, but
// not above an intent without a result. ok is as that of Watermark.
func (t *Tracker) Settled() (below int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	below = t.watermark
	for offset := range t.intents {
		below = min(below, offset)
	}
	return below, t.watermark >= 0 && !t.revoked
}

// Take returns what the records below an offset that Settled has returned came to, as far
// as no earlier call did. Kinds are in no order.
func (t *Tracker) Take(below int64) (came []Came) {
	sums := make(map[*Kind]int64)
	var last *Kind
	var n int64
	add := func(k *Kind) { // most neighbours are alike
		if k != last {
			if last != nil {
				sums[last] += n
			}
			last, n = k, 0
		}
		n++
	}
	t.mu.Lock()
	for ; t.taken < t.passed && t.records[t.taken].offset < below; t.taken++ {
		if rec := &t.records[t.taken]; rec.kind != nil {
			add(rec.kind)
			rec.kind = nil
		}
	}
	t.ended = slices.DeleteFunc(t.ended, func(e ended) bool {
		if e.offset < below {
			add(e.kind)
		}
		return e.offset < below
	})
	t.mu.Unlock()
	if last != nil {
		sums[last] += n
	}
	for k, n := range sums {
		came = append(came, Came{k, n})
	}
	return came
}

// keepKinds keeps what the first n records came to, which are tracked no more, if nobody
// has taken it. The caller holds mu.
func (t *Tracker) keepKinds(n int) {
	for i := t.taken; i < n; i++ {
		if rec := &t.records[i]; rec.kind != nil {
			t.ended = append(t.ended, ended{rec.offset, rec.kind})
		}
	}
	t.taken = max(0, t.taken-n)
}
