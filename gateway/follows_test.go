package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// subject makes a topic of the shop, or of another app.
func (w *world) subject(name string, app ...string) *subscriptions.Topic {
	w.t.Helper()
	made, _, err := w.topics.Create(w.t.Context(), &subscriptions.Topic{Name: name, App: append(app, "shop")[0], Service: "transactional", Priority: push.High,
		Security: subscriptions.Open, Modes: subscriptions.ModesOf(subscriptions.Push, subscriptions.Pull), Size: subscriptions.Small})
	if err != nil {
		w.t.Fatal(err)
	}
	return &made
}

// joins changes who has subscribed, as of so long ago.
func (w *world) joins(topic *subscriptions.Topic, user string, mode subscriptions.Mode, ago time.Duration, highest ...push.Priority) {
	w.t.Helper()
	c := subscriptions.Change{User: user, Mode: mode, At: time.Now().Add(-ago)}
	if len(highest) > 0 {
		c.Priority = highest[0]
	}
	if r := w.topics.Apply(w.t.Context(), topic, []subscriptions.Change{c}); r[0].Err != nil {
		w.t.Fatal(r[0].Err)
	}
}

// says writes a message to a topic, accepted so long ago.
func (w *world) says(topic *subscriptions.Topic, title string, ago time.Duration, change ...func(*inbox.Entry)) uuid.UUID {
	w.t.Helper()
	id := uuid.Must(uuid.NewV7())
	e := inbox.Entry{Position: inbox.Position{At: time.Now().Add(-ago).UTC().Truncate(time.Millisecond), ID: id.String()}, Type: "news", Lane: "transactional",
		Sender: "orders", Priority: push.High, Content: []byte(`{"title":"` + title + `"}`)}
	for _, c := range change {
		c(&e)
	}
	if err := w.inbox.PutTopic(w.t.Context(), inbox.Topic{Name: topic.Name, App: topic.App}, &e); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// titles are those of a page's items.
func (a *reply) titles() (list []string) {
	items, _ := a.json["items"].([]any)
	for _, i := range items {
		list = append(list, fmt.Sprint(i.(map[string]any)["content"].(map[string]any)["title"]))
	}
	return list
}

func (a *reply) shows(t *testing.T, titles ...string) {
	t.Helper()
	if a.status != http.StatusOK || !slices.Equal(a.titles(), titles) {
		t.Errorf("%d %q, want %q: %s", a.status, a.titles(), titles, a.text)
	}
}

// Who pulls reads a message to a topic once, between what is his own, by the id of his own
// notification; who is pushed does not, nor who joined later, has left, or is of another app.
func TestTopicsInAnInbox(t *testing.T) {
	w := newWorld(t)
	news, bank := w.subject("news"), w.subject("of-the-bank", "bank")
	w.joins(news, "u42", subscriptions.Pull, time.Hour)
	w.joins(news, "pushed", subscriptions.Push, time.Hour)
	w.joins(news, "later", subscriptions.Pull, 3*time.Minute)
	w.joins(news, "gone", subscriptions.Pull, time.Hour)
	w.says(news, "before", 2*time.Hour)
	w.keeps(u42, "own-old", 10*time.Minute)
	message := w.says(news, "snow", 5*time.Minute)
	w.keeps(u42, "own-new", time.Minute)
	w.joins(news, "gone", subscriptions.Left, time.Minute)
	w.says(bank, "money", time.Minute)

	a := w.look(keyLogins, "app=shop")
	a.shows(t, "own-new", "snow", "own-old")
	id := fanout.ID(message, "u42")
	if ids, by := a.items("id"), a.items("topic"); ids[1] != id || !slices.Equal(by, []string{"<nil>", "news", "<nil>"}) {
		t.Errorf("%q by %q, want %s", ids, by, id)
	}
	w.look(w.userToken("u42"), "").shows(t, "own-new", "snow", "own-old")
	w.look(keySupport, "app=bank").shows(t)
	for _, user := range []string{"pushed", "later", "gone", "nobody"} {
		w.do(request{method: "GET", path: "/v1/users/" + user + "/inbox?app=shop", key: keyLogins}).shows(t)
	}
	// He joins again: what was said while he was away is not for him.
	w.says(news, "while-away", 50*time.Second)
	w.joins(news, "gone", subscriptions.Pull, 40*time.Second)
	w.says(news, "back", 30*time.Second)
	w.do(request{method: "GET", path: "/v1/users/gone/inbox?app=shop", key: keyLogins}).shows(t, "back")
	// Who changes to pushes reads on only what is his own.
	w.joins(news, "u42", subscriptions.Push, 0)
	w.look(keyLogins, "app=shop").shows(t, "own-new", "own-old")
	w.topics.set(func() { w.topics.err = errAway })
	if a := w.look(keyLogins, "app=shop"); a.code() != "topics_away" {
		t.Errorf("topics are away: %s", a.text)
	}
	w = newWorld(t, func(o *Options) { o.Topics = nil })
	w.keeps(u42, "own", time.Minute)
	w.look(keyLogins, "app=shop").shows(t, "own")
}

// Pages go over both, also where times are the same, and a subscriber's own priority holds.
func TestPagesOverTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where it is always the same time
		w := newWorld(t)
		news, match := w.subject("news"), w.subject("match")
		w.joins(news, "u42", subscriptions.Pull, time.Hour, push.Low)
		w.joins(match, "u42", subscriptions.Pull, time.Hour, push.High) // which raises none
		const same = time.Minute
		var want []inbox.Position
		for i := range 24 {
			title := fmt.Sprint("m", i)
			switch i % 4 {
			case 0:
				w.says(news, title, same)
			case 1:
				w.says(match, title, same, func(e *inbox.Entry) { e.Priority = push.Medium })
			default:
				w.keeps(u42, "n-"+title, same)
			}
		}
		f, problem := w.gateway.follow(t.Context(), u42)
		if problem != nil {
			t.Fatal(problem)
		}
		page, end, err := w.inbox.Page(t.Context(), u42, f.list, inbox.Top(time.Now()), 100)
		if err != nil || !end || len(page) != 24 {
			t.Fatalf("%d, %v", len(page), err)
		}
		for _, e := range page {
			want = append(want, e.Position)
		}
		for _, limit := range []int{1, 5, 24} {
			var got []string
			next := ""
			for {
				q := fmt.Sprintf("app=shop&limit=%d", limit)
				if next != "" {
					q += "&after=" + next
				}
				a := w.look(keyLogins, q)
				got = append(got, a.items("cursor")...)
				if next = a.string("next"); next == "" || len(got) > 30 {
					break
				}
			}
			var cursors []string
			for _, p := range want {
				cursors = append(cursors, w.gateway.o.Signer.signCursor(u42, p))
			}
			if !slices.Equal(got, cursors) {
				t.Errorf("by %d: %d items, or in another order", limit, len(got))
			}
		}
		a := w.look(keyLogins, "app=shop&limit=100")
		for i, topic := range a.items("topic") {
			if want := map[string]string{"news": "low", "match": "medium", "<nil>": "medium"}[topic]; a.items("priority")[i] != want {
				t.Errorf("of %s: %s, want %s", topic, a.items("priority")[i], want)
			}
		}
	})
}

