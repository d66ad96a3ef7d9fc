package client

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

var errAway = errors.New("away")

// board is a store of topics in memory that can be away.
type board struct {
	*subscriptions.Memory

	mu      sync.Mutex
	unread  int            // guarded by mu; so many topics are not read
	unsaved map[string]int // guarded by mu; of a user so many changes are not made
}

func newBoard() *board {
	return &board{Memory: subscriptions.NewMemory(nil), unsaved: map[string]int{}}
}

// set changes it.
func (b *board) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// Topic implements gateway.Topics.
func (b *board) Topic(ctx context.Context, name string) (subscriptions.Topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unread > 0 {
		b.unread--
		return subscriptions.Topic{}, errAway
	}
	return b.Memory.Topic(ctx, name)
}

// Apply implements gateway.Topics.
func (b *board) Apply(ctx context.Context, t *subscriptions.Topic, changes []subscriptions.Change) []subscriptions.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	results := make([]subscriptions.Result, len(changes))
	for i, c := range changes {
		if b.unsaved[c.User] > 0 {
			b.unsaved[c.User]--
			results[i].Err = errAway
			continue
		}
		results[i] = b.Memory.Apply(ctx, t, changes[i:i+1])[0]
	}
	return results
}

// topicWorld has a store of topics. The key has all rights about them but admin.
func topicWorld(t *testing.T, change ...func(*gateway.Options)) (*world, *board) {
	t.Helper()
	store := newBoard()
	withTopics := func(o *gateway.Options) {
		o.Topics, o.Callers, o.Times.Confirm = store, callersWith(t, gateway.Send, gateway.Read, gateway.Manage), 5*time.Second
	}
	return newWorld(t, append([]func(*gateway.Options){withTopics}, change...)...), store
}

