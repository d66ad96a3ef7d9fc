//go:build unix

package mutants

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// Cell is one crash: a worker that kills itself at a point of a notification's
// way, in a lane of this delivery mode.
type Cell struct {
	Point string
	Mode  string
	Times int // how often it comes to the point before it dies, from 1
}

func (c Cell) String() string { return fmt.Sprintf("%s:%d in %s", c.Point, c.Times, c.Mode) }

// The delivery modes, as configuration names them.
const (
	atLeastOnce     = configs.AtLeastOnce
	effectivelyOnce = configs.EffectivelyOnce
	atMostOnce      = configs.AtMostOnce
)

// Modes are the delivery modes.
var Modes = []string{atLeastOnce, effectivelyOnce, atMostOnce}

// promise is what must become of what had come to a point when the worker died
// there: of each notification on each device. Counts are acceptances.
type promise struct {
	// at is the most that may have been accepted by the death, and end in all.
	at, end int
	// shown: some must be just so, or the crash has shown nothing.
	shown bool
	// unknown: all of it must end UNKNOWN.
	unknown bool
	// rare: a worker comes there a few times in a whole run, as it commits, and
	// hands over, in groups.
	rare bool
	// durable: only what was durably DELIVERED by the death is meant. At these
	// points a second copy of an id arrives too, whose first is still in flight.
	durable bool
}

// promises by point, for lanes that commit last: table 4.2 of the reliability
// reference. A send that was written and has no durable row may be repeated;
// nothing else is, and nothing is lost.
var promises = map[string]promise{
	"polled":            {at: 0, end: 1, shown: true},
	"confirmed":         {at: 0, end: 1, shown: true},
	"limited":           {at: 0, end: 1, shown: true},
	"before-send":       {at: 0, end: 1, shown: true},
	"sent":              {at: 1, end: 2, shown: true},
	"answered":          {at: 1, end: 2, shown: true},
	"before-status-ack": {at: 1, end: 2},
	"after-status-ack":  {at: 1, end: 1, shown: true},
	"after-filter":      {at: 1, end: 1, shown: true, durable: true},
	"before-commit":     {at: 1, end: 1, shown: true, durable: true, rare: true},
	"after-commit":      {at: 1, end: 1, shown: true, durable: true, rare: true},
	"before-retry-ack":  {at: 0, end: 1, shown: true, rare: true},
	"after-retry-ack":   {at: 0, end: 1, shown: true, rare: true},
	"before-dlq-ack":    {at: 0, end: 0, rare: true},
	"after-dlq-ack":     {at: 0, end: 0, rare: true},
	"in-revoke":         {at: 1, end: 2},
	"mid-drain":         {at: 1, end: 2},
}

// oncePromises are those of at_most_once, where they differ: nothing is ever
// sent twice, and what was intended and has no result ends UNKNOWN.
var oncePromises = map[string]promise{
	"before-intent-ack": {at: 0, end: 1},
	"after-intent-ack":  {at: 0, end: 0, shown: true, unknown: true},
	"before-send":       {at: 0, end: 0, shown: true, unknown: true},
	"sent":              {at: 1, end: 1, shown: true, unknown: true},
	"answered":          {at: 1, end: 1, shown: true, unknown: true},
	"before-status-ack": {at: 1, end: 1},
	"before-retry-ack":  {at: 0, end: 1, rare: true},
	"after-retry-ack":   {at: 0, end: 1, rare: true},
	"in-revoke":         {at: 1, end: 1},
	"mid-drain":         {at: 1, end: 1},
}

func (c Cell) promise() (promise, bool) {
	if c.Mode == atMostOnce {
		if p, ok := oncePromises[c.Point]; ok {
			return p, true
		}
	}
	p, ok := promises[c.Point]
	return p, ok
}

// Cells are all points of these modes.
func Cells(modes ...string) (cells []Cell) {
	for _, mode := range modes {
		points := make(map[string]bool)
		for point := range promises {
			points[point] = true
		}
		if mode == atMostOnce {
			for point := range oncePromises {
				points[point] = true
			}
		}
		for point := range points {
			cells = append(cells, Cell{Point: point, Mode: mode, Times: 2})
		}
	}
	slices.SortFunc(cells, func(a, b Cell) int { return strings.Compare(a.Mode+a.Point, b.Mode+b.Point) })
	return cells
}

// Later is the same cell with a death n times later, where there are so many.
func (c Cell) Later(n int) Cell {
	if p, _ := c.promise(); p.rare {
		n %= 3
	}
	c.Times += n
	return c
}

