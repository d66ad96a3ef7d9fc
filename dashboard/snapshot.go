package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/push"
)

// MaxSnapshot is the greatest size of an encoded Snapshot in bytes.
const MaxSnapshot = 50 << 10

// Snapshot is what a page shows at a moment. Scripts depend on the JSON keys. Lists are
// bounded: what is left out is counted beside them.
type Snapshot struct {
	At    time.Time `json:"at"`
	Ready bool      `json:"ready"` // the past has been read
	Since time.Time `json:"since"` // outcomes are counted from here on
	// Filter is what outcomes, failures and curves are narrowed to. Curves are kept by
	// lane and state alone, so of the others they know nothing.
	Filter Kind `json:"filter"`
	// Sum is the sum over all lanes, without name and curves.
	Sum       Lane      `json:"sum"`
	Lanes     []Lane    `json:"lanes"`
	Topics    []Topic   `json:"topics"`
	Curves    []Curve   `json:"curves"`
	Routes    []Route   `json:"routes"`
	Stalls    []Stall   `json:"stalls"`
	Workers   []Worker  `json:"workers"`
	Gone      []Gone    `json:"gone"`
	Outcomes  Outcomes  `json:"outcomes"`
	Limits    Limits    `json:"limits"`
	Failures  []Failure `json:"failures"`
	Gaps      []Gap     `json:"gaps"`
	OffsetsAt time.Time `json:"offsets_at,omitzero"` // of the queues; none = they are not known
	// Approximate says in words what is not exact, and why.
	Approximate []string `json:"approximate"`
	// Meanings are the reasons that appear, in words.
	Meanings map[string]string `json:"meanings"`
	// Omitted counts what did not fit, by the name of its list.
	Omitted map[string]int `json:"omitted,omitempty"`
}

// Lane is a lane now.
type Lane struct {
	Lane       string    `json:"lane,omitempty"`
	Sent       float64   `json:"sent"`            // accepted by providers a second, over the last 5 s
	Failed     float64   `json:"failed"`          // FAILED, EXPIRED, SHED, DEAD_LETTERED and UNKNOWN a second
	InProgress int64     `json:"in_progress"`     // records that live workers have polled and not committed
	Pushes     int64     `json:"pushes"`          // in flight at providers
	Queued     int64     `json:"queued"`          // records in the lane's topic that no worker has polled
	Waiting    int64     `json:"waiting"`         // records in its retry, deferral and hold topics
	Oldest     time.Time `json:"oldest,omitzero"` // when the oldest record in progress was produced
}

// Topic is a topic beside a lane's own, or the DLQ.
type Topic struct {
	Lane    string `json:"lane"`
	Kind    string `json:"kind"`
	Topic   string `json:"topic"`
	Waiting int64  `json:"waiting"`
}

// Curve is counts over time, the oldest first: of what was accepted (sent) and of what
// failed, in the last 15 minutes and 24 hours.
type Curve struct {
	Lane    string  `json:"lane,omitempty"` // empty = all
	What    string  `json:"what"`           // sent or failed
	Quarter []int64 `json:"quarter"`        // in steps of 5 s
	Day     []int64 `json:"day"`            // in steps of 10 min
}

const (
	quarterStep, quarterCount = 5, seconds / 5
	dayStep, dayCount         = 10, minutes / 10
	// nowSpan is the seconds that "now" is the mean of. The present one is left out, and
	// the one before, as workers tell of it up to a second later.
	nowSpan = 5
)

// Outcomes is what became of devices, and of notifications that ended before their
// devices, since Snapshot.Since.
type Outcomes struct {
	Total int64     `json:"total"`
	Rows  []Outcome `json:"rows"` // the most frequent kinds
	// By is the same by one of lane, app, type, provider, state and reason, the most
	// frequent first.
	By map[string][]Share `json:"by"`
}

// Outcome is how often a kind was counted.
type Outcome struct {
	Kind
	N int64 `json:"n"`
}

// Share is how often a name was counted.
type Share struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

// Failure is one failure, as push.events told it.
type Failure struct {
	ID       string    `json:"id"`
	At       time.Time `json:"at"`
	Lane     string    `json:"lane"`
	App      string    `json:"app,omitempty"`
	Type     string    `json:"type,omitempty"`
	Provider string    `json:"provider,omitempty"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"`
}

