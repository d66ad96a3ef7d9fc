package pipeline

import (
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Standstill is a partition that has records to read or to finish, and whose
// watermark has not moved since Since.
type Standstill struct {
	Partition push.Partition
	Lag       int64 // records between the committed offset and the end, above 0
	Since     time.Time
	Waiting   Waiting
}

// Waiting is why a source does not hand out more of a partition.
type Waiting string

// What a source may wait for.
const (
	WaitingNothing Waiting = ""                     // it does not wait
	WaitingDue     Waiting = "not_due"              // the next record is for later
	WaitingRoom    Waiting = "back_pressure"        // the window of open records is full
	WaitingTurn    Waiting = "others_back_pressure" // the same, with nothing of its own
	WaitingOwner   Waiting = "previous_owner"       // what was open before a rebalance is still on its way
	WaitingStopped Waiting = "stopped"              // an operator has to look at it
	WaitingKafka   Waiting = "kafka_silent"         // its brokers do not answer
)

// Progress is what was done so far.
type Progress struct {
	Out       int    // deliveries that wait or are on their way
	Completed uint64 // deliveries that had their turn and came back, since the start
}

// LineProgress is what a line has done so far, and of that each partition's.
type LineProgress struct {
	Line Line
	Progress
	Partitions map[push.Partition]Progress
	// Turn is the most deliveries that come back before one of a partition that
	// has something in the line does.
	Turn int
}

// Sight is what a Watch looks at. Ended are the stalls that are over since the
// last look (Stalls.Declared).
type Sight struct {
	Standstills []Standstill
	Stalls      []Stall
	Ended       []Stall
	Lines       []LineProgress
}

// Finding is what a Watch thinks of a Sight.
type Finding struct {
	// Dead is set when nothing explains why a partition does not move: only a
	// new process helps.
	Dead *Standstill
	// Quiet is the longest that a partition has stood still without a reason.
	Quiet time.Duration
	// Excuses are why partitions may stand still at this moment, one for each of a
	// partition's, in no order.
	Excuses []Excuse
	// Alerts are reasons that have lasted too long, each told once in that time.
	Alerts []Alert
}

// Excuse is a reason for which a partition stands still. Name is that of a stall, or
// what its source waits for.
type Excuse struct {
	Partition push.Partition
	Name      string
	Since     time.Time // that it stands still for this
}

// Alert is a reason that has lasted for too long. Partition is set when it is
// a source's own.
type Alert struct {
	Name      string
	Detail    string
	Partition push.Partition
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
	parts   map[push.Partition]*watched
	lines   map[Line]movement
	told    map[stallID]time.Time // when an Alert last said so
}

// watched is what a Watch knows of a partition that stands still.
type watched struct {
	moved   time.Time // the watermark, by Standstill.Since
	excused time.Time // when it last had a reason
	waiting Waiting
	since   time.Time // that it has waited for that
	told    time.Time
	lines   map[Line]turnTaken
	seen    bool
}

// turnTaken is when a partition last had a delivery come back from a line, by
// what was completed then, or had none there.
type turnTaken struct{ own, all uint64 }

type movement struct {
	completed uint64
	at        time.Time
}

// NewWatch makes a Watch.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{options: o, parts: make(map[push.Partition]*watched), lines: make(map[Line]movement), told: make(map[stallID]time.Time)}
}

// Look judges what there is to be seen now. A partition that moves on by what
// comes back has a reason while lines with something of it complete sends and it
// has its turns there. Without anything in a line, or when a line has gone by it for longer
// than a turn takes, its records are lost. A line that is stalled says nothing
// about the partitions that have nothing in it.
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
			if e := &s.Ended[j]; e.excuses(still.Partition) {
				p.excused = latestOf(p.excused, e.Until)
			}
		}
		excuses := p.excuses(still, s.Stalls)
		f.Excuses = append(f.Excuses, excuses...)
		switch {
		case len(excuses) > 0:
			p.excused = now
		default: // also one that has room: its turn may be as long in coming
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

// excuses are why a partition may stand still now.
func (p *watched) excuses(still *Standstill, stalls []Stall) (all []Excuse) {
	for i := range stalls {
		if s := &stalls[i]; s.excuses(still.Partition) {
			all = append(all, Excuse{still.Partition, s.Name, latestOf(s.Since, still.Since)})
		}
	}
	if still.Waiting.excuses() {
		all = append(all, Excuse{still.Partition, string(still.Waiting), p.since})
	}
	return all
}

// excuses reports whether waiting for that is a reason by itself.
func (w Waiting) excuses() bool {
	return w == WaitingDue || w == WaitingTurn || w == WaitingOwner || w == WaitingStopped || w == WaitingKafka
}

// alarms reports whether waiting for that for long is worth an alert. The
// longest retry tier waits for hours and nothing is wrong.
func (w Waiting) alarms() bool { return w != WaitingNothing && w != WaitingDue }

// part is what is known of the partition, brought up to date.
func (w *Watch) part(now time.Time, still *Standstill) *watched {
	p := w.parts[still.Partition]
	if p == nil {
		p = &watched{lines: make(map[Line]turnTaken)}
		if w.last.Equal(now) { // the first look: what was before is not ours to judge
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

// move notes which lines have completed something since the last look, or have
// nothing to do.
func (w *Watch) move(now time.Time, lines []LineProgress) {
	for i := range lines {
		l := &lines[i]
		if m, known := w.lines[l.Line]; !known || l.Out == 0 || l.Completed != m.completed {
			w.lines[l.Line] = movement{completed: l.Completed, at: now}
		}
	}
}

// flowing says up to when the lines that are not stalled have emptied what a
// partition has in them: when the slowest of them last completed a send. Zero
// when it has nothing there, or does not have its turns.
func (w *Watch) flowing(p *watched, id push.Partition, s *Sight) (until time.Time) {
	lost := false
	for i := range s.Lines {
		l := &s.Lines[i]
		own := l.Partitions[id]
		taken, known := p.lines[l.Line]
		stalled := slices.ContainsFunc(s.Stalls, func(st Stall) bool { return st.Line == l.Line })
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
func (w *Watch) stalls(now time.Time, stalls []Stall) (alerts []Alert) {
	told := make(map[stallID]time.Time, len(stalls))
	for _, s := range stalls {
		id := stallID{s.Name, s.Line}
		last := w.told[id] // or of an earlier one, which is as long ago
		if w.due(now, s.Since, &last) {
			alerts = append(alerts, Alert{Name: s.Name, Detail: s.Detail, For: now.Sub(s.Since)})
		}
		told[id] = last
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
