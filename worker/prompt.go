package worker

import (
	"context"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// prompt is a status store in which rows wait for others, but for those of its callers
// that wait for them.
type prompt interface {
	WritePromptly(ctx context.Context, rows []push.Row) error
}

// promptStatus writes promptly.
type promptStatus struct {
	pipeline.Status
	prompt
}

func (s promptStatus) Write(ctx context.Context, rows []push.Row) error {
	return s.WritePromptly(ctx, rows)
}

// statusOf is the status store of a lane. In one of mode at_most_once pushes wait for their
// intents, and the next batch of a partition for all rows of the one before.
func statusOf(l *configs.Lane, s pipeline.Status) pipeline.Status {
	if p, ok := s.(prompt); ok && l.Once() {
		return promptStatus{s, p}
	}
	return s
}
