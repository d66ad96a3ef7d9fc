package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
)

// Fanouts are messages for many receivers, as package fanout remembers them. Its methods
// are those of *fanout.TableNotes; they are called by one goroutine at a time, and by none
// that Lookups' are.
type Fanouts interface {
	// Look returns how far a message is; nil = it has not begun.
	Look(ctx context.Context, message uuid.UUID) (*fanout.Progress, error)
	// Order sets the state of a message from that moment on.
	Order(ctx context.Context, message uuid.UUID, s fanout.State, at time.Time) error
}

const (
	// maxFanouts is how many are known, and fanoutsShown how many of them are told with
	// their progress.
	maxFanouts   = 200
	fanoutsShown = 20
)

// job is what is kept of a fan-out: nothing of what its message says.
type job struct {
	id                                 uuid.UUID
	sender, app, lane, topic, campaign string
	accepted, expires                  time.Time
	parts                              int
}

func jobOf(j *fanout.Job) job {
	return job{j.Message, cut(j.Sender), cut(j.App), cut(j.Lane), cut(j.To.String()), cut(j.Campaign), stamp(j.Accepted), stamp(j.Expires), j.To.Parts}
}

// AddFanout takes a message for many receivers; a copy of one changes nothing.
func (f *Feed) AddFanout(j *fanout.Job) {
	one := jobOf(j)
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.fanouts, func(known job) bool { return known.id == one.id }) {
		return
	}
	at, _ := slices.BinarySearchFunc(f.fanouts, one.accepted, func(known job, accepted time.Time) int { return accepted.Compare(known.accepted) })
	if at < maxFanouts {
		f.fanouts = slices.Insert(f.fanouts, at, one)
		f.fanouts = f.fanouts[:min(len(f.fanouts), maxFanouts)]
	}
}

// recentFanouts are the newest ones.
func (f *Feed) recentFanouts(n int) []job {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fanouts[:min(len(f.fanouts), n)])
}

// knows reports whether a fan-out is among those that were heard of.
func (f *Feed) knows(id uuid.UUID) bool {
	return slices.ContainsFunc(f.recentFanouts(maxFanouts), func(j job) bool { return j.id == id })
}

// Fanout is how far a message for many receivers is.
type Fanout struct {
	ID       uuid.UUID        `json:"id"`
	Topic    string           `json:"topic"`
	Campaign string           `json:"campaign,omitempty"`
	Sender   string           `json:"sender"`
	App      string           `json:"app"`
	Lane     string           `json:"lane"`
	Accepted time.Time        `json:"accepted"`
	Expires  time.Time        `json:"expires"`
	State    string           `json:"state"` // accepted, running, paused, cancelled, ended
	Parts    int              `json:"parts"`
	Ended    int              `json:"ended"`   // of the parts
	Emitted  int64            `json:"emitted"` // receivers with a notification of their own in the lane
	Skipped  map[string]int64 `json:"skipped"` // by reason
	Orders   []string         `json:"orders"`  // that may be given now
}

// told puts together what is known of a fan-out; p is nil if it has not begun.
func (j job) told(p *fanout.Progress) Fanout {
	t := Fanout{ID: j.id, Topic: j.topic, Sender: j.sender, App: j.app, Lane: j.lane, Accepted: j.accepted, Expires: j.expires,
		State: "accepted", Parts: j.parts, Skipped: map[string]int64{}, Orders: []string{}}
	if j.campaign != j.id.String() { // otherwise it has no name of its own
		t.Campaign = j.campaign
	}
	now := fanout.Running
	if p != nil {
		now, t.State, t.Ended, t.Emitted, t.Skipped = p.State, p.State.String(), len(p.Ended), p.Emitted, p.ByReason()
		if p.Over() {
			t.State = "ended"
		}
	}
	for _, order := range []string{orderPause, orderResume, orderCancel} {
		s, _ := stateAfter(order)
		if (p == nil || p.Takes(s) == nil) && s != now {
			t.Orders = append(t.Orders, order)
		}
	}
	return t
}

// The orders about a fan-out.
const (
	orderPause  = "pause"
	orderResume = "resume"
	orderCancel = "cancel"
)

// stateAfter is the state that a fan-out has after an order; false = there is no such order.
func stateAfter(order string) (s fanout.State, known bool) {
	switch order {
	case orderPause:
		return fanout.Paused, true
	case orderResume:
		return fanout.Running, true
	case orderCancel:
		return fanout.Cancelled, true
	}
	return s, false
}

