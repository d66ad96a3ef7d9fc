package events

import (
	"math"
	"time"
)

// Limits is how limits stood at one worker since From of their record (member "limits"),
// told about each ten seconds if there is anything to tell.
type Limits struct {
	Senders []SenderLimit `json:"senders,omitempty"` // the fullest first
	Omitted int           `json:"omitted,omitempty"` // entries besides
}

// SenderLimit is the bucket of a sender by a rule. A share of 1 is a bucket without tokens,
// and what is above it is owed: so many wait for their turn. All workers take from the same
// bucket.
type SenderLimit struct {
	Rule    string  `json:"rule"`
	Sender  string  `json:"sender"`
	Limit   int     `json:"limit"`             // notifications in a window
	Window  float64 `json:"window"`            // seconds
	Fills   float64 `json:"fills"`             // seconds in which an empty bucket fills, if nothing is taken: its share falls by 1
	Share   float64 `json:"share"`             // the greatest
	Now     float64 `json:"now"`               // at the time of the record, after this worker's last answer
	Limited int64   `json:"limited,omitempty"` // how often it put something off, or refused it, at this worker
}

// limitsRoom is for entries of Limits, without what is around them.
const limitsRoom = MaxRecord - 1<<10

// Limits returns the record that tells how limits stood since the last one; nil = there
// is nothing to tell. If it cannot be produced, the caller reports it by Missed. l stays as it is.
func (e *Collector) Limits(l Limits, now time.Time) (record []byte) {
	e.mu.Lock()
	since := e.limitsSince
	e.limitsSince = now
	e.mu.Unlock()
	room := limitsRoom
	l.Senders = fittingOf(l.Senders, &l.Omitted, &room, func(s *SenderLimit) {
		for _, f := range []*float64{&s.Window, &s.Fills, &s.Share, &s.Now} {
			*f = math.Round(1e4*finite(*f)) / 1e4
		}
	})
	if len(l.Senders) == 0 {
		return nil
	}
	return encoded(Event{Version: Version, Source: e.source, Number: e.next(), From: since.UTC(), At: now.UTC(), Limits: &l})
}
