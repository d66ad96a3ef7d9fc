package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// A user joins, changes and leaves, each also when the first answer was lost: since when he is
// there stays.
func TestSubscribe(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	const user = "a/ü ?"
	set := func(s SubscriptionSettings) func() (*Subscription, error) {
		return func() (*Subscription, error) { return w.client.Subscribe(t.Context(), "offers", user, s) }
	}
	first := twice(w, set(SubscriptionSettings{Mode: ModePull, Priority: "low"}))
	if want := (Subscription{Topic: "offers", UserID: user, Mode: ModePull, Priority: "low", Since: first.Since}); *first != want || first.Since.IsZero() {
		t.Errorf("joined: %+v, want %+v", first, want)
	}
	usual := twice(w, set(SubscriptionSettings{}))
	if want := (Subscription{Topic: "offers", UserID: user, Mode: ModePush, Since: first.Since}); *usual != want {
		t.Errorf("changed: %+v, want %+v", usual, want)
	}
	left := twice(w, func() (*Subscription, error) { return w.client.Leave(t.Context(), "offers", user) })
	if want := (Subscription{Topic: "offers", UserID: user, Mode: ModeLeft, Since: first.Since, LeftAt: left.LeftAt}); *left != want || left.LeftAt.IsZero() {
		t.Errorf("left: %+v, want %+v", left, want)
	}
}

// Of many changes those that were not made for now are made again, and no others; each has a
// result of its own.
func TestSubscribeMany(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	store.joins(t, "offers", "leaves", subscriptions.Push, time.Now().Add(-time.Hour))
	store.set(func() { store.unsaved["late"] = 2 })
	changes := []SubscriptionChange{
		{UserID: "joins", SubscriptionSettings: SubscriptionSettings{Mode: ModePull, Priority: "low"}},
		{UserID: "late"},
		{UserID: "joins"},
		{UserID: "leaves", SubscriptionSettings: SubscriptionSettings{Mode: ModeLeft}},
		{UserID: "wrong", SubscriptionSettings: SubscriptionSettings{Mode: "mail"}},
	}
	results, err := w.client.SubscribeMany(t.Context(), "offers", changes)
	var p *Problem
	if len(results) != 5 || !errors.As(err, &p) || p.Code != "invalid_field" || !strings.Contains(err.Error(), "subscription 2") {
		t.Fatalf("%+v, %v", results, err)
	}
	for i, why := range map[int]string{2: "the user is in an earlier change", 4: "a mode that is none"} {
		if r := results[i]; r.Subscription != nil || !errors.As(r.Err, &p) || p.Code != "invalid_field" {
			t.Errorf("%s: %+v", why, r)
		}
	}
	for i, want := range map[int]Subscription{
		0: {Topic: "offers", UserID: "joins", Mode: ModePull, Priority: "low"}, 1: {Topic: "offers", UserID: "late", Mode: ModePush}, 3: {Topic: "offers", UserID: "leaves", Mode: ModeLeft},
	} {
		r := results[i]
		if r.Err != nil || r.Subscription == nil {
			t.Errorf("change %d: %+v", i, r)
			continue
		}
		if r.Subscription.Since.IsZero() || r.Subscription.LeftAt.IsZero() != (i != 3) {
			t.Errorf("change %d: since %v, left at %v", i, r.Subscription.Since, r.Subscription.LeftAt)
		}
		want.Since, want.LeftAt = r.Subscription.Since, r.Subscription.LeftAt
		if *r.Subscription != want {
			t.Errorf("change %d: %+v, want %+v", i, r.Subscription, want)
		}
	}
	const path = "POST /v1/topics/offers/subscriptions/batch application/x-ndjson "
	late := path + `{"user_id":"late"}` + "\n"
	first := path + `{"user_id":"joins","mode":"pull","priority":"low"}` + "\n" + `{"user_id":"late"}` + "\n" + `{"user_id":"joins"}` + "\n" + `{"user_id":"leaves","mode":"left"}` + "\n" + `{"user_id":"wrong","mode":"mail"}` + "\n"
	if !slices.Equal(w.wire.sent, []string{first, late, late}) || len(w.pauses) != 2 || w.pauses[0] < 2*time.Second {
		t.Errorf("sent %q after pauses of %v", w.wire.sent, w.pauses)
	}

	again := twice(w, func() ([]SubscriptionResult, error) {
		return w.client.SubscribeMany(t.Context(), "offers", changes[:2])
	})
	if len(again) != 2 || again[0].Err != nil || again[0].Subscription.Since != results[0].Subscription.Since {
		t.Errorf("made again: %+v", again)
	}
	w.reads(&struct {
		Accepted, Failed int
		Results          []struct {
			Subscription
			Line int
		}
	}{})
}

