// Package dashboard shows a fleet live: what is sent, in progress and queued, what
// became of it, and why. A Feed adds up what push.events and the consumer offsets
// say, a Reader fills it from Kafka, and a Site shows it to browsers. It has no
// store: it reads the last hour when it starts, and a rebuilt one says the same.
//
//	feed.go      what is kept of the events
//	history.go   counts by second and minute
//	totals.go    counts of the last hour by their kind
//	senders.go   senders and their limits
//	users.go     how many users are limited
//	sources.go   workers, copies and missing records
//	positions.go queues, by consumer offsets
//	clock.go     a clock that is set back
//	snapshot.go  what a page shows, in one value
//	doubts.go    what is approximate of it
//	reader.go    Kafka to Feed
//	site.go      HTTP: pages, snapshots, look-ups
package dashboard

import (
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

const (
	// maxFailures is how many of the last failures are kept.
	maxFailures = 1000
	// maxGaps is how many of the last gaps are kept.
	maxGaps = 50
	// maxRates is of how many names the last change of the rate is kept.
	maxRates = 200
	// maxName bounds the bytes that are kept of a name that producers or providers write.
	maxName = 128
	// maxCount is the greatest count that is taken for one: no worker has a trillion in a
	// second, and sums of less do not overflow.
	maxCount = 1 << 40
	// other stands for names beyond a bound, as in push.events.
	other = "other"
)

// Feed keeps what a dashboard shows. It is bounded whatever it is told: about 100 MB
// at the most, and some 5 MB for a fleet of three lanes. It has no clock: callers say
// when they heard what they tell. All methods are safe for concurrent use.
type Feed struct {
	mu        sync.Mutex // guards all below
	now       time.Time  // the latest time of all calls, but for a clock that was set back
	wasAhead  time.Time  // when it was found to be set back; zero = it was not
	history   history
	totals    totals
	tally     events.Tally
	sources   sources
	failures  []events.Failure // the last ones; ring, next is the oldest when it is full
	next      int
	gaps      []toldGap // the last ones, oldest first
	rates     map[string]events.Rate
	buckets   buckets
	limiters  limiters
	fanouts   []job // the last ones by when they were accepted, the newest first
	positions positions
	read      bool // the past has been read
	unread    ring // records that are no events, by minute of a day
}

// toldGap is a gap and who told it.
type toldGap struct {
	source string
	events.Gap
}

// NewFeed returns an empty Feed.
func NewFeed() *Feed {
	return &Feed{history: newHistory(), totals: newTotals(), sources: newSources(), rates: make(map[string]events.Rate), buckets: newBuckets(), limiters: newLimiters(), unread: newRing(minutes)}
}

// Add takes an event that was heard at a time; a copy of one that was added changes
// nothing. For events of the past that is the time of their record, so that a worker
// of then does not count as one of now.
func (f *Feed) Add(e *events.Event, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(at)
	source := cut(e.Source)
	s, isNew := f.sources.hear(source, e.Number, at)
	if !isNew {
		return
	}
	ended := e.At // by the clock of the worker, which may be ahead of ours
	if ended.After(f.now) {
		ended = f.now
	}
	for i := range e.Counts {
		f.count(s, &e.Counts[i], ended)
	}
	dated := *e // what is told once more is taken away where it was counted
	dated.At = ended
	f.tally.Add(&dated, f.total)
	for i := range e.Failures {
		f.fail(&e.Failures[i])
	}
	for _, r := range e.Rates {
		r.Name, r.Cause = cut(r.Name), cut(r.Cause)
		if old, known := f.rates[r.Name]; known && !r.At.Before(old.At) || !known && len(f.rates) < maxRates {
			f.rates[r.Name] = r
		}
	}
	if e.Limits != nil {
		for i := range e.Limits.Senders {
			f.buckets.tell(&e.Limits.Senders[i], ended)
		}
		for i := range e.Limits.Users {
			f.limiters.tell(&e.Limits.Users[i], ended)
		}
	}
	if e.Gap != nil {
		if len(f.gaps) == maxGaps {
			f.gaps = append(f.gaps[:0], f.gaps[1:]...)
		}
		f.gaps = append(f.gaps, toldGap{source, *e.Gap})
		s.told = true
	}
	if e.State != nil {
		f.sources.tell(s, e.State, e.At, at)
	}
}

// advance moves the clock on. The caller holds the lock.
func (f *Feed) advance(at time.Time) {
	if !at.After(f.now) {
		return
	}
	f.now = at
	f.totals.advance(at)
	f.sources.advance(at)
	f.buckets.advance(at)
	f.limiters.advance(at)
}

// count adds one count to what is shown by time: a worker tells it within a second, and
// nobody tells it again if that worker is killed. The caller holds the lock.
func (f *Feed) count(s *source, c *events.Count, ended time.Time) {
	if c.N <= 0 || c.N > maxCount {
		return
	}
	state := cut(c.State)
	f.history.add(strings.TrimSuffix(cut(c.Lane), retrySuffix), state, ended, c.N)
	if state == delivered {
		s.sent.add(ended.Unix(), c.N)
	}
}

// retrySuffix is what the lane of a retry topic is named by in push.events.
const retrySuffix = ".retry"

// fail keeps a failure. The caller holds the lock.
func (f *Feed) fail(e *events.Failure) {
	kept := events.Failure{ID: cut(e.ID), Lane: cut(e.Lane), App: cut(e.App), Type: cut(e.Type), Sender: cut(e.Sender), Device: cut(e.Device),
		Provider: cut(e.Provider), ProviderID: cut(e.ProviderID), State: cut(e.State), Reason: cut(e.Reason), Step: e.Step, At: e.At}
	if len(f.failures) < maxFailures {
		f.failures = append(f.failures, kept)
		return
	}
	f.failures[f.next] = kept
	f.next = (f.next + 1) % maxFailures
}

// PassOver says that a record was no event of this version.
func (f *Feed) PassOver() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread.add(f.now.Unix()/60, 1)
}

// Ready says that the past has been read.
func (f *Feed) Ready() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = true
}

// cut bounds a name. The copy does not keep the record in memory that it was cut from.
func cut(s string) string {
	if len(s) > maxName {
		s = strings.Clone(strings.ToValidUTF8(s[:maxName], ""))
	}
	return s
}