// Limits are asked about the notification that a user would have been pushed, once; what is
// withheld has no row, and comes when there is room. Marks are of one user.
func TestLimitsAndMarksOfTopics(t *testing.T) {
	c := &capped{most: 2, spent: map[string]bool{}}
	w := newWorld(t)
	w.gateway.o.Inbox = w.inboxes(c)
	news := w.subject("news")
	for _, user := range []string{"u42", "u43"} {
		w.joins(news, user, subscriptions.Pull, time.Hour)
	}
	first, second := w.says(news, "first", 3*time.Minute), w.says(news, "second", 2*time.Minute)
	w.keeps(u42, "own", time.Minute)
	for range 3 {
		a := w.look(keyLogins, "app=shop")
		if a.shows(t, "own", "second"); a.json["withheld"] != 1.0 {
			t.Errorf("%s", a.text)
		}
	}
	if id := fanout.ID(second, "u42"); len(c.spent) != 2 || !c.spent[id] || !c.spent["own"] {
		t.Errorf("%v were spent, want %s", c.spent, id)
	}
	for _, id := range []string{fanout.ID(first, "u42"), first.String()} {
		if rows, _ := w.gateway.o.Rows.Read(t.Context(), []string{id}); len(rows[0]) != 0 {
			t.Error("what is withheld has a row")
		}
	}
	// The window is over. What was shown stays, and asks nobody.
	c.spent, c.asked = map[string]bool{}, 0
	a := w.look(keyLogins, "app=shop")
	if a.shows(t, "own", "second", "first"); c.asked != 1 || !c.spent[fanout.ID(first, "u42")] {
		t.Errorf("asked about %d, spent %v", c.asked, c.spent)
	}
	tag, cursors := a.header.Get("ETag"), a.items("cursor")
	if m := w.mark(keyLogins, `{"app":"shop","read":["`+cursors[1]+`"]}`); m.status != http.StatusOK {
		t.Fatal(m.text)
	}
	if a = w.look(keyLogins, "app=shop", "If-None-Match", tag); a.status != http.StatusOK || !slices.Equal(a.items("read"), []string{"false", "true", "false"}) {
		t.Errorf("after a mark: %d %s", a.status, a.text)
	}
	if m := w.mark(keyLogins, `{"app":"shop","unread":["`+cursors[1]+`"],"read_up_to":"`+cursors[2]+`"}`); m.status != http.StatusOK {
		t.Fatal(m.text)
	}
	if a = w.look(keyLogins, "app=shop"); !slices.Equal(a.items("read"), []string{"false", "false", "true"}) {
		t.Errorf("%s", a.text)
	}
	c.most = 10
	other := w.do(request{method: "GET", path: "/v1/users/u43/inbox?app=shop", key: keyLogins})
	if other.shows(t, "second", "first"); !slices.Equal(other.items("read"), []string{"false", "false"}) {
		t.Errorf("another user: %s", other.text)
	}
	if m := w.mark(keyLogins, `{"app":"shop","read":["`+other.items("cursor")[0]+`"]}`); m.status != http.StatusUnprocessableEntity {
		t.Errorf("by another's cursor: %s", m.text)
	}
}

