package pipeline

import "time"

// Standstill is a partition that has records to read or to finish, and whose
// watermark has not moved since Since.
type Standstill struct {
	Partition Partition
	Lag       int64 // records between the committed offset and the end, above 0
	Since     time.Time
	Waiting   Waiting
}

// Waiting is why a source does not hand out more of a partition.
type Waiting string

// What a source may wait for.
const (
	WaitingNothing Waiting = ""               // it does not wait
	WaitingDue     Waiting = "not_due"        // the next record is for later
	WaitingRoom    Waiting = "back_pressure"  // the window of open records is full
	WaitingOwner   Waiting = "previous_owner" // what was open before a rebalance is still on its way
	WaitingStopped Waiting = "stopped"        // an operator has to look at it
	WaitingKafka   Waiting = "kafka_silent"   // its brokers do not answer
)

// RouteProgress is what a route has done so far.
type RouteProgress struct {
	Route     Route
	Out       int    // deliveries that wait for it or are on their way
	Completed uint64 // deliveries that came back, since the start
}

// Sight is what a Watch looks at. Over is when the last stall ended
// (Stalls.Declared).
type Sight struct {
	Standstills []Standstill
	Stalls      []Stall
	Over        time.Time
	Routes      []RouteProgress
}

// Finding is what a Watch thinks of a Sight.
type Finding struct {
	// Dead is set when nothing explains why a partition does not move: only a
	// new process helps.
	Dead *Standstill
	// Quiet is the longest that a partition has stood still without a reason.
	Quiet time.Duration
	// Alerts are reasons that have lasted too long, each told once in that time.
	Alerts []Alert
}

// Alert is a reason that has lasted for too long. Partition is set when it is
// a source's own.
type Alert struct {
	Name      string
	Detail    string
	Partition Partition
	For       time.Duration
}

// WatchOptions are the times of a Watch.
type WatchOptions struct {
	Patience time.Duration // without movement and without a reason: then the process is to end
	Alarm    time.Duration // for any reason: then somebody should know
	Gap      time.Duration // between two looks: after a longer one this process itself stood still, and all begins anew
}

// DefaultWatchOptions returns the defaults.
func DefaultWatchOptions() WatchOptions {
	return WatchOptions{Patience: time.Minute, Alarm: 10 * time.Minute, Gap: 15 * time.Second}
}

// Watch is the progress watchdog of one pipeline: a group can be stable, its
// heartbeats flow, and one partition still be stuck for ever. It is a plain
// data structure for one goroutine, and is to be asked every second or so: it
// remembers since when something had no reason to stand still.
type Watch struct {
	options WatchOptions
	last    time.Time
	parts   map[Partition]*watched
	routes  map[Route]*movement
	told    map[string]time.Time // stalls by name, and when an Alert last said so
}

// watched is what a Watch knows of a partition that stands still.
type watched struct {
	moved   time.Time // the watermark, by Standstill.Since
	excused time.Time // when it last had a reason
	waiting Waiting
	since   time.Time // that it has waited for that
	told    time.Time
	ahead   map[Route]uint64 // what each route will have completed once all that was out at since is back
	seen    bool
}

func (p *watched) overtaken(completed map[Route]uint64) bool {
	for r, n := range p.ahead {
		if completed[r] < n {
			return false
		}
	}
	return true
}

type movement struct {
	completed uint64
	at        time.Time
}

// NewWatch makes a Watch.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{options: o, parts: make(map[Partition]*watched), routes: make(map[Route]*movement), told: make(map[string]time.Time)}
}

