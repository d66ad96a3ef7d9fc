package stages

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Journals keep which notifications users were meant to get. Writing an entry again changes
// nothing.
type Journals interface {
	// Put returns nil when all are durable. It keeps nothing after the call.
	Put(ctx context.Context, entries []journal.Entry) error
}

// Journal notes notifications in the journals of their users. It comes right behind Dedupe: of
// a copy nothing is noted, and of all others before anything decides that they are not sent, as
// these are asked for most. A store that is away makes the batch wait, so what was sent can be
// found.
type Journal struct {
	Journals Journals
	Lane     string
	Kept     time.Duration // for how long from when a notification was first seen
}

// Name implements pipeline.Stage.
func (*Journal) Name() pipeline.Step { return StepJournal }

// Apply notes the notifications of a batch, side by side.
func (s *Journal) Apply(ctx context.Context, b *pipeline.Batch) error {
	var entries []journal.Entry
	for i := range b.Items {
		it := &b.Items[i]
		if it.UserID == "" || it.Verdict != push.Undecided {
			continue
		}
		entries = append(entries, journal.Entry{
			Position: journal.Position(inbox.PositionOf(it.ID, it.FirstSeen.Time())),
			User:     it.UserID, App: it.App, Sender: it.SenderID, Type: it.Type, Lane: s.Lane, Kept: s.Kept,
		})
	}
	if len(entries) == 0 {
		return nil
	}
	if err := s.Journals.Put(ctx, entries); err != nil {
		return fmt.Errorf("writing journals of users: %w", err)
	}
	return nil
}