// What is not read is counted over both, by a key and by a token; a query that is none, and
// a store that is away, are told.
func TestUnread(t *testing.T) {
	w := newWorld(t)
	news := w.subject("news")
	w.joins(news, "u42", subscriptions.Pull, time.Hour)
	w.says(news, "snow", 3*time.Minute)
	w.keeps(u42, "own", 2*time.Minute)
	w.keeps(u42, "expired", time.Minute, func(e *inbox.Entry) { e.Expires = time.Now() })
	unread := func(key, query string) *reply {
		t.Helper()
		return w.do(request{method: "GET", path: "/v1/users/u42/inbox/unread" + query, key: key})
	}
	counts := func(a *reply, want float64) {
		t.Helper()
		if a.status != http.StatusOK || a.json["unread"] != want || a.json["more"] != false || a.string("app") != "shop" || a.string("user_id") != "u42" {
			t.Errorf("%d %s, want %v", a.status, a.text, want)
		}
	}
	counts(unread(keyLogins, "?app=shop"), 2)
	cursors := w.look(keyLogins, "app=shop").items("cursor")
	if m := w.mark(keyLogins, `{"app":"shop","read":["`+cursors[1]+`"]}`); m.status != http.StatusOK {
		t.Fatal(m.text)
	}
	counts(unread(w.userToken("u42"), ""), 1)
	for query, code := range map[string]string{"": "invalid_field", "?app=bank": "foreign_app", "?app=shop&app=shop": "bad_request", "?app=shop&x=1": "bad_request", "?limit=1": "bad_request", "?app=%zz": "bad_request"} {
		if a := unread(keyLogins, query); a.code() != code {
			t.Errorf("%q: %s, want %s", query, a.text, code)
		}
	}
	w.topics.set(func() { w.topics.err = errAway })
	if a := unread(keyLogins, "?app=shop"); a.code() != "topics_away" {
		t.Errorf("topics are away: %s", a.text)
	}
	w.topics.set(func() { w.topics.err = nil })
	w.inbox.Fail(errAway)
	if a := unread(keyLogins, "?app=shop"); a.code() != "inbox_away" {
		t.Errorf("it is away: %s", a.text)
	}
}

