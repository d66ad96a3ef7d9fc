package client

import (
	"context"
	"net/http"
	"time"
)

// Page says which part of a list is wanted. The zero Page is the first one, of up to 100.
type Page struct {
	After string // the Next of the page before; "" = from the beginning
	Limit int    // how many at most, 1 to 1000; 0 = 100
}

func (p Page) query() string {
	return query(map[string]string{"after": p.After}, map[string]int{"limit": p.Limit})
}

// TopicSettings are what a topic is made with. They do not change later.
type TopicSettings struct {
	App         string        `json:"app"`          // whose users may subscribe; required
	ServiceType string        `json:"service_type"` // of its messages, one that the gateway is configured for; required
	Metadata    TopicMetadata `json:"metadata,omitzero"`
	Modes       []string      `json:"modes,omitempty"` // by which one may subscribe: push, pull or both; none = push
	// Size is about how many subscribers there will be: small to 100,000, medium to 6 million,
	// large to 100 million; "" = medium. A wrong guess costs time, and nothing is lost.
	Size string `json:"size,omitempty"`
}

// TopicMetadata says how a topic's messages are handled.
type TopicMetadata struct {
	Priority string `json:"priority,omitempty"` // of its messages, and the highest they may have: critical, high, medium, low or bulk; "" = medium
	Security string `json:"security,omitempty"` // open, restricted or confidential (docs/gateway.md); "" = open
	// Publishers are the senders who may send to a topic that is not open, up to 100; none =
	// each whose keys are for its app.
	Publishers []string `json:"publishers,omitempty"`
}

// Topic is a subject that users subscribe to.
type Topic struct {
	Name string `json:"name"`
	TopicSettings
	State     string    `json:"state"`      // open or closed
	CreatedBy string    `json:"created_by"` // the sender
	CreatedAt time.Time `json:"created_at"`
	ClosedAt  time.Time `json:"closed_at"` // zero = it is open
	Version   int       `json:"version"`   // counts its changes, from 1

	// Of TopicWithHistory; nil of all others.
	Counts   *SubscriberCounts `json:"counts"`
	Messages *TopicMessages    `json:"messages"`
}

// CreateTopic makes a topic, by a key with the right send for its app. The name is 1 to 128 of
// a to z, digits, dots, underscores and hyphens, a letter or a digit first, and is taken for
// ever, among all apps. Made again with the same settings it is the topic that there is, which
// may be closed, so that a repeat does no harm; with others, or of another app, it is a
// *Problem with topic_taken.
func (c *Client) CreateTopic(ctx context.Context, name string, s TopicSettings) (*Topic, error) {
	return ask[Topic](ctx, c, "making a topic", &asking{method: http.MethodPut, path: at("/v1/topics/{}", name), said: s}, http.StatusOK, http.StatusCreated)
}

// Topic reads a topic of one of the key's apps. That it was closed at another gateway may be
// seen 5 s later. A *Problem with no_such_topic says that there is none, or one of other apps.
func (c *Client) Topic(ctx context.Context, name string) (*Topic, error) {
	return ask[Topic](ctx, c, "reading a topic", &asking{method: http.MethodGet, path: at("/v1/topics/{}", name)}, http.StatusOK)
}

// TopicWithHistory is Topic with what SubscriberCounts tells, and the newest 20 of what
// TopicMessages does.
func (c *Client) TopicWithHistory(ctx context.Context, name string) (*Topic, error) {
	return ask[Topic](ctx, c, "reading a topic", &asking{method: http.MethodGet, path: at("/v1/topics/{}", name) + "?with=counts,messages"}, http.StatusOK)
}

// Topics are a page of topics, in the order of their names.
type Topics struct {
	Topics []Topic `json:"topics"`
	Next   string  `json:"next"` // for Page.After; "" = there are no more
}

// Topics lists the topics of the key's apps, closed ones too.
func (c *Client) Topics(ctx context.Context, p Page) (*Topics, error) {
	return ask[Topics](ctx, c, "listing topics", &asking{method: http.MethodGet, path: "/v1/topics" + p.query()}, http.StatusOK)
}

// CloseTopic closes a topic for good: it takes no subscribers and no messages any more, and
// users may still leave it. The key needs the right send and the sender who has made the
// topic, or the right admin. Closed again, it is as it was.
func (c *Client) CloseTopic(ctx context.Context, name string) (*Topic, error) {
	return ask[Topic](ctx, c, "closing a topic", &asking{method: http.MethodDelete, path: at("/v1/topics/{}", name)}, http.StatusOK)
}

// SubscriberCounts are how many have subscribed to a topic.
type SubscriberCounts struct {
	Topic string    `json:"topic"`
	Push  int64     `json:"push"`
	Pull  int64     `json:"pull"`
	Whole bool      `json:"whole"` // all were counted; else these are estimates
	At    time.Time `json:"at"`    // when they were counted
}

// SubscriberCounts counts the subscribers of a topic of one of the key's apps: up to about
// 10,000; of more it is an estimate. A count serves for a minute.
func (c *Client) SubscriberCounts(ctx context.Context, topic string) (*SubscriberCounts, error) {
	return ask[SubscriberCounts](ctx, c, "counting subscribers", &asking{method: http.MethodGet, path: at("/v1/topics/{}/counts", topic)}, http.StatusOK)
}

// TopicMessages are a page of messages to a topic, the newest first. It may be short, or
// empty, and not the last.
type TopicMessages struct {
	Messages []TopicMessage `json:"messages"`
	Next     string         `json:"next"` // for Page.After; "" = there are no more
}

// TopicMessage is a message to all subscribers of a topic. What it says is not told.
type TopicMessage struct {
	ID         string    `json:"id"` // ReceiverCounts, WhyRecipient and orders such as CancelFanout take it
	Sender     string    `json:"sender"`
	AcceptedAt time.Time `json:"accepted_at"`
	ExpiresAt  time.Time `json:"expires_at"` // when its notifications expire
}

// TopicMessages lists the messages that a topic got in the last days, for as long as is kept
// what became of them, 31 days at most, from when their fan-outs have begun. The key needs the
// right read, and sees those of its sender; with the right admin those of all.
func (c *Client) TopicMessages(ctx context.Context, topic string, p Page) (*TopicMessages, error) {
	return ask[TopicMessages](ctx, c, "listing messages of a topic", &asking{method: http.MethodGet, path: at("/v1/topics/{}/messages", topic) + p.query()}, http.StatusOK)
}
