package events

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Ranges says what became of the records of a lane by ranges of their offsets (member
// "ranges" of a record). A range is told before its offsets are committed, so that who goes
// on after a kill begins with the next one, or tells this one again: see Tally.
type Ranges struct {
	Lane  string      `json:"lane"`
	Kinds []RangeKind `json:"kinds"`
	Of    []Range     `json:"of"`
}

// RangeKind is what the counts of ranges are told apart by.
type RangeKind struct {
	App      string `json:"app,omitempty"`
	Type     string `json:"type,omitempty"`
	Provider string `json:"provider,omitempty"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
}

// Place is a range without its counts: From is in it, To is not.
type Place struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id,omitempty"` // tells a topic from an earlier one of the same name
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

// Range is one range. Counts are pairs: the index of a kind, and how many.
type Range struct {
	Place
	Counts []int64 `json:"counts"`
}

// Lost is a range whose counts are missing.
type Lost = Place

const (
	// mostLost bounds the ranges that a gap names.
	mostLost = 500
	// mostKinds bounds the kinds of one range: the most frequent, all others are counted
	// without app, type and reason.
	mostKinds = 500
	// maxUntold bounds the bytes of a lane's ranges that the topic has not taken: at some
	// 3 KB a second, 20 minutes.
	maxUntold = 4 << 20
	// rangePatience is how long a commit waits for its ranges, and impatience how long
	// while the topic does not take them anyway.
	rangePatience = 2 * time.Second
	impatience    = 50 * time.Millisecond
)

// knownKind is a kind and when it was last asked for.
type knownKind struct {
	pipeline.Kind
	at time.Time
}

// Kind implements pipeline.Endings.
func (g *group) Kind(it *pipeline.Item, platform push.Platform, state push.State, reason string) *pipeline.Kind {
	k := pipeline.Kind{Lane: g.lane, App: it.App, Type: it.Type, Reason: countedReason(state, reason), Platform: platform, State: state}
	last := &g.hits[int(platform)%len(g.hits)]
	if last.known != nil && last.Kind == k {
		return last.known
	}
	known := g.kinds[k]
	if known == nil {
		if g.kinds == nil {
			g.kinds = make(map[pipeline.Kind]*pipeline.Kind)
		}
		known = g.events.kind(k, time.Now())
		g.kinds[k] = known
	}
	*last = hit{k, known}
	return known
}

// kind returns the one pointer of a kind.
func (e *Collector) kind(k pipeline.Kind, now time.Time) *pipeline.Kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	k = e.named(k, now)
	known := e.kinds[k]
	if known == nil && len(e.kinds) >= maxCounts {
		k.App, k.Type, k.Reason = otherName, otherName, otherName
		known = e.kinds[k]
	}
	if known == nil {
		known = &knownKind{Kind: k}
		e.kinds[k] = known
	}
	known.at = now
	return &known.Kind
}

// forgetKinds drops the kinds that have not been used for nameAge, once in that time. Who
// still counts by one keeps it. The caller holds the lock.
func (e *Collector) forgetKinds(now time.Time) {
	if now.Sub(e.swept) < nameAge {
		return
	}
	e.swept = now
	for k, known := range e.kinds {
		if now.Sub(known.at) > nameAge {
			delete(e.kinds, k)
		}
	}
}

// Teller tells the ranges of a lane. All methods are safe for concurrent use.
type Teller struct {
	events  *Collector
	lane    string
	produce func(context.Context, [][]byte) error

	sending chan struct{} // capacity 1: its holder produces, so that ranges come in their order

	mu      sync.Mutex // guards what follows
	waiting []untold   // in the order of their offsets
	bytes   int        // of their records
	failing bool       // the topic did not take the last ones
}

// untold is a record that the topic has not acknowledged.
type untold struct {
	record []byte
	at     time.Time
	places []Place
}

// Teller returns a teller of the ranges of a lane. produce returns nil once all records
// are acknowledged. They must come in their order to one partition of the topic. After an
// error they are produced again; after a *pipeline.PartlyError those that it calls open.
func (e *Collector) Teller(lane string, produce func(ctx context.Context, records [][]byte) error) *Teller {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranged = true
	return &Teller{events: e, lane: lane, produce: produce, sending: make(chan struct{}, 1)}
}

// Tell returns when the topic has taken the ranges, and all before them. But it holds up
// nobody for longer than rangePatience: what the topic has not taken by then is told
// later, by another Tell or by Retry. Where too much waits, the oldest is given up, and
// Take tells the gap.
func (t *Teller) Tell(ctx context.Context, ranges []pipeline.Range, now time.Time) {
	t.mu.Lock()
	t.add(ranges, now)
	patience := rangePatience
	if t.failing {
		patience = impatience
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = t.Retry(ctx) // what is not told waits
}

// Retry produces what the topic has not taken so far. An error means that it still waits.
func (t *Teller) Retry(ctx context.Context) error {
	select {
	case t.sending <- struct{}{}:
		defer func() { <-t.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		t.mu.Lock()
		sending, failing := slices.Clone(t.waiting), t.failing
		t.mu.Unlock()
		if len(sending) == 0 {
			return nil
		}
		if failing { // one finds out: the producer may hold whatever it is given until the topic is back
			sending = sending[:1]
		}
		records := make([][]byte, len(sending))
		for i := range sending {
			records[i] = sending[i].record
		}
		if err := t.settle(sending, t.produce(ctx, records)); err != nil || !failing {
			return err
		}
	}
}

// settle takes out what waits no more, by the answer to its production, and gives up what
// is too large for the topic. It returns the answer if something is to be told again.
func (t *Teller) settle(sending []untold, answer error) error {
	partly, ok := errors.AsType[*pipeline.PartlyError](answer)
	if ok && len(partly.Open) == 0 {
		answer = nil
	}
	over := make(map[*byte]bool, len(sending)) // by their records
	for i := range sending {
		over[&sending[i].record[0]] = answer == nil || ok && !slices.Contains(partly.Open, i)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = answer != nil
	if ok {
		for _, i := range partly.Refused {
			t.events.lose(sending[i].places, sending[i].at, sending[i].at)
		}
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(u untold) bool { // some may have been given up meanwhile
		goes := over[&u.record[0]]
		if goes {
			t.bytes -= len(u.record)
		}
		return goes
	})
	return answer
}

// Untold is how many ranges wait.
func (t *Teller) Untold() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.waiting {
		n += len(t.waiting[i].places)
	}
	return n
}

// add encodes ranges and puts them behind those that wait. The caller holds the lock.
func (t *Teller) add(ranges []pipeline.Range, now time.Time) {
	for _, u := range t.encode(ranges, now) {
		t.waiting, t.bytes = append(t.waiting, u), t.bytes+len(u.record)
	}
	for t.bytes > maxUntold && len(t.waiting) > 1 {
		lost := t.waiting[0]
		t.waiting, t.bytes = t.waiting[1:], t.bytes-len(lost.record)
		t.events.lose(lost.places, lost.at, now)
	}
}

// lose notes ranges that are given up.
func (e *Collector) lose(places []Place, from, to time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.miss(Gap{From: from, To: to, Ranges: slices.Clone(places[:min(len(places), mostLost)])})
}

// encode returns the records of ranges, each of at most MaxRecord bytes.
func (t *Teller) encode(ranges []pipeline.Range, now time.Time) (records []untold) {
	const room = MaxRecord - 1<<10 // for what is around the kinds and ranges
	of, size := packing{index: make(map[RangeKind]int64)}, 0
	flush := func() {
		if size == 0 {
			return
		}
		told := Ranges{Lane: t.lane, Kinds: of.kinds, Of: of.ranges}
		e := Event{Version: Version, Source: t.events.source, Number: t.events.next(), At: now.UTC(), Ranges: &told}
		u := untold{record: encoded(e), at: now}
		for i := range told.Of {
			u.places = append(u.places, told.Of[i].Place)
		}
		records = append(records, u)
		of, size = packing{index: make(map[RangeKind]int64)}, 0
	}
	for i := range ranges {
		kinds := frequent(ranges[i].Came)
		more := mostSize(kinds)
		if more > room {
			kinds = merged(kinds, 0)
			more = mostSize(kinds)
		}
		if size+more > room {
			flush()
		}
		of.add(placeOf(&ranges[i]), kinds)
		size += more
	}
	flush()
	return records
}

// packing is a record in the making.
type packing struct {
	kinds  []RangeKind
	index  map[RangeKind]int64
	ranges []Range
}

func (p *packing) add(at Place, kinds []countedKind) {
	r := Range{Place: at, Counts: make([]int64, 0, 2*len(kinds))}
	for _, c := range kinds {
		k, known := p.index[c.kind]
		if !known {
			k = int64(len(p.kinds))
			p.index[c.kind], p.kinds = k, append(p.kinds, c.kind)
		}
		r.Counts = append(r.Counts, k, c.n)
	}
	p.ranges = append(p.ranges, r)
}

// mostSize is how many bytes a range with these counts takes at the most: a byte of a name
// may be written as six.
func mostSize(kinds []countedKind) int {
	size := 6*2*256 + 200 // its topic
	for i := range kinds {
		k := &kinds[i].kind
		size += 6*(len(k.App)+len(k.Type)+len(k.Provider)+len(k.State)+len(k.Reason)) + 120
	}
	return size
}

func placeOf(r *pipeline.Range) Place {
	p := Place{Topic: r.Partition.Topic, Partition: r.Partition.ID, From: r.From, To: r.To}
	if r.TopicID != ([16]byte{}) {
		p.TopicID = base64.RawURLEncoding.EncodeToString(r.TopicID[:])
	}
	return p
}

type countedKind struct {
	kind RangeKind
	n    int64
}

// frequent returns the counts of a range, the most frequent first, at most mostKinds and
// those of other names.
func frequent(came []pipeline.Came) []countedKind {
	sums := make(map[RangeKind]int64, len(came)) // a kind that was forgotten meanwhile has two pointers
	for _, c := range came {
		k := countOf(c.Kind, c.N)
		sums[RangeKind{App: k.App, Type: k.Type, Provider: k.Provider, State: k.State, Reason: k.Reason}] += c.N
	}
	kinds := make([]countedKind, 0, len(sums))
	for k, n := range sums {
		kinds = append(kinds, countedKind{k, n})
	}
	slices.SortFunc(kinds, func(a, b countedKind) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.kind.State, b.kind.State), cmp.Compare(a.kind.App, b.kind.App), cmp.Compare(a.kind.Type, b.kind.Type),
			cmp.Compare(a.kind.Provider, b.kind.Provider), cmp.Compare(a.kind.Reason, b.kind.Reason))
	})
	return merged(kinds, mostKinds)
}

// merged leaves the first kinds as they are, and counts all others by state and provider.
func merged(kinds []countedKind, first int) []countedKind {
	if len(kinds) <= first {
		return kinds
	}
	few := slices.Clone(kinds[:first])
	for _, c := range kinds[first:] {
		k := RangeKind{App: otherName, Type: otherName, Provider: c.kind.Provider, State: c.kind.State, Reason: otherName}
		i := slices.IndexFunc(few, func(f countedKind) bool { return f.kind == k })
		if i < 0 {
			i = len(few)
			few = append(few, countedKind{kind: k})
		}
		few[i].n += c.n
	}
	return few
}