// At the end of the context each change that was not made says so; what cannot be sent at all
// has no results.
func TestSubscribeManyGivesUp(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	w.end = context.DeadlineExceeded
	store.set(func() { store.unsaved["late"] = 1 })
	results, err := w.client.SubscribeMany(t.Context(), "offers", []SubscriptionChange{{UserID: "u"}, {UserID: "late"}})
	var g *GivenUpError
	if len(results) != 2 || results[0].Subscription == nil || !errors.As(results[1].Err, &g) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", results, err)
	}
	w.end, w.wire.sent = nil, nil
	for why, changes := range map[string][]SubscriptionChange{"none": nil, "too many": make([]SubscriptionChange, MaxBatch+1), "a user's id that is no text": {{UserID: "a\xff"}}} {
		if results, err := w.client.SubscribeMany(t.Context(), "offers", changes); results != nil || err == nil || len(w.wire.sent) > 0 {
			t.Errorf("%s: %v, %v, sent %q", why, results, err, w.wire.sent)
		}
	}
	w.refuses([]refusal{{"no topic", "no_such_topic", func() error {
		results, err := w.client.SubscribeMany(t.Context(), "none", []SubscriptionChange{{UserID: "u"}})
		if results != nil {
			t.Errorf("no topic: %+v", results)
		}
		return err
	}}})
}

// Lists come page by page, and have who has left if it is asked for.
func TestLists(t *testing.T) {
	w, store := topicWorld(t)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	for i := range 3 {
		store.has(t, fmt.Sprint("topic-", i), "shop", "orders")
		store.joins(t, fmt.Sprint("topic-", i), "a/ü", subscriptions.Push, at)
		store.joins(t, "topic-0", fmt.Sprint("u", i), subscriptions.Pull, at)
	}
	store.joins(t, "topic-0", "u0", subscriptions.Left, at.Add(time.Minute))
	store.joins(t, "topic-1", "a/ü", subscriptions.Left, at.Add(time.Minute))
	var users, topics []string
	pull := Subscription{Topic: "topic-0", UserID: "u1", Mode: ModePull, Since: at}
	for q := (SubscriptionsQuery{Limit: 2}); ; {
		got := twice(w, func() (*Subscriptions, error) { return w.client.Subscribers(t.Context(), "topic-0", q) })
		for _, s := range got.Subscriptions {
			if users = append(users, s.UserID); s.UserID == "u1" && s != pull {
				t.Errorf("%+v, want %+v", s, pull)
			}
		}
		if q.After = got.Next; q.After == "" {
			break
		}
	}
	if slices.Sort(users); !slices.Equal(users, []string{"a/ü", "u1", "u2"}) {
		t.Errorf("subscribers %q", users)
	}
	for q := (SubscriptionsQuery{Limit: 1}); ; {
		got := twice(w, func() (*Subscriptions, error) { return w.client.UserSubscriptions(t.Context(), "a/ü", q) })
		for _, s := range got.Subscriptions {
			topics = append(topics, s.Topic)
		}
		if q.After = got.Next; q.After == "" {
			break
		}
	}
	if !slices.Equal(topics, []string{"topic-0", "topic-2"}) {
		t.Errorf("topics %q", topics)
	}
	for why, list := range map[string]func() (*Subscriptions, error){
		"of a topic": func() (*Subscriptions, error) {
			return w.client.Subscribers(t.Context(), "topic-0", SubscriptionsQuery{Left: true})
		},
		"of a user": func() (*Subscriptions, error) {
			return w.client.UserSubscriptions(t.Context(), "a/ü", SubscriptionsQuery{Left: true})
		},
	} {
		got, err := list()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(got.Subscriptions, func(s Subscription) bool { return s.Mode == ModeLeft })
		if i < 0 || !got.Subscriptions[i].LeftAt.Equal(at.Add(time.Minute)) {
			t.Errorf("%s, with who has left: %+v", why, got)
		}
	}
}

func TestSubscriptionsAreRefused(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	store.has(t, "theirs", "bank", "orders")
	if _, err := w.client.CreateTopic(t.Context(), "over", TopicSettings{App: "shop", ServiceType: "transactional"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CloseTopic(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	w.refuses([]refusal{
		{"a topic that is closed", "topic_closed", func() error { return failed(w.client.Subscribe(t.Context(), "over", "u", SubscriptionSettings{})) }},
		{"a priority above the topic's", "invalid_field", func() error {
			return failed(w.client.Subscribe(t.Context(), "offers", "u", SubscriptionSettings{Priority: "critical"}))
		}},
		{"a mode that the topic lacks", "invalid_field", func() error {
			return failed(w.client.Subscribe(t.Context(), "offers", "u", SubscriptionSettings{Mode: "mail"}))
		}},
		{"a topic of another app", "no_such_topic", func() error { return failed(w.client.Leave(t.Context(), "theirs", "u")) }},
		{"subscribers of none", "no_such_topic", func() error { return failed(w.client.Subscribers(t.Context(), "none", SubscriptionsQuery{})) }},
		{"a page behind no place", "bad_request", func() error {
			return failed(w.client.Subscribers(t.Context(), "offers", SubscriptionsQuery{After: "!"}))
		}},
		{"a page that is too long", "bad_request", func() error {
			return failed(w.client.UserSubscriptions(t.Context(), "u", SubscriptionsQuery{Limit: -1}))
		}},
		{"no user", "not_found", func() error { return failed(w.client.UserSubscriptions(t.Context(), "", SubscriptionsQuery{})) }},
	})
	if left, err := w.client.Leave(t.Context(), "over", "u"); err != nil || left.Mode != ModeLeft || !left.Since.IsZero() {
		t.Errorf("of a closed topic one may leave: %+v, %v", left, err)
	}
}