// has makes a topic in the store.
func (b *board) has(t *testing.T, name, app, sender string) {
	t.Helper()
	made := subscriptions.Topic{Name: name, App: app, Service: "transactional", Priority: push.Medium, Security: subscriptions.Open,
		Modes: subscriptions.ModesOf(subscriptions.Push, subscriptions.Pull), Size: subscriptions.Small, CreatedBy: sender}
	if _, _, err := b.Create(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
}

// joins subscribes a user to a topic at a time.
func (b *board) joins(t *testing.T, topic, user string, mode subscriptions.Mode, at time.Time) {
	t.Helper()
	of, err := b.Memory.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if r := b.Memory.Apply(t.Context(), &of, []subscriptions.Change{{User: user, Mode: mode, At: at}}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
}

// A topic is made, read and closed, each also when the first answer was lost.
func TestTopic(t *testing.T) {
	w, _ := topicWorld(t)
	s := TopicSettings{App: "shop", ServiceType: "transactional", Metadata: TopicMetadata{Priority: "high", Security: "restricted", Publishers: []string{"orders"}}, Modes: []string{ModePush, ModePull}, Size: "large"}
	made := twice(w, func() (*Topic, error) { return w.client.CreateTopic(t.Context(), "offers.2026", s) })
	want := &Topic{Name: "offers.2026", TopicSettings: s, State: "open", CreatedBy: "orders", CreatedAt: made.CreatedAt, Version: 1}
	if !reflect.DeepEqual(made, want) || made.CreatedAt.IsZero() {
		t.Errorf("made %+v, want %+v", made, want)
	}
	if read := twice(w, func() (*Topic, error) { return w.client.Topic(t.Context(), "offers.2026") }); !reflect.DeepEqual(read, want) {
		t.Errorf("read %+v, want %+v", read, want)
	}
	least, err := w.client.CreateTopic(t.Context(), "least", TopicSettings{App: "shop", ServiceType: "transactional"})
	if err != nil || !reflect.DeepEqual(least.Metadata, TopicMetadata{Priority: "medium", Security: "open"}) || !slices.Equal(least.Modes, []string{"push"}) || least.Size != "medium" {
		t.Errorf("%+v, %v", least, err)
	}
	closed := twice(w, func() (*Topic, error) { return w.client.CloseTopic(t.Context(), "offers.2026") })
	want.State, want.ClosedAt, want.Version = "closed", closed.ClosedAt, 2
	if !reflect.DeepEqual(closed, want) || closed.ClosedAt.IsZero() {
		t.Errorf("closed %+v, want %+v", closed, want)
	}
}

// A store that is away is waited for, as long as the gateway says.
func TestTopicsAway(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	store.set(func() { store.unread = 2 })
	if got, err := w.client.Topic(t.Context(), "offers"); err != nil || got.Name != "offers" || len(w.pauses) != 2 || min(w.pauses[0], w.pauses[1]) < 2*time.Second {
		t.Errorf("%+v, %v after pauses of %v, want two of 2 s and more", got, err, w.pauses)
	}
	w.end = context.DeadlineExceeded
	store.set(func() { store.unread = 1 })
	var g *GivenUpError
	var p *Problem
	if _, err := w.client.CloseTopic(t.Context(), "offers"); !errors.As(err, &g) || g.Attempts != 1 || !errors.As(err, &p) || p.Code != "topics_away" {
		t.Errorf("at the end of the context: %v", err)
	}
}

// Topics come page by page, those of the key's apps.
func TestTopics(t *testing.T) {
	w, store := topicWorld(t)
	for _, name := range []string{"b", "c", "a"} {
		store.has(t, name, "shop", "orders")
	}
	store.has(t, "theirs", "bank", "orders")
	var names []string
	for page := (Page{Limit: 2}); ; {
		got := twice(w, func() (*Topics, error) { return w.client.Topics(t.Context(), page) })
		if len(got.Topics) > page.Limit {
			t.Errorf("a page of %d", len(got.Topics))
		}
		for _, topic := range got.Topics {
			names = append(names, topic.Name)
		}
		if page.After = got.Next; page.After == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("listed %q", names)
	}
}

func TestSubscriberCounts(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	for user, mode := range map[string]subscriptions.Mode{"u1": subscriptions.Push, "u2": subscriptions.Pull, "u3": subscriptions.Push} {
		store.joins(t, "offers", user, mode, time.Now())
	}
	got := twice(w, func() (*SubscriberCounts, error) { return w.client.SubscriberCounts(t.Context(), "offers") })
	if want := (SubscriberCounts{Topic: "offers", Push: 2, Pull: 1, Whole: true, At: got.At}); *got != want || got.At.IsZero() {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTopicsAreRefused(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "others")
	store.has(t, "theirs", "bank", "orders")
	s := TopicSettings{App: "shop", ServiceType: "transactional"}
	w.refuses([]refusal{
		{"other settings", "topic_taken", func() error { return failed(w.client.CreateTopic(t.Context(), "offers", s)) }},
		{"a name of another app", "topic_taken", func() error { return failed(w.client.CreateTopic(t.Context(), "theirs", s)) }},
		{"a name that cannot be", "invalid_field", func() error { return failed(w.client.CreateTopic(t.Context(), "../users", s)) }},
		{"an app that is not the key's", "foreign_app", func() error {
			return failed(w.client.CreateTopic(t.Context(), "x", TopicSettings{App: "bank", ServiceType: "transactional"}))
		}},
		{"a topic of another app", "no_such_topic", func() error { return failed(w.client.Topic(t.Context(), "theirs")) }},
		{"a topic that somebody else has made", "forbidden", func() error { return failed(w.client.CloseTopic(t.Context(), "offers")) }},
		{"no topic to close", "no_such_topic", func() error { return failed(w.client.CloseTopic(t.Context(), "none")) }},
		{"no topic to count", "no_such_topic", func() error { return failed(w.client.SubscriberCounts(t.Context(), "none")) }},
		{"a page that is too long", "bad_request", func() error { return failed(w.client.Topics(t.Context(), Page{Limit: 1001})) }},
		{"a page behind no name", "bad_request", func() error { return failed(w.client.Topics(t.Context(), Page{After: "/"})) }},
		{"nothing is sent to topics", "not_configured", func() error { return failed(w.client.TopicMessages(t.Context(), "offers", Page{})) }},
	})
}
