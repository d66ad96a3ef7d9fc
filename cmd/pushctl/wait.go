package main

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// The pauses between two looks into the status store, and how many
// notifications one look asks for.
const (
	firstLook = 50 * time.Millisecond
	longLook  = time.Second
	lookIDs   = 1000
)

// await looks into the status store until every notification has its final
// outcome, or the time is over: then the rest is OPEN, or NONE where no worker
// has written anything yet. It reports whether all are DELIVERED. When ctx
// ends it returns ctx's error, and what is known so far is in the answer.
func (s *sending) await(ctx context.Context) (delivered bool, err error) {
	deadline := time.Now().Add(s.flags.wait)
	looking, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	open := make([]*sentRow, len(s.answer.Notifications))
	for i := range open {
		open[i] = &s.answer.Notifications[i]
		open[i].Outcome = push.NoRows.String()
	}
	delivered = true
	for pause := firstLook; len(open) > 0; pause = min(2*pause, longLook) {
		open, err = s.look(looking, open, &delivered)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case looking.Err() != nil:
			return false, nil
		case err != nil:
			return false, err
		}
		s.show.line("%d of %d notifications have their outcome", len(s.answer.Notifications)-len(open), len(s.answer.Notifications))
		if len(open) == 0 {
			break
		}
		select {
		case <-time.After(pause):
		case <-looking.Done():
		}
	}
	s.show.end()
	return delivered, nil
}

// look asks for the outcomes of rows and returns those that are not final.
func (s *sending) look(ctx context.Context, rows []*sentRow, delivered *bool) (open []*sentRow, err error) {
	ids := make([]string, 0, lookIDs)
	for len(rows) > 0 {
		group := rows[:min(lookIDs, len(rows))]
		rows = rows[len(group):]
		ids = ids[:0]
		for _, r := range group {
			ids = append(ids, r.ID)
		}
		found, err := s.store.Read(ctx, ids)
		if err != nil {
			return nil, err
		}
		for i, r := range group {
			outcome := (&push.History{Rows: found[i]}).Outcome()
			r.Outcome = outcome.String()
			switch outcome {
			case push.NoRows, push.OutcomeOpen:
				open = append(open, r)
			case push.OutcomeDelivered:
			default:
				*delivered = false
			}
		}
	}
	return open, nil
}
