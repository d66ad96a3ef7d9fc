// Package events collects what push.events tells (docs/events.md), and defines the
// format of its records. It is best effort: the status store has the rows.
package events

import (
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// MaxRecord is the greatest size of a record of push.events in bytes: half of what
// Kafka accepts by default.
const MaxRecord = 512 << 10

// Event is one record of push.events: counts of what has ended since the last one,
// or failures one by one, or the time for which records are missing, or what a worker
// or its limits are at. It never carries a token, a user or a message's text.
type Event struct {
	Version  int       `json:"v"`
	Source   string    `json:"source"` // of the worker process
	Number   int64     `json:"n"`      // of the record, by its source, from 1: a copy has the same; 0 of a state
	From     time.Time `json:"from,omitzero"`
	At       time.Time `json:"at"`
	Counts   []Count   `json:"counts,omitempty"`
	Ranged   bool      `json:"ranged,omitempty"` // what is counted here is told by ranges too
	Ranges   *Ranges   `json:"ranges,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	Rates    []Rate    `json:"rates,omitempty"`
	Gap      *Gap      `json:"gap,omitempty"`
	// Quarantines are those that answers to the source began.
	Quarantines []Quarantine `json:"quarantines,omitempty"`
	State       *State       `json:"state,omitempty"`
	Limits      *Limits      `json:"limits,omitempty"`
}

// Rate is a change of how fast the fleet sends to what a provider counts.
type Rate struct {
	Name  string    `json:"name"`           // fcm/<project> or apns/<team>/<topic>/<environment>
	From  float64   `json:"from,omitempty"` // sends a second of the whole fleet; none = no limit
	To    float64   `json:"to,omitempty"`
	Cause string    `json:"cause"`
	At    time.Time `json:"at"`
}

// Quarantine is a campaign or a sender that was stopped on a route, because nearly all its
// tokens are bad.
type Quarantine struct {
	Route  string    `json:"route"`
	Origin string    `json:"origin"` // campaign@<sender>/<name>, campaign/<name> or sender/<name>
	Word   string    `json:"word"`   // what the provider said of the tokens; feedback: all sorts
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"` // unless it is released before
}

// Gap says that records of this source about ends between From and To are
// missing: the topic could not take them. The status store has the rows.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Ranges are those whose counts are missing, at most mostLost.
	Ranges []Lost `json:"ranges,omitempty"`
}

// Version is the version of the format.
const Version = 1

// Count is how many devices, or notifications that ended before their
// devices, came to one state for one reason.
type Count struct {
	Lane     string `json:"lane"`
	App      string `json:"app,omitempty"`
	Type     string `json:"type,omitempty"`
	Provider string `json:"provider,omitempty"` // empty before the device look-up
	State    string `json:"state"`              // of the status table, or DUPLICATE
	Reason   string `json:"reason,omitempty"`
	N        int64  `json:"n"`
}

