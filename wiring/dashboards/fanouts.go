package dashboards

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// fanouts are the fan-outs of the page, in Cassandra's tables, which are opened when somebody
// looks.
type fanouts struct{ servers *reach.Servers }

func (f fanouts) notes(ctx context.Context) (*fanout.TableNotes, error) {
	session, err := f.servers.Tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("fan-outs: %w", err)
	}
	return fanout.NewTableNotes(session), nil
}

// Look implements dashboard.Fanouts.
func (f fanouts) Look(ctx context.Context, message uuid.UUID) (*fanout.Progress, error) {
	notes, err := f.notes(ctx)
	if err != nil {
		return nil, err
	}
	return notes.Look(ctx, message)
}

// Order implements dashboard.Fanouts.
func (f fanouts) Order(ctx context.Context, message uuid.UUID, s fanout.State, at time.Time) error {
	notes, err := f.notes(ctx)
	if err != nil {
		return err
	}
	return notes.Order(ctx, message, s, at)
}