// Of more topics than a page is made of, those joined last are read, and how many are not is
// told.
func TestMoreTopicsThanAPageHas(t *testing.T) {
	w := newWorld(t)
	for i := range inbox.MaxFollows + 3 {
		topic := w.subject(fmt.Sprintf("t%03d", i))
		w.joins(topic, "u42", subscriptions.Pull, time.Duration(i+1)*time.Hour)
		if i == 0 || i >= inbox.MaxFollows-1 {
			w.says(topic, topic.Name, time.Minute)
		}
	}
	for i := range 5 { // those of another app are no part of this inbox
		w.joins(w.subject(fmt.Sprint("bank-", i), "bank"), "u42", subscriptions.Pull, time.Minute)
	}
	a := w.look(keyLogins, "app=shop")
	got := a.titles()
	slices.Sort(got)
	if !slices.Equal(got, []string{"t000", "t099"}) || a.json["topics_left_out"] != 3.0 {
		t.Errorf("%s", a.text)
	}
}

// Who waits is told of a message to a topic that he pulls, and of no other one; who has left
// meanwhile is told nothing of it.
func TestLongPollsHearOfTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		news, other := w.subject("news"), w.subject("other")
		w.joins(news, "u42", subscriptions.Pull, time.Hour)
		defer w.watching()()
		p, s := w.serve(100)
		defer s.Close(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if status, text, took := poll(t, p, "&wait=30", ""); status != http.StatusOK || !strings.Contains(text, `"snow"`) || took < 9*time.Second || took > 13*time.Second {
				t.Errorf("%d after %v: %s", status, took, text)
			}
		})
		time.Sleep(5 * time.Second)
		w.says(other, "other", 0)
		time.Sleep(5 * time.Second)
		w.says(news, "snow", 0)
		waiting.Wait()
		tag := w.look(keyLogins, "app=shop").header.Get("ETag")
		waiting.Go(func() {
			if status, text, _ := poll(t, p, "&wait=20", tag); status != http.StatusOK || !strings.Contains(text, `"items":[]`) {
				t.Errorf("who has left: %d %s", status, text)
			}
		})
		time.Sleep(time.Second)
		w.joins(news, "u42", subscriptions.Left, 0)
		w.says(news, "more", 0)
		waiting.Wait()
	})
}

// The job of a message says what its sender said of its end, where somebody may fetch it.
func TestWhenAMessageToATopicEnds(t *testing.T) {
	until := time.Now().Add(72 * time.Hour).UTC().Truncate(time.Second)
	send := func(w *world, topic, body string) *fanout.Job {
		t.Helper()
		if a := w.do(request{method: "POST", path: "/v1/topics/" + topic + "/messages", key: keyOrders, body: body}); a.status != http.StatusAccepted {
			t.Fatal(a.text)
		}
		j, err := fanout.DecodeJob(bytes.Clone(w.produced[len(w.produced)-1].Value))
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	ends := `{"title":"x","expires_at":"` + until.Format(time.RFC3339) + `"}`
	w := newWorld(t)
	w.subject("news")
	if j := send(w, "news", ends); !j.Until.Equal(until) || !j.Expires.Equal(j.Accepted.Add(time.Hour)) {
		t.Errorf("%v, %v", j.Until, j.Expires)
	}
	if j := send(w, "news", `{"title":"x"}`); !j.Until.IsZero() {
		t.Errorf("%v", j.Until)
	}
	w = newWorld(t, func(o *Options) { o.Inbox = nil })
	w.subject("news")
	if j := send(w, "news", ends); !j.Until.IsZero() {
		t.Errorf("without inboxes: %v", j.Until)
	}
}
