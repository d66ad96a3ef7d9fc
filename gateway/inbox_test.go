package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
)

// inboxes are those of a world, with limits that may be nil.
func (w *world) inboxes(limits InboxLimits) *Inbox {
	return &Inbox{Store: w.inbox, Limits: limits, Watcher: inbox.NewWatcher(inbox.WatcherOptions{News: w.inbox, Log: slog.New(slog.DiscardHandler)})}
}

var u42 = inbox.Key{User: "u42", App: "shop"}

// keeps puts an entry of so long ago into an inbox.
func (w *world) keeps(k inbox.Key, id string, ago time.Duration, change ...func(*inbox.Entry)) {
	w.t.Helper()
	e := inbox.Addressed{Key: k, Entry: inbox.Entry{Position: inbox.PositionOf(id, time.Now().Add(-ago)), Type: "news", Lane: "transactional",
		Sender: "orders", Priority: push.Medium, Content: []byte(`{"title":"` + id + `"}`)}}
	for _, c := range change {
		c(&e.Entry)
	}
	if err := w.inbox.Put(w.t.Context(), []inbox.Addressed{e}); err[0] != nil {
		w.t.Fatal(err)
	}
}

func (w *world) look(key, query string, header ...string) *reply {
	w.t.Helper()
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return w.do(request{method: "GET", path: "/v1/users/u42/inbox?" + query, key: key, header: h})
}

func (w *world) mark(key, body string) *reply {
	w.t.Helper()
	return w.do(request{method: "POST", path: "/v1/users/u42/inbox/marks", key: key, body: body})
}

// items are the members of a page's items of this name.
func (a *reply) items(member string) (list []string) {
	items, _ := a.json["items"].([]any)
	for _, i := range items {
		list = append(list, fmt.Sprint(i.(map[string]any)[member]))
	}
	return list
}

// Pages go from the newest to the oldest, and stay where they are while new ones come in.
// What has expired is left out. A user sees his own inbox, of his token's app, alone.
func TestInboxPages(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.keeps(u42, fmt.Sprint("n", i), time.Duration(10-i)*time.Minute)
	}
	w.keeps(u42, "expired", 15*time.Second, func(e *inbox.Entry) { e.Expires = time.Now().Add(-time.Second) })
	w.keeps(u42, "damaged", 10*time.Second, func(e *inbox.Entry) { e.Content = []byte(`{"title`) })
	w.keeps(u42, "later", 5*time.Second, func(e *inbox.Entry) { e.Expires = time.Now().Add(time.Hour) })
	w.keeps(inbox.Key{User: "u42", App: "bank"}, "other-app", 0)
	w.keeps(inbox.Key{User: "u43", App: "shop"}, "other-user", 0)
	token := w.userToken("u42")
	a := w.look(token, "limit=4")
	if got := a.items("id"); a.status != http.StatusOK || !slices.Equal(got, []string{"later", "n6"}) {
		t.Fatalf("%d %s", a.status, a.text)
	}
	w.keeps(u42, "new", 0)
	var all []string
	for next := a.string("next"); next != ""; next = a.string("next") {
		a = w.look(keyLogins, "app=shop&limit=3&after="+next)
		all = append(all, a.items("id")...)
		if len(all) > 20 {
			t.Fatal("the pages do not end")
		}
	}
	if want := []string{"n5", "n4", "n3", "n2", "n1", "n0"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
	a = w.look(keySupport, "app=bank")
	if got := a.items("id"); !slices.Equal(got, []string{"other-app"}) {
		t.Errorf("%q", got)
	}
	foreign := w.look(keySupport, "app=bank").json["items"].([]any)[0].(map[string]any)["cursor"].(string)
	for query, code := range map[string]string{
		"": "invalid_field", "app=bank": "foreign_app", "app=unconfigured": "unknown_app", "app=shop&after=" + foreign: "bad_request", "app=shop&after=": "bad_request",
		"app=shop&limit=0": "bad_request", "app=shop&limit=101": "bad_request", "app=shop&limit=x": "bad_request", "app=shop&wait=31": "bad_request", "app=shop&wait=-1": "bad_request",
		"app=shop&app=shop": "bad_request", "app=shop&left=true": "bad_request", "app=%zz": "bad_request", "app=shop&wait=1&after=" + foreign: "bad_request",
		"app=shop&after=" + strings.Repeat("A", 300): "bad_request", "app=shop&after=AQ%0A": "bad_request",
	} {
		if a := w.look(keyLogins, query); a.code() != code {
			t.Errorf("%q: %d %s, want %s", query, a.status, a.text, code)
		}
	}
	if a := w.look(token, "app=bank"); a.code() != "foreign_app" {
		t.Errorf("another app by a token: %s", a.text)
	}
	if a := w.look(w.userToken("u43"), ""); a.code() != "foreign_user" {
		t.Errorf("another user: %s", a.text)
	}
	if a := w.look(keyOrders, "app=shop"); a.code() != "forbidden" {
		t.Errorf("without the right: %s", a.text)
	}
	w.inbox.Fail(errAway)
	if a := w.look(keyLogins, "app=shop"); a.code() != "inbox_away" || a.header.Get("Retry-After") == "" {
		t.Errorf("it is away: %s", a.text)
	}
	if a := newWorld(t, func(o *Options) { o.Inbox = nil }).look(keyLogins, "app=shop"); a.code() != "not_configured" {
		t.Errorf("without inboxes: %s", a.text)
	}
}

