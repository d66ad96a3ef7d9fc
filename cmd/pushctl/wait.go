package main

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

const (
	firstLook = 50 * time.Millisecond // first pause between two reads of the status store
	longLook  = time.Second           // longest pause
	lookIDs   = 1000                  // notifications per read
)

// await reads the status store until every notification has its final outcome
// or the time is over. The rest is then OPEN, or NONE if no worker has written
// a row. It reports whether all are DELIVERED. When ctx ends, it returns ctx's
// error, and the answer has the outcomes known so far.
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

// look reads the outcomes of rows and returns the rows without a final one.
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