// listFanouts answers with the newest fan-outs, the newest first, or the one of an id.
func (s *Site) listFanouts(w http.ResponseWriter, r *http.Request) {
	q, ok := wordsOf(w, r)
	if !ok || !s.hasFanouts(w) {
		return
	}
	ctx, leave := s.lookups.enter(w, r, lookupTime)
	if leave == nil {
		return
	}
	defer leave()
	answer := struct {
		Fanouts []Fanout `json:"fanouts"`
		Acts    string   `json:"acts"` // as in dead letters
	}{[]Fanout{}, s.acts(r)}
	if word := q.Get("id"); word != "" {
		id, p, err := s.lookAtFanout(ctx, word)
		switch {
		case err != nil:
			s.refuseFanouts(w, err)
			return
		case p != nil:
			answer.Fanouts = append(answer.Fanouts, jobOf(p.Job).told(p))
		case s.o.Feed.knows(id):
			for _, j := range s.o.Feed.recentFanouts(maxFanouts) {
				if j.id == id {
					answer.Fanouts = append(answer.Fanouts, j.told(nil))
				}
			}
		}
		tell(w, answer)
		return
	}
	for _, j := range s.o.Feed.recentFanouts(fanoutsShown) {
		p, err := s.o.Fanouts.Look(ctx, j.id)
		if err != nil {
			s.refuseFanouts(w, err)
			return
		}
		answer.Fanouts = append(answer.Fanouts, j.told(p))
	}
	tell(w, answer)
}

func (s *Site) hasFanouts(w http.ResponseWriter) bool {
	if s.o.Fanouts == nil {
		refuse(w, http.StatusNotFound, "this fleet has no fan-outs (gateway.fanout)")
		return false
	}
	return true
}

// lookAtFanout looks at the one of an id.
func (s *Site) lookAtFanout(ctx context.Context, word string) (uuid.UUID, *fanout.Progress, error) {
	id, err := fanout.ParseMessageID(word)
	if err != nil {
		return id, nil, &BadQuestion{err}
	}
	p, err := s.o.Fanouts.Look(ctx, id)
	return id, p, err
}

func (s *Site) refuseFanouts(w http.ResponseWriter, err error) {
	if bad, is := errors.AsType[*BadQuestion](err); is {
		refuse(w, http.StatusBadRequest, bad.Error())
		return
	}
	s.log.Warn("the dashboard's fan-outs", "error", err)
	refuse(w, http.StatusServiceUnavailable, "Cassandra does not answer, or a table is missing; the dashboard's log says why. An order may hold: give it again, which does no harm")
}

// fanoutOrder is the body of POST /fanouts.
type fanoutOrder struct {
	ID      string `json:"id"`
	Order   string `json:"order"`
	Confirm string `json:"confirm"` // the order and the end of the id, typed by who gives it
	By      string `json:"by"`
}

// confirmLetters is how much of an id is typed.
const confirmLetters = 6

// orderFanout pauses, resumes or cancels a fan-out, as gateways do for its sender. The log
// says who did it, as the tables have no place for that.
func (s *Site) orderFanout(w http.ResponseWriter, r *http.Request) {
	var o fanoutOrder
	if !s.hasFanouts(w) || !s.read(w, r, &o) {
		return
	}
	state, known := stateAfter(o.Order)
	visitor := s.access.who(r, time.Now())
	switch {
	case visitor.role != admin:
		refuse(w, http.StatusForbidden, "the admin key is needed: log in with it")
		return
	case !known:
		refuse(w, http.StatusBadRequest, "order: want pause, resume or cancel")
		return
	case !isName(o.By):
		refuse(w, http.StatusBadRequest, badName)
		return
	case len(o.ID) < confirmLetters || o.Confirm != o.Order+" "+o.ID[len(o.ID)-confirmLetters:]:
		refuse(w, http.StatusConflict, "nothing was done: confirm by the order and the last 6 letters of the id")
		return
	}
	ctx, leave := s.lookups.enter(w, r, lookupTime)
	if leave == nil {
		return
	}
	defer leave()
	if !s.stillActs(w, r) {
		return
	}
	id, p, err := s.lookAtFanout(ctx, o.ID)
	switch {
	case err != nil:
		s.refuseFanouts(w, err)
		return
	case p == nil && !s.o.Feed.knows(id):
		refuse(w, http.StatusNotFound, "there is no such fan-out")
		return
	case p != nil && p.Takes(state) != nil:
		refuse(w, http.StatusConflict, p.Takes(state).Error())
		return
	}
	if err := s.o.Fanouts.Order(ctx, id, state, time.Now()); err != nil {
		s.refuseFanouts(w, err)
		return
	}
	s.log.Warn("an order about a fan-out", "message", id, "order", o.Order, "by", s.access.signature(o.By, visitor))
	tell(w, map[string]string{"id": id.String(), "order": o.Order})
}