// CellOutcome is what became of one crash.
type CellOutcome struct {
	Cell
	Repeated int // pushes accepted again
	Unknown  int // notifications that ended UNKNOWN
	Wrong    []Finding
	Took     time.Duration
	Err      error // the run itself failed: it shows nothing

	unshown bool // nothing was quite at the point: it shows nothing either
}

// Judge is nil when the cell is as promised.
func (o *CellOutcome) Judge() error {
	if o.Err != nil {
		return fmt.Errorf("%s: the run failed: %w", o.Cell, o.Err)
	}
	if len(o.Wrong) > 0 {
		return fmt.Errorf("%s: %d things are wrong: %s", o.Cell, len(o.Wrong), o.Wrong[0])
	}
	return nil
}

// cellRecords is how many records a cell's lane has: enough to be in the middle
// of when it dies.
const cellRecords = 400

// RunCell runs one cell.
func RunCell(ctx context.Context, programs fleet.Programs, c Cell) CellOutcome {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	start := time.Now()
	var o CellOutcome
	// A machine that is busy with something else may bring an answer between the
	// point and the death: then it dies again, a little later.
	for range 4 {
		o = CellOutcome{Cell: c}
		if o.Err = o.run(ctx, programs); o.Err != nil || !o.unshown {
			break
		}
		c.Times++
	}
	if o.Err == nil && o.unshown {
		o.Err = errors.New("nothing was ever as it is at the point: the crashes have shown nothing")
	}
	o.Took = time.Since(start)
	return o
}

// RunCells runs cells, some at once. each, if given, is told of every outcome,
// one at a time.
func RunCells(ctx context.Context, programs fleet.Programs, cells []Cell, atOnce int, each func(CellOutcome)) []CellOutcome {
	outcomes := make([]CellOutcome, len(cells))
	var running sync.WaitGroup
	var telling sync.Mutex
	places := make(chan struct{}, max(1, atOnce))
	for i, c := range cells {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			outcomes[i] = RunCell(ctx, programs, c)
			if each != nil {
				telling.Lock()
				defer telling.Unlock()
				each(outcomes[i])
			}
		})
	}
	running.Wait()
	return outcomes
}

func (o *CellOutcome) run(ctx context.Context, programs fleet.Programs) (err error) {
	p, known := o.promise()
	if !known {
		return fmt.Errorf("nothing is promised for the point %q", o.Point)
	}
	w, err := newWorld(ctx, worldOptions{programs: programs, records: cellRecords,
		faults: sim.RouteSet{APNS: sim.Faults{Unavailable: 0.1, Latency: 60 * time.Millisecond}, FCM: slow(60)},
		crowd:  func(o *crowd.Options) { o.Broken = 0.05 },
		configure: func(c *configs.Config) {
			setMode(c, o.Mode)
			if strings.Contains(o.Point, "retry") {
				// An heir takes over after the session time-out; before the retry
				// copy is due it must have settled the original.
				c.Retries.Tiers = []time.Duration{3 * session}
			}
		}})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, w.Logs())
		}
		err = errors.Join(err, w.close())
	}()
	if err := w.Produce(ctx, cellOf(w.Config.Lanes[0], fleet.FromCrowd(w.people.Records(), cellRecords))); err != nil {
		return err
	}
	if err := o.die(ctx, w); err != nil {
		return err
	}
	if o.Point != "in-revoke" { // there the heir is at work already
		if _, err := w.worker(ctx); err != nil {
			return err
		}
	}
	found, err := w.check(ctx, withinPromise)
	if err != nil {
		return err
	}
	o.Wrong = append(found, o.compare(w, p)...)
	o.Repeated, o.Unknown = w.report.Resent, w.report.Outcomes[push.OutcomeUnknown]
	return nil
}

// ownKey is the producer's collapse key in the crowd's records.
var ownKey = regexp.MustCompile(`"collapse_key":"[^"]*",`)

// cellOf changes what is produced and what is meant by it to the lane:
// effectively_once has a collapse id of its own making where the producer gives
// none, and where nothing is sent again that may have arrived, what a crash or a
// lost answer catches may end UNKNOWN.
func cellOf(lane configs.Lane, records []fleet.Record) []fleet.Record {
	for i := range records {
		r := &records[i]
		switch {
		case lane.Mode == effectivelyOnce:
			r.Value = ownKey.ReplaceAll(r.Value, nil)
		case lane.DropsAmbiguous() && len(r.Want.Outcomes) > 0 && !r.Want.Unsent:
			r.Want.Outcomes = append(slices.Clone(r.Want.Outcomes), push.OutcomeUnknown)
		}
	}
	return records
}

