// Package watch is the progress watchdog: a consumer group can be stable and its
// heartbeats can flow while one partition is stuck for ever. A Watch compares what
// sources say of their partitions with the reasons that a pipeline declares, and
// finds the partition that stands still without one.
package watch

import (
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Standstill is a partition that has records to read or to finish, but whose
// watermark has not moved since Since.
type Standstill struct {
	Partition push.Partition
	Lag       int64 // records between the committed offset and the end, above 0
	Since     time.Time
	Waiting   Waiting
}

// Waiting is the reason why a source hands out no more records of a partition.
type Waiting string

// The reasons for which a source may wait.
const (
	WaitingNothing Waiting = ""                     // it does not wait
	WaitingDue     Waiting = "not_due"              // the next record is not due yet
	WaitingRoom    Waiting = "back_pressure"        // the window of open records is full
	WaitingTurn    Waiting = "others_back_pressure" // the same, but only other partitions have open records
	WaitingLane    Waiting = "other_lanes"          // the fleet's limit is short, and more urgent lanes go first
	WaitingOwner   Waiting = "previous_owner"       // work of the previous assignment is still in flight
	WaitingStopped Waiting = "stopped"              // an operator must act
	WaitingKafka   Waiting = "kafka_silent"         // its brokers do not answer
)

// Sight is what a Watch looks at. Ended are the stalls that have ended since the
// last look (Stalls.Declared).
type Sight struct {
	Standstills []Standstill
	Stalls      []gates.Stall
	Ended       []gates.Stall
	Lines       []gates.LineProgress
}

// Finding is what a Watch concludes from a Sight.
type Finding struct {
	// Dead is set when nothing explains why a partition does not move: only a
	// new process helps.
	Dead *Standstill
	// Quiet is the longest that a partition has stood still without a reason.
	Quiet time.Duration
	// Excuses are the reasons why partitions may stand still now, in no
	// particular order. A partition may have several.
	Excuses []Excuse
	// Alerts are reasons that have lasted too long. Each is repeated once per
	// Options.Alarm.
	Alerts []Alert
}

// Excuse is a reason why a partition stands still. Name is the name of a stall, or
// the Waiting of its source.
type Excuse struct {
	Partition push.Partition
	Name      string
	Since     time.Time // when it began to stand still for this reason
}

// Alert is a reason that has lasted too long. Partition is set if the reason is a
// source's Waiting.
type Alert struct {
	Name      string
	Detail    string
	Partition push.Partition
	For       time.Duration
}

// Options are the durations that a Watch works with.
type Options struct {
	Patience time.Duration // without movement and without a reason: then the process must end
	Alarm    time.Duration // for any one reason: then an alert is raised
	Gap      time.Duration // between two looks: after a longer one this process itself was suspended, and the Watch starts over
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{Patience: time.Minute, Alarm: 10 * time.Minute, Gap: 15 * time.Second}
}

// Watch is the watchdog of one pipeline. It is a plain data structure for one goroutine, which calls Look about once a second. It remembers
// for how long a partition has stood still without a reason.
type Watch struct {
	options Options
	last    time.Time
	parts   map[push.Partition]*watched
	lines   map[gates.Line]movement
	told    map[reason]time.Time // when the last Alert was raised
}

// watched is what a Watch knows about a partition that stands still.
type watched struct {
	moved   time.Time // when the watermark last moved: Standstill.Since
	excused time.Time // when it last had a reason
	waiting Waiting
	since   time.Time // when it began to wait for that
	told    time.Time
	lines   map[gates.Line]turnTaken
	seen    bool
}

// turnTaken holds the completed counts of a partition and of its line, from when a
// delivery of the partition last came back from the line, or it had none there.
type turnTaken struct{ own, all uint64 }

// reason tells declared stalls apart: those with one name and line are one.
type reason struct {
	name string
	line gates.Line
}

type movement struct {
	completed uint64
	at        time.Time
}

// New makes a Watch.
func New(o Options) *Watch {
	return &Watch{options: o, parts: make(map[push.Partition]*watched), lines: make(map[gates.Line]movement), told: make(map[reason]time.Time)}
}

// Look judges the current state. A partition that has deliveries in lines has a
// reason to stand still while these lines complete sends and the partition gets
// its turns there. If it has nothing in any line, or a line has passed over it for
// longer than one turn, its records are lost. A stalled line is no excuse for a
// partition that has nothing in it.
//
//	the partition                                             is
//	moves, or has no lag                                      not in Standstills
//	stands still while something is stalled that it needs     excused
//	… waits: not due, its turn, previous owner, operator      excused
//	has something in lines that complete sends by turns       excused
//	… anything else, for less than Patience                   suspected: Quiet
//	… and for Patience since its last excuse                  Dead
func (w *Watch) Look(now time.Time, s Sight) (f Finding) {
	if w.last.IsZero() || now.Sub(w.last) > w.options.Gap {
		clear(w.parts)
		clear(w.lines)
		w.last = now
	}
	w.move(now, s.Lines)
	for i := range s.Standstills {
		still := &s.Standstills[i]
		p := w.part(now, still)
		flowing := w.flowing(p, still.Partition, &s)
		for j := range s.Ended {
			if e := &s.Ended[j]; e.Excuses(still.Partition) {
				p.excused = latestOf(p.excused, e.Until)
			}
		}
		excuses := p.excuses(still, s.Stalls)
		f.Excuses = append(f.Excuses, excuses...)
		switch {
		case len(excuses) > 0:
			p.excused = now
		default: // also for a partition with room: it may have to wait as long for its turn
			p.excused = latestOf(p.excused, flowing)
		}
		quiet := now.Sub(latestOf(still.Since, p.excused))
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

// excuses returns the reasons why a partition may stand still now.
func (p *watched) excuses(still *Standstill, stalls []gates.Stall) (all []Excuse) {
	for i := range stalls {
		if s := &stalls[i]; s.Excuses(still.Partition) {
			all = append(all, Excuse{still.Partition, s.Name, latestOf(s.Since, still.Since)})
		}
	}
	if still.Waiting.excuses() {
		all = append(all, Excuse{still.Partition, string(still.Waiting), p.since})
	}
	return all
}

// excuses reports whether w alone is a reason to stand still.
func (w Waiting) excuses() bool {
	return w == WaitingDue || w == WaitingTurn || w == WaitingLane || w == WaitingOwner || w == WaitingStopped || w == WaitingKafka
}

// alarms reports whether a long wait for w is worth an alert. The longest retry
// tier waits for hours, and nothing is wrong.
func (w Waiting) alarms() bool { return w != WaitingNothing && w != WaitingDue }

// part updates and returns what is known about the partition.
func (w *Watch) part(now time.Time, still *Standstill) *watched {
	p := w.parts[still.Partition]
	if p == nil {
		p = &watched{lines: make(map[gates.Line]turnTaken)}
		if w.last.Equal(now) { // the first look: nothing is known about the time before
			p.excused = now
		}
		w.parts[still.Partition] = p
	}
	if p.since.IsZero() || !p.moved.Equal(still.Since) || p.waiting != still.Waiting {
		p.moved, p.waiting, p.since, p.told = still.Since, still.Waiting, now, time.Time{}
	}
	p.seen = true
	return p
}

// forget drops the partitions that this look did not see: they move, or are no
// longer ours.
func (w *Watch) forget() {
	for id, p := range w.parts {
		if !p.seen {
			delete(w.parts, id)
		}
		p.seen = false
	}
}

// move notes which lines have completed something since the last look, or have
// nothing to do.
func (w *Watch) move(now time.Time, lines []gates.LineProgress) {
	for i := range lines {
		l := &lines[i]
		if m, known := w.lines[l.Line]; !known || l.Out == 0 || l.Completed != m.completed {
			w.lines[l.Line] = movement{completed: l.Completed, at: now}
		}
	}
}

// flowing returns the time up to which the lines that are not stalled were known to
// work on a partition's deliveries: when the slowest of them last completed a
// send. It is zero if the partition has nothing there, or does not get its turns.
func (w *Watch) flowing(p *watched, id push.Partition, s *Sight) (until time.Time) {
	lost := false
	for i := range s.Lines {
		l := &s.Lines[i]
		own := l.Partitions[id]
		taken, known := p.lines[l.Line]
		stalled := slices.ContainsFunc(s.Stalls, func(st gates.Stall) bool { return st.Line == l.Line })
		if !known || stalled || own.Out == 0 || own.Completed != taken.own {
			taken = turnTaken{own: own.Completed, all: l.Completed}
			p.lines[l.Line] = taken
		}
		if stalled || own.Out == 0 {
			continue
		}
		lost = lost || l.Completed-taken.all > uint64(l.Turn)
		if at := w.lines[l.Line].at; until.IsZero() || at.Before(until) {
			until = at
		}
	}
	if lost {
		return time.Time{}
	}
	return until
}

// stalls returns an Alert for each declared stall that has lasted too long.
func (w *Watch) stalls(now time.Time, stalls []gates.Stall) (alerts []Alert) {
	told := make(map[reason]time.Time, len(stalls))
	for _, s := range stalls {
		id := reason{s.Name, s.Line}
		last := w.told[id] // perhaps of an earlier stall with this id
		if w.due(now, s.Since, &last) {
			alerts = append(alerts, Alert{Name: s.Name, Detail: s.Detail, For: now.Sub(s.Since)})
		}
		told[id] = last
	}
	w.told = told
	return alerts
}

// due reports whether to raise an alert now for a reason that began at since, and
// if so records that it was raised.
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
