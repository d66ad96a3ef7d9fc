package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "orders-orders-orders-orders-orders"

// world is a gateway with Kafka and status rows in memory, and a client of it.
type world struct {
	t      *testing.T
	client *Client
	wire   *wire
	pauses []time.Duration // that the client made; none takes time
	end    error           // that a pause ends with

	mu       sync.Mutex
	produced []string                                          // guarded by mu; ids, as often as they were written
	rows     map[string][]push.Row                             // guarded by mu
	ack      func(id string, done func(gateway.Place, error))  // guarded by mu; nil = at once
	before   func(w http.ResponseWriter, r *http.Request) bool // guarded by mu; nil = nothing is before the gateway; true = it has answered
}

func newWorld(t *testing.T, change ...func(*gateway.Options)) *world {
	t.Helper()
	w := &world{t: t, wire: &wire{}, rows: map[string][]push.Row{}}
	signer, err := gateway.NewSigner(strings.Repeat("s", gateway.MinKey))
	if err != nil {
		t.Fatal(err)
	}
	o := gateway.Options{Producer: w, Offsets: w, Rows: w, Callers: callersWith(t, gateway.Send, gateway.Read), Signer: signer, Apps: []string{"shop"},
		Lanes:   []gateway.Lane{{Name: "transactional", Topic: "push.transactional", ServiceType: "transactional", Mode: gateway.EffectivelyOnce}},
		Limits:  gateway.Limits{Message: 128 << 10, Lines: 1000, Batch: 4 << 20, Query: 1000, Requests: 100, Batches: 4},
		Times:   gateway.Times{Confirm: 50 * time.Millisecond, Status: 5 * time.Second, Kept: 720 * time.Hour, Delay: 2 * time.Hour},
		Metrics: gateway.NewMetrics(nil), Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	g := gateway.New(o)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		before := w.before
		w.mu.Unlock()
		if before == nil || !before(rw, r) {
			g.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(server.Close)
	if w.client, err = New(Options{URL: server.URL + "/", Key: key}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	w.wire.next, w.client.http.Transport = w.client.http.Transport, w.wire
	w.client.pause = func(ctx context.Context, d time.Duration) error {
		w.pauses = append(w.pauses, d)
		return errors.Join(w.end, ctx.Err())
	}
	return w
}

// callersWith are callers of whom the client is one, with these rights.
func callersWith(t *testing.T, rights ...gateway.Right) *gateway.Callers {
	t.Helper()
	hash, err := gateway.KeyHash(key)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(rights)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, []byte(`{"keys": [{"name": "a", "sha256": "`+hash+`", "sender": "orders", "apps": ["shop"], "rights": `+string(list)+`}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	callers, err := gateway.OpenCallers(keys)
	if err != nil {
		t.Fatal(err)
	}
	return callers
}

// Produce implements gateway.Producer.
func (w *world) Produce(r gateway.Record, done func(gateway.Place, error)) {
	var m struct{ ID string }
	if err := json.Unmarshal(r.Value, &m); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.produced = append(w.produced, m.ID)
	ack, place := w.ack, gateway.Place{Offset: int64(len(w.produced))}
	w.mu.Unlock()
	if ack != nil {
		ack(m.ID, done)
		return
	}
	done(place, nil)
}

// Topic implements gateway.Offsets.
func (*world) Topic(context.Context, string) ([16]byte, error) { return [16]byte{1}, nil }

// Progress implements gateway.Offsets.
func (*world) Progress(context.Context, string) (gateway.Progress, error) {
	return gateway.Progress{Topic: [16]byte{1}}, nil
}

// Read implements gateway.Rows.
func (w *world) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := make([][]push.Row, len(ids))
	for i, id := range ids {
		rows[i] = w.rows[id]
	}
	return rows, nil
}

func message() *Message {
	return &Message{App: "shop", ServiceType: "transactional", UserID: "u42", Title: "On its way", Data: map[string]string{"order": "17"}}
}

// A message gets a UUIDv7, is in Kafka, and its receipt says what became of it.
func TestSend(t *testing.T) {
	w := newWorld(t)
	m := message()
	accepted, err := w.client.Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := uuid.Parse(m.ID); err != nil || u.Version() != 7 || accepted.ID != m.ID || accepted.Mode != "effectively_once" || accepted.AcceptedAt.IsZero() || !slices.Equal(w.produced, []string{m.ID}) {
		t.Errorf("%+v of %+v, %v; produced %q", accepted, m, err, w.produced)
	}
	report, err := w.client.Receipt(t.Context(), accepted.Receipt)
	if err != nil || report.Status != "PENDING" || report.Receiver.UserID != "u42" || report.Final {
		t.Errorf("%+v, %v", report, err)
	}
	w.rows[m.ID] = []push.Row{{ID: m.ID, Device: "d", State: push.StateDelivered, At: time.Now(), Platform: push.FCM, UserHash: push.UserHash("u42")}}
	answers, err := w.client.Receipts(t.Context(), []string{accepted.Receipt, "other~x"})
	if err != nil || len(answers) != 2 || answers[0].Report.Status != "DELIVERED" || len(answers[0].Report.Devices) != 1 || answers[1].Report != nil || answers[1].Problem.Code != "no_receipt" {
		t.Errorf("%+v, %v", answers, err)
	}
	if len(w.pauses) > 0 {
		t.Errorf("it paused for %v", w.pauses)
	}
}

// What fails for now is sent again with the same id: an answer that is lost, Kafka away,
// something in between that is no gateway.
func TestSendAgain(t *testing.T) {
	w := newWorld(t)
	var attempts atomic.Int32 // an answer that is cut off puts nothing in order between the requests
	w.before = func(rw http.ResponseWriter, r *http.Request) bool {
		switch attempts.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			http.Error(rw, "<html>bad gateway</html>", http.StatusBadGateway)
		case 3:
			rw.Header().Set("Retry-After", "7")
			rw.Header().Set("Content-Type", "application/problem+json")
			rw.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(rw, `{"status": 503, "code": "busy", "retry_after": 7}`)
		default:
			return false
		}
		return true
	}
	w.ack = func(_ string, done func(gateway.Place, error)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ack = nil; len(w.produced) > 1 {
			t.Error("acknowledged late")
		}
	}
	m := message()
	accepted, err := w.client.Send(t.Context(), m)
	if err != nil || accepted.ID != m.ID || !slices.Equal(w.produced, []string{m.ID, m.ID}) {
		t.Fatalf("%+v, %v; produced %q of %s", accepted, err, w.produced, m.ID)
	}
	if len(w.pauses) != 4 || w.pauses[2] < 7*time.Second || w.pauses[3] < 2*time.Second {
		t.Errorf("it paused for %v", w.pauses)
	}
	for i, least := range []time.Duration{50, 100} {
		if p := w.pauses[i]; p < least*time.Millisecond || p > 2*least*time.Millisecond {
			t.Errorf("pause %d was %v, want %d to %d ms", i, p, least, 2*least)
		}
	}
}

// What is refused is not sent again, and the error says why.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	m := message()
	m.CollapseKey = strings.Repeat("x", 65)
	var p *Problem
	if _, err := w.client.Send(t.Context(), m); !errors.As(err, &p) || p.Code != "field_too_long" || p.Status != 422 || p.Errors[0].Pointer != "/collapse_key" || !strings.Contains(err.Error(), m.ID) {
		t.Errorf("%v", err)
	}
	w.client.o.Key = strings.Repeat("other-", 8)
	if _, err := w.client.Receipt(t.Context(), "x~y"); !errors.As(err, &p) || p.Code != "unauthorized" || strings.Contains(err.Error(), "other-") {
		t.Errorf("%v", err)
	}
	if len(w.pauses) > 0 || len(w.produced) > 0 {
		t.Errorf("it paused for %v, produced %q", w.pauses, w.produced)
	}
}

// What the gateway is not configured for it says once: it would say so for ever.
func TestNotConfigured(t *testing.T) {
	w := newWorld(t)
	var p *Problem
	if _, err := w.client.UserMessages(t.Context(), "u42", UserMessagesQuery{}); !errors.As(err, &p) || p.Status != 501 || p.Code != "not_configured" || len(w.pauses) > 0 {
		t.Errorf("%v after pauses of %v", err, w.pauses)
	}
	for why, p := range map[string]*Problem{"it says when": {Status: 501, RetryAfter: 1}, "a gateway has a bug": {Status: 500}, "something in between": {Status: 502}, "too much": {Status: 429}} {
		if !p.again() {
			t.Errorf("%s: %v is for good", why, p)
		}
	}
}

// At the end of the context it gives up, and names what may be accepted all the same.
func TestGivesUp(t *testing.T) {
	w := newWorld(t)
	w.ack = func(string, func(gateway.Place, error)) {} // never
	w.end = context.DeadlineExceeded
	m := message()
	m.ID = "order-17"
	var g *GivenUpError
	var p *Problem
	_, err := w.client.Send(t.Context(), m)
	if !errors.As(err, &g) || !slices.Equal(g.IDs, []string{"order-17"}) || g.Attempts != 1 || !errors.As(err, &p) || p.Code != "unconfirmed" ||
		!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "order-17") {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client.Send(ended, message()); errors.As(err, &g) || !errors.Is(err, context.Canceled) || len(w.produced) != 1 {
		t.Errorf("with a context that has ended: %v, produced %q", err, w.produced)
	}
	if err := pause(ended, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("the pause ends with %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := pause(soon, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pause beyond the end ends with %v", err)
	}
}

// Of a batch only what was not accepted for now is sent again, and each message has its
// own result.
func TestBatch(t *testing.T) {
	w := newWorld(t)
	ms := []*Message{message(), message(), message(), message()}
	ms[1].App = "" // refused
	ms[2].ID, ms[3].ID = "full", "late"
	tried := map[string]int{}
	w.ack = func(id string, done func(gateway.Place, error)) {
		switch tried[id]++; {
		case id == "full" && tried[id] < 3:
			done(gateway.Place{}, gateway.ErrBufferFull)
		case id == "late" && tried[id] < 2:
		default:
			done(gateway.Place{Offset: 1}, nil)
		}
	}
	results, err := w.client.SendBatch(t.Context(), ms)
	var p *Problem
	if !errors.As(err, &p) || p.Code != "missing_field" || !strings.Contains(err.Error(), ms[1].ID) || len(results) != 4 {
		t.Fatalf("%+v, %v", results, err)
	}
	for _, i := range []int{0, 2, 3} {
		if r := results[i]; r.Err != nil || r.Accepted == nil || r.Accepted.ID != ms[i].ID || r.Accepted.Receipt == "" {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if fmt.Sprint(w.produced) != fmt.Sprint([]string{ms[0].ID, "full", "late", "full", "late", "full"}) {
		t.Errorf("produced %q", w.produced)
	}
	if len(w.pauses) != 2 || w.pauses[0] < 2*time.Second || w.pauses[1] < time.Second {
		t.Errorf("it paused for %v", w.pauses)
	}
}

func TestBatchGivesUp(t *testing.T) {
	w := newWorld(t)
	w.end = context.DeadlineExceeded
	w.ack = func(id string, done func(gateway.Place, error)) {
		if id != "late" {
			done(gateway.Place{Offset: 1}, nil)
		}
	}
	ms := []*Message{message(), message()}
	ms[1].ID = "late"
	results, err := w.client.SendBatch(t.Context(), ms)
	var g *GivenUpError
	if len(results) != 2 || results[0].Accepted == nil || !errors.As(results[1].Err, &g) || !slices.Equal(g.IDs, []string{"late"}) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", results, err)
	}
	w.client.o.Key = strings.Repeat("other-", 8)
	if results, err := w.client.SendBatch(t.Context(), ms); results != nil || !strings.Contains(err.Error(), "unauthorized") {
		t.Errorf("a key that is not known: %+v, %v", results, err)
	}
	for n, ms := range map[int][]*Message{0: nil, MaxBatch + 1: make([]*Message, MaxBatch+1)} {
		if _, err := w.client.SendBatch(t.Context(), ms); err == nil {
			t.Errorf("%d messages are a batch", n)
		}
	}
	large := message()
	large.Body = strings.Repeat("x", maxBatchBytes)
	if _, err := w.client.SendBatch(t.Context(), []*Message{large}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large batch: %v", err)
	}
	if _, err := w.client.Receipts(t.Context(), nil); err == nil {
		t.Error("no receipts are a question")
	}
}

// All fields of the contract for messages have one here, by the same name.
func TestMessagesHaveAllFields(t *testing.T) {
	badge := int32(0)
	m := Message{ID: "n", App: "shop", ServiceType: "transactional", Mode: "exactly_once", UserID: "u", Device: &Token{"apns", strings.Repeat("00", 32), "sandbox"}, Type: "t",
		Priority: "low", PushType: "alert", Title: "t", Body: "b", Image: "i", Video: "v", Sound: "s", Category: "c", ThreadID: "t", Locale: "l", Badge: &badge,
		Data: map[string]string{"a": "b"}, Campaign: "autumn", CollapseKey: "c", ExpiresAt: time.Now().Add(time.Hour), APNS: json.RawMessage(`{}`), FCM: json.RawMessage(`{}`)}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("../docs/message.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var contract struct{ Properties map[string]any }
	if err := json.Unmarshal(schema, &contract); err != nil || len(contract.Properties) < 20 {
		t.Fatal(err, len(contract.Properties))
	}
	for name := range contract.Properties {
		if _, has := fields[name]; !has && name != "sender_id" { // which comes from the key
			t.Errorf("a Message has no %s", name)
		}
	}
	if _, err := newWorld(t).client.Send(t.Context(), &m); err != nil {
		t.Error(err)
	}
}

func TestRetryAfter(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for value, want := range map[string][2]int{"": {0, 0}, "x": {0, 0}, "-1": {0, 0}, "7": {7, 7}, "99999999": {86400, 86400}, in(time.Hour): {3598, 3601}, in(-time.Hour): {0, 0}} {
		if got := retryAfter(value); got < want[0] || got > want[1] {
			t.Errorf("%q is %d s, want %v", value, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	for url, want := range map[string]string{"": "http://HOST", "ftp://x": "http://HOST", "http://": "http://HOST", "http://x?y": "http://HOST", "http://x:y": "address", "http://u:secret@x": "http://HOST", "http://u:secret@x:y": "address"} {
		if _, err := New(Options{URL: url, Key: key}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := New(Options{URL: "http://x"}); err == nil {
		t.Error("there is no key")
	}
}