// die starts a worker and brings it to its end.
func (o *CellOutcome) die(ctx context.Context, w *world) error {
	times := o.Times
	if o.Point == "in-revoke" || o.Point == "mid-drain" {
		times = 1
	}
	spec := fmt.Sprintf("%s:%d", o.Point, times)
	p, err := w.StartWorker(envStatus+"="+w.store.Addr(), envCrash+"="+spec)
	if err != nil {
		return err
	}
	switch o.Point {
	case "in-revoke":
		if err := w.AwaitAccepted(ctx, uint64(30*o.Times)); err != nil {
			return err
		}
		if _, err := w.StartWorker(envStatus + "=" + w.store.Addr()); err != nil {
			return err
		}
	case "mid-drain":
		if err := w.AwaitAccepted(ctx, uint64(30*o.Times)); err != nil {
			return err
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	return w.awaitDeath(ctx, p, spec)
}

// compare holds what was at the point against the promise.
func (o *CellOutcome) compare(w *world, p promise) (wrong []Finding) {
	deaths := w.store.Deaths()
	if len(deaths) != 1 || deaths[0].Point != o.Point {
		return []Finding{{Invariant: Repeated, Text: fmt.Sprintf("the worker said %v before it died, not that it was at %s", deaths, o.Point)}}
	}
	atDeath, inTheEnd := w.deaths[0].accepted, w.accepted()
	shown := false
	for _, at := range deaths[0].At {
		for _, device := range w.devicesOf(at) {
			place := placeOfPush{at.ID, device}
			if at := w.store.deliveredAt(at.ID, device); p.durable && (at.IsZero() || at.After(w.deaths[0].at)) {
				continue
			}
			a, e := atDeath[place], inTheEnd[place]
			if a > p.at || e > p.end {
				wrong = append(wrong, Finding{Invariant: Repeated, Text: fmt.Sprintf("%s on device %s was accepted %d times by the death and %d times in all; at %s at most %d and %d are promised", at.ID, device, a, e, o.Point, p.at, p.end)})
			}
			unknown := w.store.unknown(at.ID, device)
			// Its answer may have come in the moment before it died, a refusal as well.
			if p.unknown && !unknown && !w.store.answered(at.ID, device) {
				wrong = append(wrong, Finding{Invariant: Lost, Text: fmt.Sprintf("%s on device %s, intended and without a result, did not end UNKNOWN", at.ID, device)})
			}
			shown = shown || a == p.at && e == p.end && unknown == p.unknown
		}
	}
	o.unshown = p.shown && !shown
	if o.Mode == effectivelyOnce {
		wrong = append(wrong, w.checkCollapse()...)
	}
	return wrong
}

// devicesOf are the devices that a place at a crash point is about: its own, or
// all that the providers ever saw.
func (w *world) devicesOf(at Place) (devices []string) {
	if at.Device != "" {
		return []string{at.Device}
	}
	for _, s := range w.sends.all() {
		if s.ID == at.ID && !slices.Contains(devices, s.Device) {
			devices = append(devices, s.Device)
		}
	}
	return devices
}

// checkCollapse: every push carries the id that is made of its notification's,
// so that a second one replaces the first.
func (w *world) checkCollapse() (wrong []Finding) {
	for _, s := range w.sends.all() {
		sum := sha256.Sum256([]byte(s.ID))
		if want := base64.RawURLEncoding.EncodeToString(sum[:24]); s.CollapseID != want {
			wrong = append(wrong, Finding{Invariant: Repeated, Text: fmt.Sprintf("%s was sent with the collapse id %q and not %q", s.ID, s.CollapseID, want)})
		}
	}
	return wrong
}

// PrintCells writes the outcomes as a table, a line for each point and mode.
func PrintCells(out io.Writer, outcomes []CellOutcome) error {
	type line struct {
		runs, wrong, repeated, unknown int
		longest                        time.Duration
	}
	lines := make(map[Cell]*line)
	for _, o := range outcomes {
		key := Cell{Point: o.Point, Mode: o.Mode}
		l := lines[key]
		if l == nil {
			l = new(line)
			lines[key] = l
		}
		l.runs++
		if o.Judge() != nil {
			l.wrong++
		}
		l.repeated, l.unknown, l.longest = max(l.repeated, o.Repeated), max(l.unknown, o.Unknown), max(l.longest, o.Took)
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "MODE\tCRASH POINT\tCRASHES\tWRONG\tMOST REPEATED\tMOST UNKNOWN\tSECONDS")
	for _, c := range slices.SortedFunc(maps.Keys(lines), func(a, b Cell) int { return strings.Compare(a.Mode+a.Point, b.Mode+b.Point) }) {
		l := lines[c]
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%.1f\n", c.Mode, c.Point, l.runs, l.wrong, l.repeated, l.unknown, l.longest.Seconds())
	}
	return t.Flush()
}