// Who has the page as it is gets 304 and no body; a mark makes it another one.
func TestInboxTags(t *testing.T) {
	w := newWorld(t)
	empty := w.look(keyLogins, "app=shop")
	w.keeps(u42, "n1", time.Minute)
	a := w.look(keyLogins, "app=shop", "If-None-Match", empty.header.Get("ETag"))
	tag := a.header.Get("ETag")
	if a.status != http.StatusOK || tag == "" || tag == empty.header.Get("ETag") {
		t.Fatalf("%d %q %s", a.status, tag, a.text)
	}
	for _, known := range []string{tag, `"other", W/` + tag, tag + `,"x"`} {
		if a := w.look(keyLogins, "app=shop", "If-None-Match", known); a.status != http.StatusNotModified || a.text != "" || a.header.Get("ETag") != tag {
			t.Errorf("%q: %d %s", known, a.status, a.text)
		}
	}
	if a := w.look(keyLogins, "app=shop", "If-None-Match", `"other"`); a.status != http.StatusOK {
		t.Errorf("%d", a.status)
	}
	if m := w.mark(keyLogins, `{"app":"shop","read":["`+a.items("cursor")[0]+`"]}`); m.status != http.StatusOK {
		t.Fatal(m.text)
	}
	if a := w.look(keyLogins, "app=shop", "If-None-Match", tag); a.status != http.StatusOK || a.items("read")[0] != "true" {
		t.Errorf("after a mark: %d %s", a.status, a.text)
	}
}

// What is marked stays so when the message comes again. Only what was shown can be marked.
func TestInboxMarks(t *testing.T) {
	w := newWorld(t)
	at := time.Now()
	same := func(i int) {
		w.keeps(u42, fmt.Sprint("n", i), 0, func(e *inbox.Entry) {
			e.Position = inbox.PositionOf(e.ID, at.Add(time.Duration(i-10)*time.Minute))
		})
	}
	for i := range 4 {
		same(i)
	}
	cursors := w.look(keyLogins, "app=shop").items("cursor")
	read := func(want string) {
		t.Helper()
		if got := fmt.Sprint(w.look(keyLogins, "app=shop").items("read")); got != want {
			t.Errorf("read %s, want %s", got, want)
		}
	}
	token := w.userToken("u42")
	if a := w.mark(token, `{"read":["`+cursors[0]+`","`+cursors[3]+`"]}`); a.status != http.StatusOK || a.json["marked"] != 2.0 {
		t.Errorf("%s", a.text)
	}
	read("[true false false true]")
	same(3)
	read("[true false false true]")
	if a := w.mark(token, `{"unread":["`+cursors[0]+`"],"read_up_to":"`+cursors[2]+`"}`); a.json["marked"] != 2.0 {
		t.Errorf("%s", a.text)
	}
	read("[false false true true]")
	w.keeps(inbox.Key{User: "u43", App: "shop"}, "other", time.Minute)
	foreign := w.do(request{method: "GET", path: "/v1/users/u43/inbox?app=shop", key: keyLogins}).items("cursor")[0]
	many := `"` + strings.Repeat(cursors[0]+`","`, inbox.MaxMarks) + cursors[0] + `"`
	for body, want := range map[string]string{
		`{"app":"shop"}`: "invalid_field ", `{"app":"shop","read":["x"]}`: "invalid_field /read/0", `{"app":"shop","unread":["` + cursors[0] + `","` + foreign + `"]}`: "invalid_field /unread/1",
		`{"app":"shop","read_up_to":"` + cursors[0] + `A"}`: "invalid_field /read_up_to", `{"app":"shop","read":[` + many + `]}`: "invalid_field /read",
		`{"app":"bank","read_up_to":"` + cursors[0] + `"}`: "foreign_app /app", `{"read_up_to":"` + cursors[0] + `"}`: "invalid_field /app",
		`{"app":"shop","read":"x"}`: "invalid_field /read", `{"app":"shop","all":true}`: "bad_request", `[`: "bad_request",
	} {
		if a := w.mark(keyLogins, body); !strings.HasPrefix(want, a.code()) || strings.Contains(want, "/") && a.code()+" "+a.pointer() != want || a.status < 400 {
			t.Errorf("%.60s: %s, want %s", body, a.text, want)
		}
	}
	read("[false false true true]")
	w.inbox.Fail(errAway)
	if a := w.mark(token, `{"read_up_to":"`+cursors[0]+`"}`); a.code() != "inbox_away" {
		t.Errorf("it is away: %s", a.text)
	}
}

