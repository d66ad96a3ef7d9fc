package events

import (
	"math"
	"time"
)

// State is what one worker is at, told about once a second (member "state" of a
// record). A reader keeps the newest of each source; one that has told nothing for
// StateGone is gone. Lists are bounded: what is left out is counted.
type State struct {
	Worker      string       `json:"worker"`            // name of the member: client id or host name
	Release     string       `json:"release,omitempty"` // version of the program
	Started     time.Time    `json:"started"`
	Last        bool         `json:"last,omitempty"` // it ends in order: there will be no more
	Memory      int64        `json:"memory"`         // bytes resident; 0: unknown
	MemoryBound int64        `json:"memory_bound"`   // bytes, the printed bound; 0: unknown
	RepeatBound int64        `json:"repeat_bound"`   // pushes that a kill now may repeat, the printed bound
	Lanes       []LaneState  `json:"lanes,omitempty"`
	Routes      []RouteState `json:"routes,omitempty"`
	Stalls      []StallState `json:"stalls,omitempty"`
	Omitted     int          `json:"omitted,omitempty"` // entries that did not fit in MaxRecord
}

// LaneState is a topic of a lane at one worker: the lane's own, or one beside it.
type LaneState struct {
	Lane       string    `json:"lane"` // of a retry, deferral or hold topic <lane>.retry
	Topic      string    `json:"topic"`
	Partitions []int32   `json:"partitions"`      // owned, ascending
	Open       int64     `json:"open"`            // records polled and not committed
	Pushes     int64     `json:"pushes"`          // places of the windows that are taken: sent or about to be, without a durable row
	Oldest     time.Time `json:"oldest,omitzero"` // when the oldest record without an end was produced
}

// RouteState is one route (provider, app and environment) at one worker.
type RouteState struct {
	Provider    string        `json:"provider"`
	App         string        `json:"app"`
	Environment string        `json:"environment,omitempty"` // none: the provider has none
	Gate        string        `json:"gate"`                  // open, paused, probing, halted
	Until       time.Time     `json:"until,omitzero"`        // of a pause
	Word        string        `json:"word,omitempty"`        // provider's last bad word, a code only
	Credential  string        `json:"credential,omitempty"`  // that the provider refuses: a key's id, an account's address
	Remedy      string        `json:"remedy,omitempty"`      // what to do about that
	RateName    string        `json:"rate_name,omitempty"`   // what the provider counts, as in rates
	Rate        float64       `json:"rate,omitempty"`        // pushes/s of the fleet now; 0: no limit
	Base        float64       `json:"base,omitempty"`        // 0: none configured
	Share       float64       `json:"share,omitempty"`       // pushes/s that this worker took in the last second
	Connections int           `json:"connections"`
	Streams     int           `json:"streams"` // granted by the provider, sum over connections
	InFlight    int64         `json:"in_flight"`
	Answers     []AnswerState `json:"answers,omitempty"`     // of the last minute
	Quarantined int           `json:"quarantined,omitempty"` // campaigns and senders that are stopped
}

// AnswerState is how often a route's answers were of a class in the last minute.
type AnswerState struct {
	Class  string `json:"class"`            // as in metrics: delivered, again, gone, refused
	Reason string `json:"reason,omitempty"` // provider's word, bounded
	N      int64  `json:"n"`
}

// StallState is a reason for which something waits.
type StallState struct {
	Reason    string    `json:"reason"`
	Lane      string    `json:"lane,omitempty"`
	Topic     string    `json:"topic,omitempty"`
	Partition *int32    `json:"partition,omitempty"`
	Route     string    `json:"route,omitempty"` // as in metrics
	Since     time.Time `json:"since"`
}

const (
	// longestName bounds a worker's name and its release, in bytes.
	longestName = 256
	// mostStalls bounds the stalls that are told: a provider that pauses all routes
	// makes one of each partition and route.
	mostStalls = 500
	// latestYear and earliestYear are what JSON can express of a time.
	earliestYear, latestYear = 0, 9999
)

// State returns the record that tells a state. It has no number: states that are missing
// are no gap, and the next one says all. Entries that do not fit in MaxRecord are left
// out and counted, lists of answers before routes. s and its lists stay as they are.
func (e *Collector) State(s State, now time.Time) []byte {
	s = fitting(s)
	return encoded(Event{Version: Version, Source: e.source, At: now.UTC(), State: &s})
}

// stateRoom is for what is around the entries: names of up to longestName bytes, each of
// which may be written as six, and a list's own name and brackets.
const stateRoom = MaxRecord - 2*6*longestName - 1<<10

// fitting is a state without the entries that do not fit in stateRoom.
func fitting(s State) State {
	s.Worker, s.Release = s.Worker[:min(len(s.Worker), longestName)], s.Release[:min(len(s.Release), longestName)]
	s.Started = expressible(s.Started)
	room := stateRoom
	routes, answers := make([]RouteState, 0, len(s.Routes)), make([][]AnswerState, 0, len(s.Routes))
	for _, r := range s.Routes {
		of := r.Answers
		r.Answers, r.Until = nil, expressible(r.Until)
		r.Rate, r.Base, r.Share = finite(r.Rate), finite(r.Base), finite(r.Share)
		if !fits(r, &room) {
			s.Omitted += 1 + len(of)
			continue
		}
		routes, answers = append(routes, r), append(answers, of)
	}
	s.Lanes = fittingOf(s.Lanes, &s.Omitted, &room, func(l *LaneState) { l.Oldest = expressible(l.Oldest) })
	if more := len(s.Stalls) - mostStalls; more > 0 {
		s.Stalls, s.Omitted = s.Stalls[:mostStalls], s.Omitted+more
	}
	s.Stalls = fittingOf(s.Stalls, &s.Omitted, &room, func(l *StallState) { l.Since = expressible(l.Since) })
	for i := range routes {
		if room -= len(`,"answers":[]`); room < 0 {
			room = 0
			s.Omitted += len(answers[i])
			continue
		}
		routes[i].Answers = fittingOf(answers[i], &s.Omitted, &room, func(*AnswerState) {})
	}
	s.Routes = routes
	return s
}

// fittingOf returns the entries that fit, each made expressible.
func fittingOf[T any](entries []T, omitted, room *int, express func(*T)) []T {
	kept := make([]T, 0, len(entries))
	for _, entry := range entries {
		if express(&entry); fits(entry, room) {
			kept = append(kept, entry)
		} else {
			*omitted++
		}
	}
	return kept
}

// fits takes the room of an entry and its comma, if there is so much.
func fits(entry any, room *int) bool {
	n := len(encoded(entry)) + 1
	if n > *room {
		return false
	}
	*room -= n
	return true
}

// expressible is a time in UTC, or none if JSON cannot express it.
func expressible(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < earliestYear || t.Year() > latestYear {
		return time.Time{}
	}
	return t
}

// finite is a number, or 0 if JSON cannot express it.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}