// Look judges what there is to be seen now. A partition whose window is full is
// overtaken when all that its routes had to do when it came to a halt has been
// done since: its own first record was among that, and is lost.
//
//	the partition                                              is
//	moves, or has no lag                                       not in Standstills
//	stands still while any stall is declared                   excused
//	… waits: not due, previous owner, operator                 excused
//	… waits for room, and routes with work complete sends      excused, unless overtaken
//	… anything else, for less than Patience                    suspected: Quiet
//	… and for Patience since its last excuse                   Dead
func (w *Watch) Look(now time.Time, s Sight) (f Finding) {
	if w.last.IsZero() || now.Sub(w.last) > w.options.Gap {
		clear(w.parts)
		clear(w.routes)
		w.last = now
	}
	flowing := w.flowing(now, s.Routes)
	completed := make(map[Route]uint64, len(s.Routes))
	for _, r := range s.Routes {
		completed[r.Route] = r.Completed
	}
	for i := range s.Standstills {
		still := &s.Standstills[i]
		p := w.part(now, still, s.Routes)
		switch {
		case len(s.Stalls) > 0, still.Waiting.excuses():
			p.excused = now
		case still.Waiting == WaitingRoom && !p.overtaken(completed):
			p.excused = latestOf(p.excused, flowing)
		}
		quiet := now.Sub(latestOf(still.Since, p.excused, s.Over))
		if quiet >= w.options.Patience && (f.Dead == nil || quiet > f.Quiet) {
			f.Dead = still
		}
		f.Quiet = max(f.Quiet, quiet)
		if still.Waiting.alarms() && w.due(now, p.since, &p.told) {
			f.Alerts = append(f.Alerts, Alert{Name: string(still.Waiting), Partition: still.Partition, For: now.Sub(p.since)})
		}
	}
	w.forget()
	f.Alerts = append(f.Alerts, w.stalls(now, s.Stalls)...)
	w.last = now
	return f
}

// excuses reports whether waiting for that is a reason by itself.
func (w Waiting) excuses() bool {
	return w == WaitingDue || w == WaitingOwner || w == WaitingStopped || w == WaitingKafka
}

// alarms reports whether waiting for that for long is worth an alert. The
// longest retry tier waits for hours and nothing is wrong.
func (w Waiting) alarms() bool { return w != WaitingNothing && w != WaitingDue }

// part is what is known of the partition, brought up to date.
func (w *Watch) part(now time.Time, still *Standstill, routes []RouteProgress) *watched {
	p := w.parts[still.Partition]
	if p == nil {
		p = &watched{}
		if w.last.Equal(now) { // the first look: what was before is not ours to judge
			p.excused = now
		}
		w.parts[still.Partition] = p
	}
	if p.since.IsZero() || !p.moved.Equal(still.Since) || p.waiting != still.Waiting {
		p.moved, p.waiting, p.since, p.told = still.Since, still.Waiting, now, time.Time{}
		p.ahead = make(map[Route]uint64, len(routes))
		for _, r := range routes {
			p.ahead[r.Route] = r.Completed + uint64(r.Out)
		}
	}
	p.seen = true
	return p
}

// forget drops the partitions that were not seen: they move, or are no longer
// ours.
func (w *Watch) forget() {
	for id, p := range w.parts {
		if !p.seen {
			delete(w.parts, id)
		}
		p.seen = false
	}
}

// flowing is up to when routes have emptied what waits for them: when the
// slowest of those with work last completed a send. Zero when none has work.
func (w *Watch) flowing(now time.Time, routes []RouteProgress) (until time.Time) {
	for _, r := range routes {
		m := w.routes[r.Route]
		if m == nil {
			m = &movement{completed: r.Completed, at: now}
			w.routes[r.Route] = m
		}
		if r.Out == 0 || r.Completed != m.completed {
			m.completed, m.at = r.Completed, now
		}
		if r.Out > 0 && (until.IsZero() || m.at.Before(until)) {
			until = m.at
		}
	}
	return until
}

// stalls returns an Alert for each declared stall that has lasted too long.
func (w *Watch) stalls(now time.Time, stalls []Stall) (alerts []Alert) {
	told := make(map[string]time.Time, len(stalls))
	for _, s := range stalls {
		last := w.told[s.Name] // or of an earlier one, which is as long ago
		if w.due(now, s.Since, &last) {
			alerts = append(alerts, Alert{Name: s.Name, Detail: s.Detail, For: now.Sub(s.Since)})
		}
		told[s.Name] = last
	}
	w.told = told
	return alerts
}

// due reports whether a reason that began at since is to be told now, and
// notes that it was.
func (w *Watch) due(now, since time.Time, told *time.Time) bool {
	if now.Sub(since) < w.options.Alarm || !told.IsZero() && now.Sub(*told) < w.options.Alarm {
		return false
	}
	*told = now
	return true
}

func latestOf(ts ...time.Time) (latest time.Time) {
	for _, t := range ts {
		if t.After(latest) {
			latest = t
		}
	}
	return latest
}