// capped are limits that let so many through, by their ids.
type capped struct {
	mu    sync.Mutex
	most  int             // guarded by mu
	spent map[string]bool // guarded by mu
	asked int             // guarded by mu; entries
	free  time.Time
	err   error // guarded by mu
}

func (c *capped) Admit(_ context.Context, _ inbox.Key, entries []inbox.Entry) ([]Admission, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := make([]Admission, len(entries))
	for i, e := range entries {
		c.asked++
		switch {
		case e.Type == "unwanted":
			answers[i].Hidden = true
		case c.spent[e.ID] || len(c.spent) < c.most:
			c.spent[e.ID], answers[i].Shown = true, true
		default:
			answers[i].FreeAt = c.free
		}
	}
	return answers, c.err
}

// Who asks for the header of a page alone sees nothing, and spends nothing.
func TestHeadOfAnInboxSpendsNothing(t *testing.T) {
	c := &capped{most: 2, spent: map[string]bool{}}
	w := newWorld(t)
	w.gateway.o.Inbox = w.inboxes(c)
	w.keeps(u42, "n0", time.Minute)
	a := w.do(request{method: "HEAD", path: "/v1/users/u42/inbox?app=shop", key: keyLogins})
	if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET" || c.asked > 0 {
		t.Errorf("it is answered %d %v, and limits were asked %d times", a.status, a.header, c.asked)
	}
}