// Failure is one device, or one notification as a whole, that ends in
// FAILED, EXPIRED, SHED, DEAD_LETTERED or UNKNOWN.
type Failure struct {
	ID         string    `json:"id"`
	Lane       string    `json:"lane"`
	App        string    `json:"app,omitempty"`
	Type       string    `json:"type,omitempty"`
	Sender     string    `json:"sender,omitempty"`
	Device     string    `json:"device,omitempty"` // DeviceHash; empty = all of it
	Provider   string    `json:"provider,omitempty"`
	ProviderID string    `json:"provider_id,omitempty"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Step       int16     `json:"step"`
	At         time.Time `json:"at"`
}

// duplicateState is what counts name a copy by: it has no row, hence no State.
const duplicateState = "DUPLICATE"

const (
	// otherName stands for a name beyond the first maxNames.
	otherName = "other"
	// maxNames bounds how many types of a lane, apps and reasons counts distinguish:
	// producers may write anything.
	maxNames = 200
	// nameAge is how long an unused name is kept.
	nameAge = 10 * time.Minute
	// maxCounts bounds the counts between two Takes: 20,000 of 100 bytes are 2 MB.
	maxCounts = 20_000
	// maxWaiting bounds the bytes of failures between two Takes: about 80,000 failures.
	maxWaiting = 16 << 20
	// maxRates bounds the changes of rates between two Takes: there is one a second of
	// each rate at the most, and a fleet has few.
	maxRates = 1000
	// maxQuarantines bounds those between two Takes.
	maxQuarantines = 1000
	// soonWaiting is how many of these bytes ask for a Take: see Soon.
	soonWaiting = maxWaiting / 4
)

// Collector collects what push.events tells about all lanes of a worker. All methods
// are safe for concurrent use.
type Collector struct {
	source string

	mu      sync.Mutex // guards the fields below, but soon
	number  int64
	since   time.Time
	types   map[string]*names // by lane
	apps    names
	reasons names
	kinds   map[pipeline.Kind]*knownKind
	swept   time.Time // when unused kinds were forgotten last
	ranged  bool      // what is counted is told by ranges too
	counts  map[pipeline.Kind]int64
	waiting [][]byte // records of failures
	bytes   int      // of waiting
	rates   []Rate
	stopped []Quarantine
	missing *Gap

	limitsSince time.Time          // when Limits was called last
	limited     map[string]*Sketch // the users that were since, by rule

	soon chan struct{} // buffered, capacity 1; never closed
}

// New makes a Collector. source is a random id, which distinguishes this process from
// all others and from its predecessor.
func New(source string, now time.Time) *Collector {
	return &Collector{source: source, since: now, limitsSince: now, types: make(map[string]*names), kinds: make(map[pipeline.Kind]*knownKind), counts: make(map[pipeline.Kind]int64), soon: make(chan struct{}, 1)}
}

// Soon receives a value when so many failures wait that the next Take should come
// early.
func (e *Collector) Soon() <-chan struct{} { return e.soon }

// group implements pipeline.Endings.
type group struct {
	events   *Collector
	lane     string
	index    map[pipeline.Kind]int
	counts   []counted
	last     int // index of the last hit: most neighbours are alike
	failures []Failure
	limiting []string // the rules of limited
	limited  []limitedUser

	kinds map[pipeline.Kind]*pipeline.Kind // that Kind has returned, by what it was asked for
	hits  [4]hit                           // the last ones, by platform: most neighbours of one are alike
}

// hit is what Kind was asked for and what it returned.
type hit struct {
	pipeline.Kind
	known *pipeline.Kind
}

type counted struct {
	pipeline.Kind
	n int64
}

// Group implements pipeline.Events.
func (e *Collector) Group(lane string) pipeline.Endings {
	return &group{events: e, lane: lane, index: make(map[pipeline.Kind]int)}
}

// Add notes a row that the item is about to get.
func (g *group) Add(it *pipeline.Item, r *push.Row) {
	g.count(pipeline.Kind{Lane: g.lane, App: it.App, Type: it.Type, Reason: countedReason(r.State, r.Reason), Platform: r.Platform, State: r.State})
	g.limit(r)
	switch r.State {
	case push.StateFailed, push.StateExpired, push.StateShed, push.StateDeadLettered, push.StateUnknown:
		provider := ""
		if r.Platform != push.NoPlatform {
			provider = r.Platform.String()
		}
		g.failures = append(g.failures, Failure{
			ID: r.ID, Lane: g.lane, App: it.App, Type: it.Type, Sender: it.SenderID, Device: r.Device, Provider: provider,
			ProviderID: r.ProviderID, State: r.State.String(), Reason: r.Reason, Step: r.Step, At: r.At.UTC(),
		})
	}
}

// Duplicate notes an item that ends as a copy, without a row.
func (g *group) Duplicate(it *pipeline.Item) {
	g.count(pipeline.Kind{Lane: g.lane, App: it.App, Type: it.Type, Reason: string(it.Reason)})
}

func (g *group) count(k pipeline.Kind) {
	if len(g.counts) == 0 || g.counts[g.last].Kind != k {
		i, ok := g.index[k]
		if !ok {
			i = len(g.counts)
			g.index[k] = i
			g.counts = append(g.counts, counted{Kind: k})
		}
		g.last = i
	}
	g.counts[g.last].n++
}

// countedReason returns a reason without what follows its code, which is the name of
// a field. Suppressions, and what waits for a limit, keep it: it is the rule of the limit.
func countedReason(state push.State, reason string) string {
	code, _, detailed := strings.Cut(reason, ":")
	if !detailed || state == push.StateSuppressed || code == string(push.LimitWaits) {
		return reason
	}
	return code
}

// Count adds the group to what the next Take tells. It copies what it keeps of
// the items. Failures beyond maxWaiting bytes are dropped, and the gap is told.
func (g *group) Count(now time.Time) {
	e := g.events
	var records [][]byte
	if len(g.failures) > 0 {
		records = pack(Event{Version: Version, Source: e.source, At: now.UTC()}, "failures", g.failures, e.next)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g.addCounts(now)
	g.addLimited()
	for _, r := range records {
		if e.bytes+len(r) > maxWaiting {
			e.miss(Gap{From: now, To: now})
			continue
		}
		e.waiting, e.bytes = append(e.waiting, r), e.bytes+len(r)
	}
	if e.bytes >= soonWaiting {
		select {
		case e.soon <- struct{}{}:
		default: // asked already
		}
	}
}

// addCounts adds the group's counts. The caller holds the lock.
func (g *group) addCounts(now time.Time) {
	if len(g.counts) == 0 {
		return
	}
	e := g.events
	for _, c := range g.counts {
		k := e.named(c.Kind, now)
		if _, ok := e.counts[k]; !ok && len(e.counts) >= maxCounts {
			k.App, k.Type, k.Reason = otherName, otherName, otherName
		}
		e.counts[k] += c.n
	}
}

// named returns a kind by the names that are told apart, which may be kept. The caller
// holds the lock.
func (e *Collector) named(k pipeline.Kind, now time.Time) pipeline.Kind {
	types := e.types[k.Lane]
	if types == nil {
		types = &names{}
		e.types[k.Lane] = types
	}
	k.App, k.Type, k.Reason = e.apps.name(k.App, now), types.name(k.Type, now), e.reasons.name(k.Reason, now)
	return k
}

// next returns the number of the next record.
func (e *Collector) next() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.number++
	return e.number
}

// Rate notes a change of a rate. Beyond maxRates between two Takes it is a gap.
func (e *Collector) Rate(r Rate) {
	r.At = r.At.UTC()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.rates) == maxRates {
		e.miss(Gap{From: r.At, To: r.At})
		return
	}
	e.rates = append(e.rates, r)
}

// Quarantine notes what was stopped. Beyond maxQuarantines between two Takes it is a gap.
func (e *Collector) Quarantine(q Quarantine) {
	q.At = q.At.UTC()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.stopped) == maxQuarantines {
		e.miss(Gap{From: q.At, To: q.At})
		return
	}
	e.stopped = append(e.stopped, q)
}

// Take returns the records about everything since the last Take, and starts over; it
// returns none if nothing has ended. If the records cannot be produced, the caller
// reports them by Missed.
func (e *Collector) Take(now time.Time) (records [][]byte) {
	e.mu.Lock()
	records, e.waiting, e.bytes = e.waiting, nil, 0
	taken, since, missing, changed, stopped := e.counts, e.since, e.missing, e.rates, e.stopped
	e.counts, e.since, e.missing, e.rates, e.stopped = make(map[pipeline.Kind]int64, min(len(taken), maxCounts)), now, nil, nil, nil
	for _, types := range e.types {
		types.forget(now)
	}
	e.apps.forget(now)
	e.reasons.forget(now)
	e.forgetKinds(now)
	ranged := e.ranged
	e.mu.Unlock()
	head := Event{Version: Version, Source: e.source, At: now.UTC()}
	if missing != nil {
		head.Number, head.Gap = e.next(), missing
		records = append(records, encoded(head))
		head.Gap = nil
	}
	if len(changed) > 0 {
		records = append(records, pack(head, "rates", changed, e.next)...)
	}
	if len(stopped) > 0 {
		records = append(records, pack(head, "quarantines", stopped, e.next)...)
	}
	if len(taken) > 0 {
		head.From, head.Ranged = since.UTC(), ranged
		records = append(records, pack(head, "counts", countsOf(taken), e.next)...)
	}
	return records
}

// Missed says that the records of a Take could not be produced. They are about what
// ended since from, the time of the previous Take.
func (e *Collector) Missed(from, to time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.miss(Gap{From: from, To: to})
}

// miss widens the gap that the next Take reports. The caller holds the lock.
func (e *Collector) miss(g Gap) {
	g.From, g.To = g.From.UTC(), g.To.UTC()
	if e.missing == nil {
		e.missing = &g
		return
	}
	if g.From.Before(e.missing.From) {
		e.missing.From = g.From
	}
	if g.To.After(e.missing.To) {
		e.missing.To = g.To
	}
	more := g.Ranges[:min(len(g.Ranges), mostLost-len(e.missing.Ranges))]
	e.missing.Ranges = append(e.missing.Ranges, more...)
}
