package gateway

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/push"
)

// journalOf is the journals of a world, with these entries of u42, each a day older than the
// one before.
func journalOf(t *testing.T, entries ...journal.Entry) (*journal.Memory, func(*Options)) {
	t.Helper()
	m := journal.NewMemory()
	for i, e := range entries {
		e.User, e.Type = "u42", "news"
		if e.At.IsZero() {
			e.At = time.Now().UTC().Add(-time.Duration(i)*24*time.Hour - time.Hour).Truncate(time.Millisecond)
		}
		if err := m.Put(t.Context(), []journal.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	return m, func(o *Options) { o.Journal = &Journal{Store: m, Kept: 60 * 24 * time.Hour} }
}

func of(id, app, sender, lane string) journal.Entry {
	return journal.Entry{Position: journal.Position{ID: id}, App: app, Sender: sender, Lane: lane}
}

// messages are those of u42 by a key, in short.
func (w *world) messages(key, query string) string {
	w.t.Helper()
	a := w.as(key, "GET", "/v1/users/u42/messages?"+query, "")
	if a.status != 200 {
		return a.code()
	}
	var b strings.Builder
	for _, m := range a.json["messages"].([]any) {
		one := m.(map[string]any)
		fmt.Fprintf(&b, "%v %v; ", one["id"], one["status"])
	}
	if a.json["next"] != nil {
		b.WriteString("and more")
	}
	return b.String()
}

// Messages of a user are those of the asking key's apps and sender, with what became of each.
func TestMessagesOfUser(t *testing.T) {
	entries := []journal.Entry{of("open", "shop", "orders", "transactional"), of("sent", "shop", "orders", "transactional"), of("bank", "bank", "orders", "critical"),
		of("other", "shop", "campaigns", "promotional"), of("limited", "shop", "orders", "promotional"), of("foreign", "shop", "orders", "promotional"), of("elsewhere", "unconfigured", "orders", "bulk")}
	m, journals := journalOf(t, entries...)
	w := newWorld(t, journals)
	now, own := time.Now().UTC().Truncate(time.Millisecond), push.UserHash("u42")
	w.rows["sent"] = []push.Row{{ID: "sent", Device: "d", Step: 1, State: push.StateDelivered, At: now, Platform: push.APNS, UserHash: own}}
	w.rows["limited"] = []push.Row{{ID: "limited", State: push.StateSuppressed, Reason: "limited:per-day", At: now, UserHash: own}}
	w.rows["foreign"] = []push.Row{{ID: "foreign", State: push.StateDelivered, Device: "d", At: now, UserHash: own + 1}}
	user, another := w.token(keyLogins, "u42", "shop"), w.token(keyLogins, "u43", "shop")
	const orders = "open PENDING; sent DELIVERED; "
	for _, tt := range []struct{ key, query, want string }{
		{keyOrders, "app=shop", orders + "limited FAILED; foreign PENDING; "}, {keySupport, "app=bank", "bank PENDING; "}, {keyOrders, "app=shop&days=2", orders},
		{keySupport, "", "open PENDING; sent DELIVERED; bank PENDING; other PENDING; limited FAILED; foreign PENDING; "},
		{keySupport, "limit=2", orders + "and more"}, {keySupport, "days=60&limit=6", "open PENDING; sent DELIVERED; bank PENDING; other PENDING; limited FAILED; foreign PENDING; and more"},
		{user, "", orders + "other PENDING; limited FAILED; foreign PENDING; "}, {user, "app=shop&days=1", "open PENDING; "},
		{keyReader, "app=shop", "foreign_app"}, {user, "app=bank", "foreign_app"}, {another, "", "foreign_user"}, {keyLogins, "", "forbidden"}, {"", "", "unauthorized"},
		{keyOrders, "app=unconfigured", "unknown_app"}, {keyOrders, "days=0", "bad_request"}, {keyOrders, "days=61", "bad_request"}, {keyOrders, "limit=0", "bad_request"},
		{keyOrders, "limit=101", "bad_request"}, {keyOrders, "days=1&days=1", "bad_request"}, {keyOrders, "type=news", "bad_request"}, {keyOrders, "app=%zz", "bad_request"},
		{keyOrders, "after=", "bad_request"}, {keyOrders, "after=%21", "bad_request"}, {keyOrders, "after=" + base64.RawURLEncoding.EncodeToString([]byte{255, 0, 0, 0, 0, 0, 0, 0}), "bad_request"},
		{keyOrders, "after=" + base64.RawURLEncoding.EncodeToString(make([]byte, 8+maxText+1)), "bad_request"}, {keyOrders, "after=" + base64.RawURLEncoding.EncodeToString(make([]byte, 8)), ""},
		{keyOrders, "after=" + base64.RawURLEncoding.EncodeToString(append(make([]byte, 8), 0xff, 0xfe)), "bad_request"},
	} {
		if got := w.messages(tt.key, tt.query); got != tt.want {
			t.Errorf("%.12s, %q: %s, want %s", tt.key, tt.query, got, tt.want)
		}
	}
	a := w.as(keyOrders, "GET", "/v1/users/u42/messages?app=shop&days=7", "")
	said := a.json["messages"].([]any)[2].(map[string]any)
	if a.string("user_id") != "u42" || said["id"] != "limited" || said["reason"] != "limited:per-day" || said["final"] != true || said["app"] != "shop" || said["sender_id"] != "orders" || said["type"] != "news" ||
		said["lane"] != "promotional" || said["at"] == "" || !strings.Contains(said["meaning"].(string), "per-day") {
		t.Errorf("%s", a.text)
	}
	if devices := a.json["messages"].([]any)[1].(map[string]any)["devices"].([]any); len(devices) != 1 || devices[0].(map[string]any)["device"] != "d" {
		t.Errorf("%s", a.text)
	}
	if got := w.as(keyOrders, "GET", "/v1/users/%00/messages", ""); got.code() != "invalid_field" {
		t.Errorf("a user who is none: %d %s", got.status, got.text)
	}
	m.Fail(errAway)
	if got := w.as(keyOrders, "GET", "/v1/users/u42/messages", ""); got.code() != "status_away" || got.header.Get("Retry-After") == "" {
		t.Errorf("Cassandra is away: %d %s", got.status, got.text)
	}
	m.Fail(nil)
	w.mu.Lock()
	w.rowsErr = errAway
	w.mu.Unlock()
	if got := w.as(keyOrders, "GET", "/v1/users/u42/messages", ""); got.code() != "status_away" || got.header.Get("Retry-After") == "" {
		t.Errorf("the status store is away: %d %s", got.status, got.text)
	}
	if got := newWorld(t).messages(keyOrders, ""); got != "not_configured" {
		t.Error(got)
	}
}

// Page by page comes each message once.
func TestPagesOfMessages(t *testing.T) {
	var entries []journal.Entry
	for i := range 11 {
		entries = append(entries, of(fmt.Sprintf("n%02d~ü", i), "shop", "orders", "transactional"))
	}
	_, journals := journalOf(t, entries...)
	w := newWorld(t, journals)
	var got []string
	query := "limit=4"
	for range 4 {
		a := w.as(keyOrders, "GET", "/v1/users/u42/messages?"+query, "")
		if a.status != 200 {
			t.Fatal(a.text)
		}
		for _, m := range a.json["messages"].([]any) {
			got = append(got, m.(map[string]any)["id"].(string))
		}
		if a.json["next"] == nil {
			break
		}
		query = "limit=4&after=" + a.string("next")
	}
	for i, e := range entries {
		if i >= len(got) || got[i] != e.ID {
			t.Fatalf("%q, want all of %d in their order", got, len(entries))
		}
	}
	if len(got) != len(entries) {
		t.Errorf("%q", got)
	}
}

// Of what is older than states are kept nobody knows what became of it, and that is final.
func TestMessagesWithoutStates(t *testing.T) {
	old := of("old", "shop", "orders", "transactional")
	old.At = time.Now().UTC().Add(-31 * 24 * time.Hour).Truncate(time.Millisecond)
	_, journals := journalOf(t, old)
	a := newWorld(t, journals).as(keyOrders, "GET", "/v1/users/u42/messages", "")
	said := a.json["messages"].([]any)[0].(map[string]any)
	if said["status"] != "UNKNOWN" || said["final"] != true || said["at"] != old.At.Format(time.RFC3339Nano) {
		t.Errorf("%s", a.text)
	}
}
