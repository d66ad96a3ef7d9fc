package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// The examples of docs/gateway.md about inboxes, as they stand there, in a shell with curl.
// Inboxes need no Kafka.
func TestTheExamplesAboutInboxes(t *testing.T) {
	path, _ := files(t, ", inbox: true")
	c, err := configs.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Cassandra.Hosts = []string{"127.0.0.1:1"} // nothing listens there
	store := inbox.NewMemory(nil)
	const id = "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"
	at := inbox.PositionOf(id, time.Date(2025, 10, 17, 20, 0, 34, 0, time.UTC))
	if err := store.Put(t.Context(), []inbox.Addressed{{Key: inbox.Key{User: "u42", App: "shop"}, Entry: inbox.Entry{Position: at, Type: "news", Lane: "promotional",
		Sender: "orders", Priority: push.Medium, Content: []byte(`{"title":"Snow","body":"30 cm"}`)}}}); err[0] != nil {
		t.Fatal(err[0])
	}
	u := gateway.NewUsers(nil, nil) // nothing is changed by it
	t.Cleanup(u.Close)
	examplesIn(t, alone(t, worker.GatewayOptions{Config: c, Users: u, Inboxes: store}), "Inbox", 2, "inbox_away")
}

// What is shown of an inbox is held against the states and rules by which workers push: by
// the notification's id, on a channel of its own. What is withheld, and what is shown
// again, spends nothing; and nothing is booked.
func TestAdmit(t *testing.T) {
	c := fleet(t)
	c.Preferences.OptInTypes = []string{"survey"}
	c.Limits.StateVersion = 2
	c.Limits.Rules = []configs.Rule{
		{Name: "in-app", Per: "user", Max: 3, Window: 24 * time.Hour, Channels: []string{push.ChannelInbox}, Over: "defer"},
		{Name: "pushes", Per: "user", Max: 1, Window: time.Hour, Channels: []string{push.ChannelPush}},
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	o, err := wiring.Redis(c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := shards.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		_ = worker.RunRegistry(ctx, worker.RegistryOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	})
	u, done, err := newUserLimits(c, client, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	// A push of the same id has spent of the other rule, and of none of the inbox's.
	pushed := &limits.Request{Owner: "u42", ID: "n1", Type: "news", App: "shop", Lane: "promotional", Channel: push.ChannelPush, Priority: uint8(push.Medium), At: time.Now()}
	if err := u.limiter.Decide(t.Context(), []*limits.Request{pushed}); err != nil || !pushed.Allowed {
		t.Fatalf("%+v, %v", pushed.Decision, err)
	}
	var entries []inbox.Entry
	for _, id := range []string{"n1", "n2", "n3", "n4", "critical", "survey"} {
		e := inbox.Entry{Position: inbox.PositionOf(id, time.Now()), Type: "news", Lane: "promotional", Sender: "orders", Priority: push.Medium}
		switch id {
		case "critical":
			e.Priority = push.Critical
		case "survey":
			e.Type = id
		}
		entries = append(entries, e)
	}
	k := inbox.Key{User: "u42", App: "shop"}
	for range patience {
		if err = u.reader.Fetch(t.Context(), []string{k.User}, []*push.User{{}}); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	admit := func(list []inbox.Entry, want ...string) (all []gateway.Admission) {
		t.Helper()
		all, err := u.Admit(t.Context(), k, list)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range all {
			word := "withheld"
			if a.Shown {
				word = "shown"
			} else if a.Hidden {
				word = "hidden"
			}
			got = append(got, word)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		return all
	}
	var before time.Time
	for range 3 {
		all := admit(entries, "shown", "shown", "shown", "withheld", "shown", "hidden")
		if !before.IsZero() && !all[3].FreeAt.Equal(before) {
			t.Errorf("free at %v, and before at %v", all[3].FreeAt, before)
		}
		before = all[3].FreeAt
		if free := time.Until(all[3].FreeAt); free < 23*time.Hour || free > 24*time.Hour {
			t.Errorf("free in %v", free)
		}
	}
	admit(entries[3:4], "withheld")
	admit(entries[1:2], "shown")
}

// Of a user nothing of whom can be read nothing is told, and of one who wants nothing all
// is hidden but what is critical; who wants no pushes reads on.
func TestWants(t *testing.T) {
	u := &userLimits{config: configs.Default()}
	e := inbox.Entry{Position: inbox.Position{ID: "n1"}, Type: "news", Lane: "promotional", Sender: "orders", Priority: push.Medium}
	critical := e
	critical.Priority = push.Critical
	for _, tt := range []struct {
		why       string
		user      push.User
		want, crt push.Verdict
	}{
		{"nobody known", push.User{}, push.Undecided, push.Undecided},
		{"no pushes", push.User{Preferences: push.Preferences{Channels: []string{push.ChannelPush}}}, push.Undecided, push.Undecided},
		{"no inbox", push.User{Preferences: push.Preferences{Channels: []string{push.ChannelInbox}}}, push.Suppressed, push.Undecided},
		{"nothing", push.User{Preferences: push.Preferences{OptOutAll: true}}, push.Suppressed, push.Undecided},
		{"not from this sender", push.User{Preferences: push.Preferences{Senders: []string{"orders"}}}, push.Suppressed, push.Undecided},
		{"blocked", push.User{Preferences: push.Preferences{Blocked: true}}, push.Suppressed, push.Suppressed},
		{"of a later version", push.User{Quarantine: push.PreferencesUnknown}, push.Deferred, push.Deferred},
	} {
		before := slices.Clone(tt.user.Preferences.Channels)
		if got, crt := u.wants(tt.user, inbox.Key{User: "u", App: "shop"}, &e), u.wants(tt.user, inbox.Key{User: "u", App: "shop"}, &critical); got != tt.want || crt != tt.crt {
			t.Errorf("%s: %v, critical %v", tt.why, got, crt)
		}
		if !slices.Equal(before, tt.user.Preferences.Channels) {
			t.Errorf("%s: the user was changed", tt.why)
		}
	}
}

// A gateway shows what a worker's store has written on a real server, and keeps the marks;
// so it does with a message to a topic that its user pulls.
func TestInboxOnCassandra(t *testing.T) {
	path, _ := files(t, ", inbox: true, topics: true")
	c, err := configs.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	made := keyspacetest.Make(t)
	c.Cassandra.Hosts, c.Cassandra.Keyspace = made.Hosts, made.Keyspace
	o, err := wiring.Cassandra(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, done, err := wiring.Inbox(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	u := gateway.NewUsers(nil, nil) // nothing is changed by it
	t.Cleanup(u.Close)
	url := alone(t, worker.GatewayOptions{Config: c, Users: u})
	keep := func(id string) {
		t.Helper()
		e := inbox.Entry{Position: inbox.PositionOf(id, time.Now()), Type: "news", Lane: "promotional", Priority: push.Medium, Content: []byte(`{"title":"` + id + `"}`)}
		if err := store.Put(t.Context(), []inbox.Addressed{{Key: inbox.Key{User: "u42", App: "shop"}, Entry: e}}); err[0] != nil {
			t.Fatal(err[0])
		}
	}
	call := func(method, path, body string) (code int, answer map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, object(t, string(text))
	}
	keep("n1")
	var answer map[string]any
	for code, tries := 0, 0; code != http.StatusOK && tries < patience; tries++ { // it is not connected yet
		if code, answer = call("GET", "/v1/users/u42/inbox?app=shop", ""); code != http.StatusOK {
			time.Sleep(50 * time.Millisecond)
		}
	}
	items, _ := answer["items"].([]any)
	if len(items) != 1 {
		t.Fatalf("%v", answer)
	}
	cursor := items[0].(map[string]any)["cursor"].(string)
	if code, answer := call("POST", "/v1/users/u42/inbox/marks", `{"app": "shop", "read": ["`+cursor+`"]}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, answer)
	}
	// Something new comes while one waits: the wait may end before, but not without it.
	var waiting sync.WaitGroup
	waiting.Go(func() { keep("n2") })
	for tries := 0; len(items) < 2 && tries < patience; tries++ {
		_, answer = call("GET", "/v1/users/u42/inbox?app=shop&wait=1", "")
		items, _ = answer["items"].([]any)
	}
	waiting.Wait()
	if len(items) != 2 || items[0].(map[string]any)["read"] != false || items[1].(map[string]any)["read"] != true {
		t.Errorf("%v", answer)
	}
	followsATopic(t, o, store)
	code, answer := call("GET", "/v1/users/u42/inbox?app=shop", "")
	if items, _ = answer["items"].([]any); code != http.StatusOK || len(items) != 3 || items[0].(map[string]any)["topic"] != "news" || items[0].(map[string]any)["read"] != false {
		t.Fatalf("%d %v", code, answer)
	}
	if code, answer := call("POST", "/v1/users/u42/inbox/marks", `{"app": "shop", "read": ["`+items[0].(map[string]any)["cursor"].(string)+`"]}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, answer)
	}
	if code, answer := call("GET", "/v1/users/u42/inbox/unread?app=shop", ""); code != http.StatusOK || answer["unread"] != 1.0 || answer["more"] != false {
		t.Errorf("%d %v", code, answer)
	}
}

// followsATopic has u42 pull a topic, to which a message comes then.
func followsATopic(t *testing.T, o status.Options, store *inbox.Store) {
	t.Helper()
	session, err := status.OpenSession(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	topics := subscriptions.New(subscriptions.Options{Tables: session})
	topic, _, err := topics.Create(t.Context(), &subscriptions.Topic{Name: "news", App: "shop", Service: "promotional", Priority: push.Medium, Security: subscriptions.Open,
		Modes: subscriptions.ModesOf(subscriptions.Pull), Size: subscriptions.Small})
	if err != nil {
		t.Fatal(err)
	}
	if r := topics.Apply(t.Context(), &topic, []subscriptions.Change{{User: "u42", Mode: subscriptions.Pull, At: time.Now()}}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	e := inbox.Entry{Position: inbox.Position{At: time.Now().UTC().Truncate(time.Millisecond), ID: "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"}, Type: "news", Lane: "promotional", Priority: push.Medium,
		Content: []byte(`{"title":"snow"}`)}
	if err := store.PutTopic(t.Context(), inbox.Topic{Name: "news", App: "shop"}, &e); err != nil {
		t.Fatal(err)
	}
}