// Gap is a time of which a source's events are missing.
type Gap struct {
	Source string    `json:"source"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
}

// Encode encodes the snapshot of a filter at a time in at most MaxSnapshot bytes:
// longer lists are cut until it fits.
func (f *Feed) Encode(now time.Time, filter Kind) ([]byte, error) {
	for limit := 100; ; limit /= 2 {
		s := f.Snapshot(now, filter, limit)
		text, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("encoding a snapshot: %w", err)
		}
		if len(text) <= MaxSnapshot || limit == 0 {
			return text, nil
		}
	}
}

// Snapshot says what there is at a time. Lists have at most limit entries.
func (f *Feed) Snapshot(now time.Time, filter Kind, limit int) *Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present(now)
	s := &Snapshot{At: now.UTC(), Ready: f.read, Since: f.totals.since(), Filter: filter, OffsetsAt: f.positions.at,
		Meanings: map[string]string{}, Omitted: map[string]int{}}
	live := f.sources.live(now)
	f.showLanes(s, live, limit)
	s.Curves = f.curves(s, limit)
	s.Routes = bound(s, "routes", routesOf(live, f.rates), limit)
	s.Stalls = bound(s, "stalls", stallsOf(live), limit)
	s.Workers = bound(s, "workers", f.workers(live), limit)
	f.showGone(s, limit)
	f.showOutcomes(s, limit)
	f.showLimits(s, limit)
	f.showFailures(s, limit)
	f.showDoubts(s, live, limit)
	return s
}

// stamp is a time as a snapshot has it. Of one that a zone moves out of the years that
// JSON can express, nothing is told.
func stamp(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// bound cuts a list, and notes how much was left out.
func bound[T any](s *Snapshot, name string, list []T, limit int) []T {
	if len(list) > limit {
		s.Omitted[name] += len(list) - limit
		list = list[:limit]
	}
	if list == nil {
		list = []T{}
	}
	return list
}

// failed are the states that a curve of failures adds up.
var failed = [...]string{push.StateFailed.String(), push.StateExpired.String(), push.StateShed.String(), push.StateDeadLettered.String(), push.StateUnknown.String()}

// tracks are the histories of a lane, or of all, in some states.
func (f *Feed) tracks(lane string, states ...string) (list []*track) {
	for k, t := range f.history.tracks {
		if (lane == "" || k.lane == lane) && slices.Contains(states, k.state) {
			list = append(list, t)
		}
	}
	return list
}

func bySecond(t *track) *ring { return &t.seconds }
func byMinute(t *track) *ring { return &t.minutes }

// rate is the mean of some histories over the last seconds.
func (f *Feed) rate(of []*track) float64 {
	end := f.now.Unix() - 1
	return float64(points(of, bySecond, end, nowSpan, 1)[0]) / nowSpan
}

// curves draws the lanes that are shown, and all together.
func (f *Feed) curves(s *Snapshot, limit int) []Curve {
	lanes := []string{s.Filter.Lane}
	if s.Filter.Lane == "" {
		for i := range s.Lanes[:min(len(s.Lanes), limit/8)] {
			lanes = append(lanes, s.Lanes[i].Lane)
		}
	}
	curves := []Curve{}
	for _, lane := range lanes {
		for what, states := range map[string][]string{"sent": {delivered}, "failed": failed[:]} {
			of := f.tracks(lane, states...)
			curves = append(curves, Curve{Lane: lane, What: what,
				Quarter: points(of, bySecond, f.now.Unix(), quarterStep, quarterCount),
				Day:     points(of, byMinute, f.now.Unix()/60+1, dayStep, dayCount)})
		}
	}
	slices.SortStableFunc(curves, func(x, y Curve) int {
		return cmp.Or(cmp.Compare(slices.Index(lanes, x.Lane), slices.Index(lanes, y.Lane)), -strings.Compare(x.What, y.What))
	})
	return curves
}

// showOutcomes adds up the last hour.
func (f *Feed) showOutcomes(s *Snapshot, limit int) {
	o := Outcomes{Rows: []Outcome{}, By: map[string][]Share{}}
	by := map[string]map[string]int64{}
	for _, name := range Dimensions {
		by[name] = map[string]int64{}
	}
	for k, c := range f.totals.cells {
		if c.sum == 0 || !s.Filter.admits(k) { // none is left: it was told again as something else
			continue
		}
		o.Total += c.sum
		o.Rows = append(o.Rows, Outcome{k, c.sum})
		for _, name := range Dimensions {
			by[name][*k.field(name)] += c.sum
		}
	}
	slices.SortFunc(o.Rows, func(x, y Outcome) int {
		return cmp.Or(cmp.Compare(y.N, x.N), strings.Compare(x.text(), y.text()))
	})
	o.Rows = bound(s, "outcomes", o.Rows, limit)
	for name, counts := range by {
		o.By[name] = bound(s, name, shares(counts), limit/5)
		for _, share := range o.By[name] {
			if name == "reason" {
				s.mean(share.Name)
			}
		}
	}
	for _, r := range o.Rows {
		s.mean(r.Reason)
	}
	s.Outcomes = o
}

func (k Kind) text() string {
	return strings.Join([]string{k.Lane, k.App, k.Type, k.Provider, k.State, k.Reason}, "\x00")
}

func shares(counts map[string]int64) []Share {
	list := make([]Share, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if name != "" { // what has none: no provider before the devices, no reason of what went well
			list = append(list, Share{name, counts[name]})
		}
	}
	slices.SortStableFunc(list, func(x, y Share) int { return cmp.Compare(y.N, x.N) })
	return list
}

// Dimensions are the names of what counts are told apart by, as in a query.
var Dimensions = [...]string{"lane", "app", "type", "provider", "state", "reason"}

// field is where a kind has a dimension.
func (k *Kind) field(name string) *string {
	switch name {
	case "lane":
		return &k.Lane
	case "app":
		return &k.App
	case "type":
		return &k.Type
	case "provider":
		return &k.Provider
	case "state":
		return &k.State
	}
	return &k.Reason
}

// mean adds the meaning of a reason.
func (s *Snapshot) mean(reason string) {
	if _, there := s.Meanings[reason]; there {
		return
	}
	if words := explain.Reason(reason, ""); words != "" {
		s.Meanings[reason] = words
	}
}

// showFailures shows the last failures that the filter selects, the newest first.
func (f *Feed) showFailures(s *Snapshot, limit int) {
	list := []Failure{}
	for i := range f.failures {
		e := &f.failures[(f.next+len(f.failures)-1-i)%len(f.failures)]
		k := Kind{strings.TrimSuffix(e.Lane, retrySuffix), e.App, e.Type, e.Provider, e.State, e.Reason}
		wanted := s.Filter
		if code, _, detailed := strings.Cut(k.Reason, ":"); detailed && wanted.Reason == code {
			k.Reason = code // counts have the code alone
		}
		if wanted.admits(k) {
			list = append(list, Failure{e.ID, stamp(e.At), e.Lane, e.App, e.Type, e.Provider, e.State, e.Reason})
		}
	}
	s.Failures = bound(s, "failures", list, limit/2)
	for i := range s.Failures {
		s.mean(s.Failures[i].Reason)
	}
}