// Reading twice spends once, and not at all when it has been shown long ago; what is
// withheld comes when there is room.
func TestInboxLimits(t *testing.T) {
	c := &capped{most: 2, spent: map[string]bool{}, free: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
	w := newWorld(t)
	w.gateway.o.Inbox = w.inboxes(c)
	for i := range 5 {
		w.keeps(u42, fmt.Sprint("n", i), time.Duration(10-i)*time.Minute)
	}
	w.keeps(u42, "unwanted", time.Minute, func(e *inbox.Entry) { e.Type = "unwanted" })
	for range 3 {
		a := w.look(keyLogins, "app=shop")
		if got := a.items("id"); !slices.Equal(got, []string{"n4", "n3"}) || a.json["withheld"] != 3.0 || a.string("free_at") != c.free.Format(time.RFC3339) {
			t.Errorf("%s", a.text)
		}
	}
	// Another estimate of when there is room is nothing new.
	tag := w.look(keyLogins, "app=shop").header.Get("ETag")
	c.free = c.free.Add(time.Second)
	if a := w.look(keyLogins, "app=shop", "If-None-Match", tag); a.status != http.StatusNotModified {
		t.Errorf("%d %s", a.status, a.text)
	}
	if len(c.spent) != 2 {
		t.Errorf("%d were spent", len(c.spent))
	}
	// The window is over, and what was spent in it is forgotten: what was shown stays.
	c.spent, c.asked = map[string]bool{}, 0
	a := w.look(keyLogins, "app=shop")
	if got := a.items("id"); !slices.Equal(got, []string{"n4", "n3", "n2", "n1"}) || a.json["withheld"] != 1.0 || c.asked != 4 {
		t.Errorf("asked about %d: %s", c.asked, a.text)
	}
	c.err = errors.New("away")
	if a := w.look(keyLogins, "app=shop"); a.code() != "registry_away" {
		t.Errorf("limits are away: %s", a.text)
	}
	if rows, _ := w.gateway.o.Rows.Read(t.Context(), []string{"n0"}); len(rows[0]) != 0 {
		t.Error("what is withheld has a row")
	}
}

// poll asks with wait over a connection of its own, and says what came, and after how long.
func poll(t *testing.T, p *pipes, query, tag string) (status int, body string, took time.Duration) {
	start := time.Now()
	conn := p.dial()
	if conn == nil {
		t.Error("nobody accepts")
		return
	}
	defer conn.Close()
	if tag != "" {
		tag = "If-None-Match: " + tag + "\r\n"
	}
	go fmt.Fprintf(conn, "GET /v1/users/u42/inbox?app=shop%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n", query, keyLogins, tag)
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
	if err != nil {
		t.Error(err)
		return
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, string(text), time.Since(start)
}

// watching runs the watcher of a world until the function that it returns is called.
func (w *world) watching() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.gateway.o.Inbox.Watcher.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// A long poll is answered when something comes, within seconds, and in the end in any
// case, later than other requests may take; it holds no place of theirs meanwhile.
func TestLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Limits.Requests = 1 })
		defer w.watching()()
		p, s := w.serve(100)
		defer s.Close(t.Context())
		if status, text, took := poll(t, p, "&wait=20", ""); status != http.StatusOK || took != 20*time.Second || !strings.Contains(text, `"items":[]`) {
			t.Errorf("nothing comes: %d after %v", status, took)
		}
		tag := w.look(keyLogins, "app=shop").header.Get("ETag")
		if status, _, took := poll(t, p, "&wait=30", tag); status != http.StatusNotModified || took != 30*time.Second {
			t.Errorf("nothing changes: %d after %v", status, took)
		}
		var waiting sync.WaitGroup
		for range 20 {
			time.Sleep(time.Millisecond) // there is a place for one at a time, to look
			waiting.Go(func() {
				status, text, took := poll(t, p, "&wait=30", tag)
				if status != http.StatusOK || !strings.Contains(text, `"id":"n1"`) || took < 9*time.Second || took > 13*time.Second {
					t.Errorf("one who waits: %d after %v", status, took)
				}
			})
		}
		time.Sleep(5 * time.Second)
		w.keeps(inbox.Key{User: "u43", App: "shop"}, "other", 0) // concerns none of them
		if a := w.look(keyLogins, "app=shop"); a.status != http.StatusOK {
			t.Errorf("there is no place for others: %s", a.text)
		}
		time.Sleep(5 * time.Second)
		w.keeps(u42, "n1", 0)
		waiting.Wait()
		if status, _, took := poll(t, p, "&wait=30", ""); status != http.StatusOK || took != 0 {
			t.Errorf("there is something: %d after %v", status, took)
		}
		if n := w.gateway.o.Inbox.Watcher.Waiting(); n != 0 {
			t.Errorf("%d wait still", n)
		}
	})
}

// slowInbox takes a second for a page once it is told to.
type slowInbox struct {
	*inbox.Memory
	slow    atomic.Bool
	reading atomic.Int64
	most    atomic.Int64
}

func (s *slowInbox) Page(ctx context.Context, k inbox.Key, follows []inbox.Follow, behind inbox.Position, limit int) ([]inbox.Entry, bool, error) {
	if s.slow.Load() {
		s.most.Store(max(s.most.Load(), s.reading.Add(1)))
		time.Sleep(time.Second)
		s.reading.Add(-1)
	}
	return s.Memory.Page(ctx, k, follows, behind, limit)
}

// Many who are told at once, as of a message to all, leave places to others.
func TestManyWokenLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Limits.Requests = 8 })
		slow := &slowInbox{Memory: w.inbox}
		w.gateway.o.Inbox.Store = slow
		defer w.watching()()
		p, s := w.serve(100)
		defer s.Close(t.Context())
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				if status, text, _ := poll(t, p, "&wait=30", ""); status != http.StatusOK || !strings.Contains(text, `"id":"n1"`) {
					t.Errorf("one who waits: %d %s", status, text)
				}
			})
			synctest.Wait() // one after the other, or there are more at once than places
		}
		time.Sleep(5 * time.Second)
		slow.slow.Store(true)
		w.keeps(u42, "n1", 0)
		time.Sleep(1500 * time.Millisecond)
		if a := w.look(keyLogins, "app=shop"); a.status != http.StatusOK {
			t.Errorf("there is no place for others: %s", a.text)
		}
		waiting.Wait()
		if n := slow.most.Load(); n < 2 || n > 3 { // and the look of others
			t.Errorf("%d look at once", n)
		}
		if len(w.gateway.woken) != 0 || len(w.gateway.requests) != 0 {
			t.Errorf("%d and %d places are not given back", len(w.gateway.woken), len(w.gateway.requests))
		}
	})
}

