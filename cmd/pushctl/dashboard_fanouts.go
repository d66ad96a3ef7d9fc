package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
)

// dashboardFanouts are the fan-outs of the page. Called by one goroutine at a time, as app
// demands.
type dashboardFanouts struct {
	a     *app
	notes *fanout.TableNotes // nil = Cassandra was not needed yet
}

// open opens the tables, once.
func (f *dashboardFanouts) open(ctx context.Context) (*fanout.TableNotes, error) {
	if f.notes != nil {
		return f.notes, nil
	}
	session, err := f.a.cassandraTables(ctx)
	if err != nil {
		return nil, fmt.Errorf("fan-outs: %w", err)
	}
	f.notes = fanout.NewTableNotes(session)
	return f.notes, nil
}

// Look implements dashboard.Fanouts.
func (f *dashboardFanouts) Look(ctx context.Context, message uuid.UUID) (*fanout.Progress, error) {
	notes, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	return notes.Look(ctx, message)
}

// Order implements dashboard.Fanouts.
func (f *dashboardFanouts) Order(ctx context.Context, message uuid.UUID, s fanout.State, at time.Time) error {
	notes, err := f.open(ctx)
	if err != nil {
		return err
	}
	return notes.Order(ctx, message, s, at)
}
