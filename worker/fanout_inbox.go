package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Topics reads topics, as subscriptions.Store does.
type Topics interface {
	Topic(ctx context.Context, name string) (subscriptions.Topic, error)
}

// TopicStore keeps messages to topics, as inbox.Store does.
type TopicStore interface {
	PutTopic(ctx context.Context, t inbox.Topic, e *inbox.Entry) error
}

// TopicInboxes keeps messages to topics for subscribers who pull, where a topic may have
// some, and those to confidential topics for all.
func TopicInboxes(topics Topics, store TopicStore) fanout.Inboxes { return topicInboxes{topics, store} }

type topicInboxes struct {
	topics Topics
	store  TopicStore
}

// Keep implements fanout.Inboxes. What nobody can read is not kept.
func (k topicInboxes) Keep(ctx context.Context, j *fanout.Job, m *push.Message) error {
	if j.To.Kind != fanout.OfTopic {
		return nil
	}
	t, err := k.topics.Topic(ctx, j.To.Name)
	switch {
	case errors.Is(err, subscriptions.ErrNoTopic) && len(j.Sealed) == 0: // then it has no subscribers
		return nil
	case err != nil:
		return err
	}
	content, readable := j.Sealed, true // for all subscribers: a push says only that there is something
	if len(content) == 0 {
		if !t.Modes.Has(subscriptions.Pull) {
			return nil
		}
		content, readable = inbox.ContentOf(m)
	}
	if !readable {
		return nil
	}
	e := inbox.Entry{Position: inbox.Position{At: j.Accepted, ID: j.Message.String()}, Type: m.Type, Lane: j.Lane, Sender: j.Sender, Priority: j.Priority,
		Content: content, Expires: j.Until}
	if err := k.store.PutTopic(ctx, inbox.Topic{Name: j.To.Name, App: j.App}, &e); err != nil {
		return fmt.Errorf("message %s to topic %s: %w", j.Message, j.To.Name, err)
	}
	return nil
}