// A gateway that stops answers those who wait at once, and one whose client has gone ends.
func TestLongPollsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.watching()()
		p, s := w.serve(100)
		gone := p.dial()
		go fmt.Fprintf(gone, "GET /v1/users/u42/inbox?app=shop&wait=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", keyLogins)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if status, _, took := poll(t, p, "&wait=30", ""); status != http.StatusOK || took != 2*time.Second {
				t.Errorf("%d after %v", status, took)
			}
		})
		time.Sleep(time.Second)
		_ = gone.Close()
		synctest.Wait()
		if n := w.gateway.o.Inbox.Watcher.Waiting(); n != 1 {
			t.Errorf("%d wait, and one is there", n)
		}
		time.Sleep(time.Second)
		start := time.Now()
		s.Close(t.Context())
		waiting.Wait()
		if took := time.Since(start); took > time.Second {
			t.Errorf("it stopped after %v", took)
		}
	})
}

// Beyond as many as may wait, one is told to come without.
func TestTooManyLongPolls(t *testing.T) {
	w := newWorld(t)
	w.gateway.o.Inbox.Watcher = inbox.NewWatcher(inbox.WatcherOptions{News: w.inbox, Most: 1, Log: slog.New(slog.DiscardHandler)})
	one, err := w.gateway.o.Inbox.Watcher.Wait(1)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if a := w.look(keyLogins, "app=shop&wait=1"); a.code() != "busy" {
		t.Errorf("%s", a.text)
	}
}

// No cursor of another inbox, or that was changed, is one of this; and none crashes.
func FuzzCursors(f *testing.F) {
	signer, err := NewSigner(strings.Repeat("s", MinKey))
	if err != nil {
		f.Fatal(err)
	}
	good := inbox.Position{At: time.UnixMilli(1_764_126_000_123).UTC(), ID: "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"}
	text := signer.signCursor(u42, good)
	f.Add(text, "u42", "shop")
	f.Add(text+"A", "u42", "shop")
	f.Add(text, "u42shop", "")
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, cursor, user, app string) {
		p, ok := signer.openCursor(inbox.Key{User: user, App: app}, cursor)
		if own := cursor == text && user == "u42" && app == "shop"; ok != own || ok && p != good {
			t.Errorf("%q of %s, %s: %v, %+v", cursor, user, app, ok, p)
		}
	})
}

// No body of marks or query of an inbox brings an answer that is not in the contract.
func FuzzInbox(f *testing.F) {
	f.Add(`{"app":"shop","read":["x"],"read_up_to":""}`, "app=shop&wait=0&limit=5&after=x", `"a", W/"b"`)
	f.Add(`{"app":"shop","unread":[null]}`, "app=shop", ",,,")
	f.Add(`{`, "&&&", "")
	f.Fuzz(func(t *testing.T, body, query, tag string) {
		if strings.ContainsAny(query+tag, "\x00\r\n #%\x7f") || len(query) > 1000 {
			return // net/http refuses it
		}
		if values, err := url.ParseQuery(query); err != nil || values.Get("wait") != "" && values.Get("wait") != "0" {
			return
		}
		if _, err := url.Parse("/x?" + query); err != nil {
			return
		}
		w := newWorld(t)
		w.keeps(u42, "n1", time.Minute)
		if a := w.mark(keyLogins, body); a.status >= 500 {
			t.Errorf("%d %s", a.status, a.text)
		}
		if a := w.look(keyLogins, query, "If-None-Match", tag); a.status >= 500 || a.status == 200 && !json.Valid([]byte(a.text)) {
			t.Errorf("%d %s", a.status, a.text)
		}
	})
}

// A receipt says that a message is in its user's inbox, and that this is its end.
func TestReceiptOfWhatIsInTheInbox(t *testing.T) {
	w := newWorld(t)
	sent := w.post(`{"app":"shop","service_type":"transactional","user_id":"u42","title":"x"}`)
	id := sent.string("id")
	w.set(func() {
		w.rows[id] = []push.Row{{ID: id, State: push.StateInbox, At: time.Now(), Reason: "no_device", UserHash: push.UserHash("u42")}}
	})
	a := w.do(request{method: "GET", path: "/v1/receipts/" + url.PathEscape(sent.string("receipt")), key: keyOrders})
	if a.status != http.StatusOK || a.string("status") != "INBOX" || a.string("state") != "INBOX" || a.json["final"] != true || a.string("reason") != "no_device" || a.header.Get("Retry-After") != "" {
		t.Errorf("%d %s", a.status, a.text)
	}
}
