package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// failingTopics fail to read topics.
type failingTopics struct{ err error }

func (f failingTopics) Topic(context.Context, string) (subscriptions.Topic, error) {
	return subscriptions.Topic{}, f.err
}

// What may be read by somebody is kept as it is shown, once, until its sender says; what
// nobody pulls or can read is not, and what cannot be told, or kept, is an error.
func TestTopicInboxes(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	topics, _ := subscribers(t, subscriptions.Small, 3, now)
	if _, _, err := topics.Create(t.Context(), &subscriptions.Topic{Name: "alarms", App: "shop", Service: "promotional", Priority: push.High, Security: subscriptions.Open,
		Modes: subscriptions.ModesOf(subscriptions.Push), Size: subscriptions.Small}); err != nil {
		t.Fatal(err)
	}
	store := inbox.NewMemory(nil)
	message := uuid.Must(uuid.NewV7())
	m := &push.Message{Type: "snow", Title: "Snow", Sound: "bell"}
	keep := func(kind, topic string, m *push.Message) error {
		return TopicInboxes(topics, store).Keep(t.Context(), &fanout.Job{Message: message, App: "shop", Sender: "orders", Lane: "promotional", Accepted: now, Expires: now.Add(time.Hour),
			Until: now.Add(72 * time.Hour), Priority: push.High, To: fanout.To{Kind: kind, Name: topic}}, m)
	}
	for _, to := range []struct{ kind, topic string }{{fanout.OfTopic, "news"}, {fanout.OfTopic, "news"}, {fanout.OfTopic, "alarms"}, {fanout.OfTopic, "none"}, {"segment", "news"}} {
		if err := keep(to.kind, to.topic, m); err != nil {
			t.Errorf("%v: %v", to, err)
		}
	}
	list := store.OfTopic(inbox.Topic{Name: "news", App: "shop"})
	if len(list) != 1 || list[0].ID != message.String() || !list[0].At.Equal(now) || list[0].Type != "snow" || list[0].Lane != "promotional" || list[0].Sender != "orders" ||
		list[0].Priority != push.High || string(list[0].Content) != `{"title":"Snow"}` || !list[0].Expires.Equal(now.Add(72*time.Hour)) {
		t.Errorf("%+v", list)
	}
	if n := len(store.OfTopic(inbox.Topic{Name: "alarms", App: "shop"})); n != 0 {
		t.Errorf("%d are kept that nobody pulls", n)
	}
	message = uuid.Must(uuid.NewV7())
	if err := keep(fanout.OfTopic, "news", &push.Message{Type: "sync"}); err != nil || len(store.OfTopic(inbox.Topic{Name: "news", App: "shop"})) != 1 {
		t.Errorf("what nobody can read: %v", err)
	}
	away := errors.New("away")
	if err := TopicInboxes(failingTopics{away}, store).Keep(t.Context(), &fanout.Job{To: fanout.To{Kind: fanout.OfTopic, Name: "news"}}, m); !errors.Is(err, away) {
		t.Errorf("topics are away: %v", err)
	}
	store.Fail(away)
	if err := keep(fanout.OfTopic, "news", m); !errors.Is(err, away) {
		t.Errorf("it cannot be kept: %v", err)
	}
}

// A sealed text is kept as it is, whether anybody pulls or not.
func TestSealedTextsAreKept(t *testing.T) {
	topics, store := subscriptions.NewMemory(nil), inbox.NewMemory(nil)
	if _, _, err := topics.Create(t.Context(), &subscriptions.Topic{Name: "results", App: "clinic", Service: "promotional", Priority: push.High, Security: subscriptions.Confidential,
		Modes: subscriptions.ModesOf(subscriptions.Push), Size: subscriptions.Small}); err != nil {
		t.Fatal(err)
	}
	j := &fanout.Job{Message: uuid.Must(uuid.NewV7()), App: "clinic", Lane: "promotional", Accepted: time.Now().UTC().Truncate(time.Millisecond), Priority: push.High,
		To: fanout.To{Kind: fanout.OfTopic, Name: "results"}, Sealed: []byte(`{"sealed":"AQID"}`)}
	if err := TopicInboxes(topics, store).Keep(t.Context(), j, &push.Message{Title: "New message"}); err != nil {
		t.Fatal(err)
	}
	gone := *j
	gone.To.Name = "not-seen-yet" // without the text nobody may be pushed
	if err := TopicInboxes(topics, store).Keep(t.Context(), &gone, &push.Message{Title: "New message"}); !errors.Is(err, subscriptions.ErrNoTopic) {
		t.Errorf("a topic that is not there: %v", err)
	}
	list := store.OfTopic(inbox.Topic{Name: "results", App: "clinic"})
	if len(list) != 1 || string(list[0].Content) != string(j.Sealed) || list[0].ID != j.Message.String() {
		t.Errorf("%+v", list)
	}
}
