package limits

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Tables is a session of Cassandra or Scylla, such as status.Session, in the
// keyspace that has the tables. It is safe for concurrent use.
type Tables interface {
	// Exec runs an idempotent statement.
	Exec(ctx context.Context, statement string, values ...any) error
	// Query reads each row into dest, which are pointers, and calls row after it.
	Query(ctx context.Context, statement string, values, dest []any, row func()) error
}

// DeviceLog keeps the deliveries that rules of devices count in Cassandra or
// Scylla: a partition for each device and day, which one read gets with all
// types in it. So a wipe of Redis forgets none. It is safe for concurrent use.
//
// Nothing guards what lies between a read and its write. Of n callers that decide
// about one device at once each may miss what the others are about to write: at
// most n-1 deliveries pass over a limit. That bound needs a session that reads and
// writes with LOCAL_QUORUM (or ONE where there is one replica). With LOCAL_ONE
// there is no bound: a read may also miss what has been written until the
// replicas agree, usually milliseconds later.
type DeviceLog struct {
	tables  Tables
	places  chan struct{} // each query in progress has one; never closed
	metrics *logMetrics   // nil = nobody measures
}

// NewDeviceLog makes a log with at most this many queries in flight at once, 1
// or more. The session stays the caller's.
func NewDeviceLog(tables Tables, concurrency int) *DeviceLog {
	return &DeviceLog{tables: tables, places: make(chan struct{}, max(concurrency, 1))}
}

// Check reads a row of each table that the log may need: an error says that one is
// missing or cannot be read.
func (d *DeviceLog) Check(ctx context.Context) error {
	l := logged{key: make([]byte, keySize)}
	if err := d.readDay(ctx, &l, 0); err != nil {
		return err
	}
	return d.readTimes(ctx, &l, 0)
}

// CountDevicesIn has rules of devices count in a log, and not in the states in
// Redis. Such a rule needs the calendar day, or a window of up to an hour with a
// sliding log or an event set.
func CountDevicesIn(log *DeviceLog) Option { return func(l *Limiter) { l.log = log } }

// Allow decides about one notification to one device at once, as an inbox that is
// pulled does it, and returns when what it spent is stored. device names the
// device as push.DeviceHash does for a token: then the fleet's pushes count too.
// With an error nothing is decided; asking again about the same id counts it once.
//
// Days are UTC's, unless one is running that began by another clock. With more
// known about the user or the notification, use Decide.
func (l *Limiter) Allow(ctx context.Context, user, device, kind, id string) (Decision, error) {
	r := Request{Owner: user, ID: id, Type: kind, Priority: 3, At: time.Now(), Devices: []Device{{Hash: DeviceHash(device)}}}
	if err := l.Decide(ctx, []*Request{&r}); err != nil {
		return Decision{}, err
	}
	return r.Decision, nil
}

const (
	// longestLogged is the longest sliding window: events of the table by time live
	// for twice as long.
	longestLogged = time.Hour
	daysTTL       = 2 * 24 * time.Hour
	timesTTL      = 2 * longestLogged
	keySize       = 16
)

// checkLogged refuses a rule that a log cannot carry.
func (r *Rule) checkLogged() error {
	switch {
	case r.Per != PerDeviceType, r.Calendar == Day:
	case r.Calendar != "" || r.Window > longestLogged || r.Algorithm == SlidingCounter:
		return fmt.Errorf("limits: rule %s: in Cassandra a rule of devices needs the calendar day, or a window of up to %v with %s or %s", r.Name, longestLogged, SlidingLog, EventSet)
	}
	return nil
}

// logKey names a device in a batch.
type logKey struct {
	owner  string
	device uint32
}

// hash is how the tables name it: they have neither users nor tokens.
func (k logKey) hash() []byte {
	b := append(append(make([]byte, 0, len(k.owner)+5), k.owner...), 0)
	sum := sha256.Sum256(binary.LittleEndian.AppendUint32(b, k.device))
	return sum[:keySize]
}

// deviceLogs are the devices of a batch. nil = rules of devices count in the
// states.
type deviceLogs map[logKey]*logged

// logged is what is known of one device.
type logged struct {
	key    []byte
	device uint32
	zone   *time.Location
	at     int64   // Unix ms, when it is asked about
	from   int64   // Unix ms: rules that slide look back to it; 0 = there are none
	days   []int32 // to read first, since 1970; none = no rule needs one

	read    []event // as found, without those of the batch
	running span    // the latest day that counts something; unit 0 = none
	date    int32   // where its events are

	// As decided so far.
	events []event
	spans  []span // running, as a calendar has it
	fresh  []event
}

// reset undoes all decisions since the read.
func (l *logged) reset() {
	l.events, l.fresh, l.spans = append(l.events[:0], l.read...), l.fresh[:0], l.spans[:0]
	if l.running.unit != 0 {
		l.spans = append(l.spans, l.running)
	}
}

// full reports whether nothing more is counted.
func (l *logged) full() bool { return len(l.read)+len(l.fresh) >= maxEvents }

