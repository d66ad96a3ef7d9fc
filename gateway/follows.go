package gateway

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// follows are the topics whose messages a user reads, as far as they are shown in the inbox.
type follows struct {
	list     []inbox.Follow
	highest  map[string]push.Priority // that the messages of a topic have for this user; 0 = their own
	leftOver int                      // topics beyond inbox.MaxFollows
}

// follow finds the topics of an inbox: those whose messages the user of the app reads now, and
// of more than a page is made of, those joined last. Who has left reads none of it.
func (g *Gateway) follow(ctx context.Context, k inbox.Key) (*follows, *Problem) {
	f := &follows{highest: make(map[string]push.Priority)}
	if g.o.Topics == nil {
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status)
	defer cancel()
	for after := ""; ; {
		page, err := g.o.Topics.OfUser(ctx, k.User, after, subscriptions.MaxPage)
		if err != nil {
			return nil, g.topicsProblem(err)
		}
		for i := range page {
			if m := &page[i]; m.App == k.App && reads(m) {
				f.list = append(f.list, inbox.Follow{Topic: m.Topic, Since: m.Since})
				f.highest[m.Topic] = m.Priority
			}
		}
		if len(page) < subscriptions.MaxPage {
			break
		}
		after = page[len(page)-1].Topic
	}
	if len(f.list) > inbox.MaxFollows {
		slices.SortStableFunc(f.list, func(a, b inbox.Follow) int { return b.Since.Compare(a.Since) })
		f.leftOver = len(f.list) - inbox.MaxFollows
		f.list = f.list[:inbox.MaxFollows]
	}
	return f, nil
}

// reads reports whether a user finds the messages of a topic in his inbox: who pulls, and of
// a confidential topic those who are pushed, too.
func reads(m *subscriptions.Membership) bool {
	return m.Mode == subscriptions.Pull || m.Mode == subscriptions.Push && m.Security == subscriptions.Confidential
}

// hashes are what news name the topics by.
func (f *follows) hashes(app string) (keys []uint64) {
	for _, one := range f.list {
		keys = append(keys, inbox.Topic{Name: one.Topic, App: app}.Hash())
	}
	return keys
}

// notification is an entry as limits and callers know it: of a topic's message, the
// notification that the user would have been pushed, with its id and its priority.
func (f *follows) notification(user string, e inbox.Entry) inbox.Entry {
	if e.Topic == "" {
		return e
	}
	if message, err := uuid.Parse(e.ID); err == nil {
		e.ID = fanout.ID(message, user)
	}
	if p := f.highest[e.Topic]; p != 0 && p < e.Priority {
		e.Priority = p
	}
	return e
}
