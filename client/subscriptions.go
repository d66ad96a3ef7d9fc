package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// How a subscriber hears of messages to a topic.
const (
	ModePush = "push" // on his devices
	ModePull = "pull" // in his inbox
	ModeLeft = "left" // not any more
)

// Subscription is that of a user to a topic.
type Subscription struct {
	Topic    string    `json:"topic"`
	UserID   string    `json:"user_id"`
	Mode     string    `json:"mode"`     // ModePush, ModePull or ModeLeft
	Priority string    `json:"priority"` // the highest of what the user gets; "" = the topic's
	Since    time.Time `json:"since"`    // when the user joined; zero = never, and has only left
	LeftAt   time.Time `json:"left_at"`  // zero = the user is there
}

// SubscriptionSettings are how a user hears of a topic. The zero ones are as the topic has them.
type SubscriptionSettings struct {
	Mode     string `json:"mode,omitempty"`     // ModePush or ModePull, one of the topic's; "" = push, or pull if the topic has that alone
	Priority string `json:"priority,omitempty"` // the highest of what the user gets, at most the topic's; "" = the topic's
}

// Subscribe lets a user join a topic, or changes how the user hears of it. Since when the user
// is there stays as it is. The key needs the right users for the topic's app; or it is a token
// of the user, for an open topic.
//
// Of two changes of a subscription the one stands that came to a gateway later, and what
// fails for now is sent again: so a repeat may undo what somebody else has changed since the
// first attempt. Otherwise it does no harm. Problems are no_such_topic, topic_closed and
// too_many_topics (2,000 of a user), beside those of the input.
func (c *Client) Subscribe(ctx context.Context, topic, user string, s SubscriptionSettings) (*Subscription, error) {
	a := &asking{method: http.MethodPut, path: at("/v1/topics/{}/subscriptions/{}", topic, user), said: s}
	return ask[Subscription](ctx, c, "subscribing a user", a, http.StatusOK)
}

// Leave lets a user leave a topic, also one that is closed. It is no error if the user is not
// there. Keys and repeats are as of Subscribe.
func (c *Client) Leave(ctx context.Context, topic, user string) (*Subscription, error) {
	a := &asking{method: http.MethodDelete, path: at("/v1/topics/{}/subscriptions/{}", topic, user)}
	return ask[Subscription](ctx, c, "leaving a topic", a, http.StatusOK)
}

// SubscriptionChange is what the subscription of a user is to become.
type SubscriptionChange struct {
	UserID string `json:"user_id"`
	SubscriptionSettings
}

// SubscriptionResult is what became of one change: one of the two.
type SubscriptionResult struct {
	Subscription *Subscription // it is durable
	Err          error         // a *Problem, or a *GivenUpError: then the change may have been made
}

// SubscribeMany is Subscribe for up to MaxBatch users in one request; with ModeLeft, and then
// without a priority, a user leaves. Each user may be in one change only: later ones are
// refused. Those that were not made for now are sent again, until each is made or refused or
// ctx ends. Results are in the order of the changes. The error is nil if all were made, or
// else the first of theirs; changes that cannot be sent at all have no results. A token of a
// user will not do.
func (c *Client) SubscribeMany(ctx context.Context, topic string, changes []SubscriptionChange) ([]SubscriptionResult, error) {
	for i := range changes {
		if !utf8.ValidString(changes[i].UserID) { // in JSON it would become another user
			return nil, fmt.Errorf("number %d of %d subscriptions: the user's id is not UTF-8", i, len(changes))
		}
	}
	lines, err := linesOf(changes, "subscriptions")
	if err != nil {
		return nil, err
	}
	a := asking{method: http.MethodPost, path: at("/v1/topics/{}/subscriptions/batch", topic)}
	outcomes, err := sendBatch[Subscription](ctx, c, a, lines, func([]int) []string { return nil }, http.StatusOK, http.StatusMultiStatus)
	if err != nil {
		return nil, fmt.Errorf("changing %d subscriptions: %w", len(changes), err)
	}
	results := make([]SubscriptionResult, len(changes))
	for i, o := range outcomes {
		if results[i] = (SubscriptionResult{o.done, o.err}); o.err != nil && err == nil {
			err = fmt.Errorf("changing subscription %d: %w", i, o.err)
		}
	}
	return results, err
}

// Subscriptions are a page of them. It may be short, or empty, and not the last.
type Subscriptions struct {
	Subscriptions []Subscription `json:"subscriptions"`
	Next          string         `json:"next"` // for SubscriptionsQuery.After; "" = there are no more
}

// SubscriptionsQuery says which are wanted. The zero query is for the first 100 of those who
// are there.
type SubscriptionsQuery struct {
	After string // the Next of the page before; "" = from the beginning
	Limit int    // how many at most, 1 to 1000; 0 = 100
	Left  bool   // also those that have ended, with ModeLeft
}

func (q SubscriptionsQuery) query() string {
	texts := map[string]string{"after": q.After}
	if q.Left {
		texts["left"] = "true"
	}
	return query(texts, map[string]int{"limit": q.Limit})
}

// Subscribers lists who has subscribed to a topic, in an order of the gateway's own that stays
// the same. The key needs the right users for the topic's app.
func (c *Client) Subscribers(ctx context.Context, topic string, q SubscriptionsQuery) (*Subscriptions, error) {
	a := &asking{method: http.MethodGet, path: at("/v1/topics/{}/subscriptions", topic) + q.query()}
	return ask[Subscriptions](ctx, c, "listing subscribers", a, http.StatusOK)
}

// UserSubscriptions lists what a user has subscribed to, in the order of topics. The key needs
// the right users, and sees topics of its apps; or it is a token of the user, and sees the open
// ones of its app.
func (c *Client) UserSubscriptions(ctx context.Context, user string, q SubscriptionsQuery) (*Subscriptions, error) {
	a := &asking{method: http.MethodGet, path: at("/v1/users/{}/subscriptions", user) + q.query()}
	return ask[Subscriptions](ctx, c, "listing subscriptions of a user", a, http.StatusOK)
}
