package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

func TestMain(m *testing.M) {
	shards.LogTo(slog.New(slog.DiscardHandler)) // of dials to a Redis that is away on purpose
	goleak.VerifyTestMain(m)
}

// The keys of callers in tests.
const (
	keyOrders  = "orders-orders-orders-orders-orders"  // sender orders, app shop: send and read
	keySupport = "support-support-support-support-sup" // sender support, apps shop and bank: all rights
	keyReader  = "reader-reader-reader-reader-reader-" // sender orders, app bank: read
	keyLogins  = "logins-logins-logins-logins-logins-" // sender logins, apps shop and unconfigured: users
)

var errAway = errors.New("away")

// world is a gateway with everything around it in memory.
type world struct {
	t       *testing.T
	gateway *Gateway
	keys    string // the file
	people  *people
	topics  *board
	inbox   *inbox.Memory
	clicks  *clicks.Memory

	mu        sync.Mutex
	produced  []Record                                // guarded by mu; acknowledged
	rows      map[string][]push.Row                   // guarded by mu
	committed map[int32]int64                         // guarded by mu
	topic     [16]byte                                // guarded by mu
	rowsErr   error                                   // guarded by mu
	offErr    error                                   // guarded by mu
	ack       func(r Record, done func(Place, error)) // guarded by mu; nil = at once
	hang      bool                                    // guarded by mu; offsets come only when nobody waits any more
	asks      int                                     // guarded by mu; how often offsets were asked for
	order     []string                                // guarded by mu; "offsets", "rows"
}

func keysText(t *testing.T) string {
	t.Helper()
	hash := func(key string) string {
		h, err := KeyHash(key)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	return `{"keys": [
		{"name": "orders-1", "sha256": "` + hash(keyOrders) + `", "sender": "orders", "apps": ["shop", "unconfigured"], "rights": ["send", "read"]},
		{"name": "support", "sha256": "` + hash(keySupport) + `", "sender": "support", "apps": ["shop", "bank"], "rights": ["send", "read", "users", "admin"]},
		{"name": "logins", "sha256": "` + hash(keyLogins) + `", "sender": "logins", "apps": ["shop", "unconfigured"], "rights": ["users"]},
		{"name": "reader", "sha256": "` + hash(keyReader) + `", "sender": "orders", "apps": ["bank"], "rights": ["read"]}]}`
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, rows: map[string][]push.Row{}, committed: map[int32]int64{}, topic: [16]byte{1}, keys: filepath.Join(t.TempDir(), "keys.json")}
	if err := os.WriteFile(w.keys, []byte(keysText(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	callers, err := OpenCallers(w.keys)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := NewSigner(strings.Repeat("s", MinKey))
	if err != nil {
		t.Fatal(err)
	}
	w.people, w.topics, w.inbox, w.clicks = newPeople(), newBoard(), inbox.NewMemory(nil), clicks.NewMemory()
	o := Options{Producer: w, Offsets: w, Rows: w, Users: NewUsers(w.people, w.people), Topics: w.topics, Fanouts: newReports().fanouts(), Inbox: w.inboxes(nil), Clicks: w.reports(), Callers: callers, Signer: signer, Apps: []string{"shop", "bank"},
		Lanes: []Lane{
			{"critical", "push.critical", "otp", AtLeastOnce}, {"transactional", "push.transactional", "transactional", EffectivelyOnce},
			{"once", "push.once", "transactional", AtMostOnce},
		},
		Limits:  Limits{Message: 128 << 10, Lines: 1000, Batch: 4 << 20, Query: 1000, Requests: 100, Batches: 4},
		Times:   Times{Confirm: 5 * time.Second, Status: 5 * time.Second, Kept: 720 * time.Hour, Delay: 2 * time.Hour},
		Metrics: NewMetrics(nil), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, c := range change {
		c(&o)
	}
	w.gateway = New(o)
	t.Cleanup(func() {
		if taken := w.gateway.bodies.taken.Load(); taken != 0 {
			t.Errorf("bodies of requests that have ended still take %d bytes", taken)
		}
	})
	if o.Users != nil {
		t.Cleanup(o.Users.Close)
	}
	return w
}

// Produce implements Producer.
func (w *world) Produce(r Record, done func(Place, error)) {
	w.mu.Lock()
	ack := w.ack
	w.mu.Unlock()
	if ack != nil {
		ack(r, done)
		return
	}
	done(w.keep(r), nil)
}

// keep is what a broker does with a record.
func (w *world) keep(r Record) Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.produced = append(w.produced, r)
	return Place{Partition: 3, Offset: int64(len(w.produced) - 1)}
}

// Topic implements Offsets. It is known while the offsets are not.
func (w *world) Topic(context.Context, string) ([16]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.topic, nil
}

// Progress implements Offsets.
func (w *world) Progress(ctx context.Context, _ string) (Progress, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hang {
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return Progress{}, ctx.Err()
	}
	w.asks++
	w.order = append(w.order, "offsets")
	committed := map[int32]int64{}
	for p, at := range w.committed {
		committed[p] = at
	}
	return Progress{w.topic, committed}, w.offErr
}

// Read implements Rows.
func (w *world) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order = append(w.order, "rows")
	rows := make([][]push.Row, len(ids))
	for i, id := range ids {
		rows[i] = w.rows[id]
	}
	return rows, w.rowsErr
}

// set changes the world.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// request is one to make; header values replace the usual ones, "" removes one.
type request struct {
	method, path, key, body string
	header                  map[string]string
}

// reply is an answer that the contract was held against.
type reply struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

// do makes a request and holds the answer against the contract.
func (w *world) do(r request) *reply {
	w.t.Helper()
	req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	if r.method == http.MethodPost || r.method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
		if strings.HasSuffix(r.path, "/batch") {
			req.Header.Set("Content-Type", "application/x-ndjson")
		}
	}
	for name, value := range r.header {
		if req.Header.Del(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	return w.exchange(req)
}

func (w *world) exchange(req *http.Request) *reply {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, req)
	a := &reply{status: rec.Code, header: rec.Header(), text: rec.Body.String()}
	if strings.Contains(rec.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(rec.Body.Bytes(), &a.json); err != nil {
			w.t.Fatalf("%s %s: not JSON: %v\n%s", req.Method, req.URL, err, a.text)
		}
	}
	_, pattern := w.gateway.mux.Handler(req)
	if unclean(req.URL) {
		pattern = "" // the mux would redirect
	}
	inContract(w.t, pattern, a)
	return a
}

// post sends a message as orders.
func (w *world) post(body string, header ...string) *reply {
	w.t.Helper()
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return w.do(request{method: "POST", path: "/v1/messages", key: keyOrders, body: body, header: h})
}

// code is the code of a problem; empty = it is none.
func (a *reply) code() string {
	code, _ := a.json["code"].(string)
	return code
}

// string is a member of the answer.
func (a *reply) string(name string) string {
	s, _ := a.json[name].(string)
	return s
}

// pointer is where the first fault of a problem is.
func (a *reply) pointer() string {
	faults, _ := a.json["errors"].([]any)
	if len(faults) == 0 {
		return "none"
	}
	return faults[0].(map[string]any)["pointer"].(string)
}
