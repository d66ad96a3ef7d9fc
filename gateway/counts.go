package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

// What became of a message's receivers is in the rows of their notifications, of which
// there may be millions: so of many a sample is counted, and each count serves all who ask
// for it within some seconds.
const (
	countedMost  = 1000 // receivers whose states are read for one count
	countedPage  = 250  // members of a part of an audience that are read at once
	countedParts = 32   // parts that are read at once, where few are in each
	countedLooks = 10   // times as many members are looked at, of whom some are no receivers
	countedAge   = 5 * time.Second
)

// StateCounts is what became of receivers of a message, by state.
type StateCounts struct {
	ID      string       `json:"id"` // of the message
	Chunks  FanoutChunks `json:"chunks"`
	Emitted int64        `json:"emitted"` // receivers who have a notification in the lane
	// Counted is of how many of them the states were read. Whole says that these are all
	// whom the finished chunks have reached; else it is a sample, drawn by a hash of their ids.
	Counted int64            `json:"counted"`
	Whole   bool             `json:"whole"`
	States  map[string]int64 `json:"states"`
	At      time.Time        `json:"at"` // when they were counted

	looked int // members who were looked at
}

// countStates answers GET /v1/messages/{id}/counts. {id} is as that of an order.
func (g *Gateway) countStates(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	if g.o.Fanouts == nil || g.o.Fanouts.Audience == nil {
		return noFanouts()
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	text := r.PathValue("id")
	id, cl, problem := g.fanoutOf(ctx, c, text)
	switch {
	case problem != nil:
		return problem
	case id == uuid.UUID{}:
		return newProblem(codeNoReceipt, "no such message to many receivers, of this sender and its apps; give its receipt")
	}
	if cl != nil {
		text = cl.id
	}
	a, problem, err := g.counts.of(ctx, id, func() (StateCounts, *Problem) { return g.count(ctx, id, cl, text) })
	switch {
	case err != nil:
		return g.uncounted(err, text)
	case problem != nil:
		return problem
	}
	a.ID = text // each has a name of its own for it
	answer(w, http.StatusOK, "application/json", &a)
	return nil
}

func (g *Gateway) uncounted(err error, id string) *Problem {
	if errors.Is(err, fanout.ErrNoAudience) {
		return noAudiences().of(id)
	}
	g.o.Log.Warn("receivers of a fan-out cannot be counted", "error", err)
	return newProblem(codeStatusAway, "what became of its receivers cannot be read in time; it goes on").of(id).after(2)
}

// count counts what became of the receivers of a message. cl may be nil.
func (g *Gateway) count(ctx context.Context, id uuid.UUID, cl *claim, name string) (StateCounts, *Problem) {
	s := StateCounts{Whole: true, States: map[string]int64{}, At: time.Now()}
	p, err := g.o.Fanouts.Records.Look(ctx, id)
	if err != nil {
		return s, g.fanoutsAway(err, name)
	}
	if _, problem := g.acceptedAt(p, cl, s.At, name); problem != nil || p == nil {
		return s, problem
	}
	s.Chunks, s.Emitted = FanoutChunks{p.Job.To.Parts, len(p.Ended)}, p.Emitted
	if err := g.countParts(ctx, p, drawn(id, p.Ended), &s); err != nil {
		return s, g.uncounted(err, name)
	}
	return s, nil
}

// drawn are parts of an audience in an order that begins elsewhere for each message, so
// that samples are not of the same users each time.
func drawn(message uuid.UUID, parts []int) []int {
	if len(parts) == 0 {
		return nil
	}
	first := int(binary.BigEndian.Uint64(message[8:]) % uint64(len(parts)))
	return slices.Concat(parts[first:], parts[:first])
}

// place is how far the members of a part have been read.
type place struct {
	part  int
	after string // the last one; "" = none was read
}

// countParts adds the receivers of parts that have ended, until they are enough. There may
// be a thousand parts with a few members each: so more are read at once, as many as are
// likely to fill a page together.
func (g *Gateway) countParts(ctx context.Context, p *fanout.Progress, parts []int, s *StateCounts) error {
	var places []place
	for _, part := range parts {
		places = append(places, place{part: part})
	}
	most := 1 // members of a part that were read at once
	for n := 1; len(places) > 0; n = min(2*n, countedParts, max(countedPage/most, 1)) {
		at, rest := places[:min(n, len(places))], places[min(n, len(places)):]
		pages, err := g.countedPages(ctx, p.Job, at)
		if err != nil {
			return err
		}
		var members []fanout.Member
		var begun []place
		for i, page := range pages {
			if len(page) > 0 { // behind a short page there may be more
				members, begun = append(members, page...), append(begun, place{at[i].part, page[len(page)-1].User})
				most = max(most, len(page))
			}
		}
		places = append(begun, rest...)
		if len(members) == 0 {
			continue
		}
		if s.Counted >= countedMost || s.looked >= countedLooks*countedMost {
			s.Whole = false
			return nil
		}
		s.looked += len(members)
		if err := g.countMembers(ctx, p, members, s); err != nil {
			return err
		}
	}
	return nil
}

// countedPages are the next members of parts.
func (g *Gateway) countedPages(ctx context.Context, j *fanout.Job, places []place) ([][]fanout.Member, error) {
	pages := make([][]fanout.Member, len(places))
	of, ctx := errgroup.WithContext(ctx)
	for i, at := range places {
		of.Go(func() (err error) {
			pages[i], err = g.o.Fanouts.Audience.Page(ctx, j, at.part, at.after, countedPage)
			return err
		})
	}
	return pages, of.Wait()
}

// countMembers adds those of some members who are receivers. Who has left since may have
// got it before: the rows say so.
func (g *Gateway) countMembers(ctx context.Context, p *fanout.Progress, members []fanout.Member, s *StateCounts) error {
	var of []fanout.Member
	var ids []string
	for _, m := range members {
		if !m.Pull && !m.Since.After(p.Job.Accepted) {
			of, ids = append(of, m), append(ids, fanout.ID(p.Job.Message, m.User))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := g.o.Rows.Read(ctx, ids)
	if err != nil {
		return err
	}
	for i, m := range of {
		own, _ := push.OwnRows(rows[i], push.UserHash(m.User))
		if state := stateOf(p, own, s.At); len(own) > 0 || !m.Left {
			s.Counted++
			s.States[state]++
		}
	}
	return nil
}

// stateOf is the state of a receiver by the rows of the notification. Without any the
// notification waits in the lane; or there is none, where some could not get one.
func stateOf(p *fanout.Progress, rows []push.Row, now time.Time) string {
	switch outcome := (&push.History{Rows: rows}).Outcome(); {
	case len(rows) > 0 && outcome == push.OutcomeOpen:
		return statusSending
	case len(rows) > 0:
		return outcome.String()
	case p.State == fanout.Cancelled, p.Skipped[fanout.SkipExpired] > 0, !now.Before(p.Job.Expires):
		return statusUnknown
	}
	return statusPending
}