// open reads the devices that rules cover.
func (d *DeviceLog) open(ctx context.Context, j *judge, reqs []*Request) (deviceLogs, error) {
	logs := deviceLogs{}
	var list []*logged
	for _, r := range reqs {
		if r.Exempt || len(r.Devices) == 0 {
			continue
		}
		c := newCandidate(r)
		c.flags |= deviceFlag
		if j.apply(r, &c.event, true); len(j.applied) == 0 {
			continue
		}
		for i := range r.Devices {
			key := logKey{r.Owner, r.Devices[i].Hash}
			l := logs[key]
			if l == nil {
				l = &logged{key: key.hash(), device: key.device, at: c.at}
				logs[key], list = l, append(list, l)
			}
			l.need(j, r)
		}
	}
	if err := d.each(ctx, len(list), func(ctx context.Context, i int) error { return d.load(ctx, list[i]) }); err != nil {
		return nil, fmt.Errorf("limits: reading what devices got: %w", err)
	}
	return logs, nil
}

// need notes what the rules at hand look at.
func (l *logged) need(j *judge, r *Request) {
	j.setZone(r)
	l.zone = j.calendar.zone
	for i := range j.applied {
		rule := j.applied[i].rule
		if rule.unit == 0 {
			if from := l.at - rule.window; l.from == 0 || from < l.from {
				l.from = from
			}
			continue
		}
		l.wantDay(dayNumber(time.UnixMilli(l.at).In(l.zone)))
		// What was first seen on another day may have been allowed there.
		if age := r.At.Sub(r.Since); !r.Since.IsZero() && age > 0 && age < daysTTL {
			l.wantDay(dayNumber(r.Since.In(l.zone)))
		}
	}
}

func (l *logged) wantDay(day int32) {
	if !slices.Contains(l.days, day) {
		l.days = append(l.days, day)
	}
}

// load reads what a device got. Where no window of the user's clock is running in
// the day that it is, the days that it is anywhere else are read too: one may be
// running there, of a user who has moved since.
func (d *DeviceLog) load(ctx context.Context, l *logged) error {
	for _, day := range l.days {
		if err := d.readDay(ctx, l, day); err != nil {
			return err
		}
	}
	if len(l.days) > 0 && !l.running.contains(l.at) {
		at := time.UnixMilli(l.at).UTC()
		for day := dayNumber(at.Add(-latestZone)); day <= dayNumber(at.Add(earliestZone)); day++ {
			if slices.Contains(l.days, day) {
				continue
			}
			if err := d.readDay(ctx, l, day); err != nil {
				return err
			}
		}
	}
	if l.from != 0 {
		for day := dayNumber(time.UnixMilli(l.from).UTC()); day <= dayNumber(time.UnixMilli(l.at).UTC()); day++ {
			if err := d.readTimes(ctx, l, day); err != nil {
				return err
			}
		}
	}
	sorted(l.read)
	l.reset()
	return nil
}

// The clocks that are furthest behind UTC's and before it.
const (
	latestZone   = 12 * time.Hour
	earliestZone = 14 * time.Hour
)

// dayNumber is the date of t's clock, in days since 1970.
func dayNumber(t time.Time) int32 {
	y, m, d := t.Date()
	return int32(floor(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix(), secondsADay) / secondsADay)
}

const secondsADay = 24 * 60 * 60

// store writes what a batch has allowed.
func (d *DeviceLog) store(ctx context.Context, logs deviceLogs, rules []rule) error {
	d.metrics.decided(logs)
	var rows []row
	for _, l := range logs {
		for i := range l.fresh {
			rows = l.appendRows(rows, &l.fresh[i], rules)
		}
	}
	if err := d.each(ctx, len(rows), func(ctx context.Context, i int) error { return d.write(ctx, &rows[i]) }); err != nil {
		return fmt.Errorf("limits: writing what devices got: %w", err)
	}
	return nil
}

// each runs do for 0 to n-1, as many at once as there are places. Without an error
// all were run.
func (d *DeviceLog) each(caller context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(caller)
	g.SetLimit(cap(d.places))
	for i := range n {
		if ctx.Err() != nil { // one has failed, or the caller gave up
			return cmp.Or(g.Wait(), context.Cause(caller))
		}
		g.Go(func() error {
			select {
			case d.places <- struct{}{}:
				defer func() { <-d.places }()
				return do(ctx, i)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	return g.Wait()
}

// note is an event that a request leaves in a log.
type note struct {
	log   *logged
	event event
}

func (j *judge) note(log *logged, e *event) {
	if log != nil {
		j.noted = append(j.noted, note{log, *e})
	}
}

// leaveNotes spends what the request at hand has noted.
func (j *judge) leaveNotes() {
	for i := range j.noted {
		l, e := j.noted[i].log, &j.noted[i].event
		same := func(o event) bool { return o.same(e) }
		if slices.ContainsFunc(l.fresh, same) {
			continue // of an earlier request
		}
		l.fresh = append(l.fresh, *e)
		e.flags |= inDays | inTimes // it will be
		j.exchange(l)
		if i := slices.IndexFunc(j.state.events, same); i >= 0 {
			j.state.events[i].flags = e.flags
		} else {
			j.state.events = insert(j.state.events, e)
		}
		j.pin(e)
		j.exchange(l)
	}
}

// exchange puts the events and the running window of a device in the place of
// those of the state, and, called again, those back.
func (j *judge) exchange(l *logged) {
	if l != nil {
		j.state.events, l.events = l.events, j.state.events
		j.calendar.running, l.spans = l.spans, j.calendar.running
	}
}
