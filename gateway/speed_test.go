package gateway

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// atOnce confirms every record at once, and is all that a gateway needs.
type atOnce struct{ Offsets }

func (atOnce) Produce(_ Record, done func(Place, error)) {
	done(Place{Partition: 3, Offset: 1 << 20}, nil)
}

// ending is the writer of one answer after the other.
type ending struct {
	header http.Header
	status int
	bytes  int
}

func (e *ending) Header() http.Header    { return e.header }
func (e *ending) WriteHeader(status int) { e.status = status }
func (e *ending) Write(b []byte) (int, error) {
	e.bytes += len(b)
	return len(b), nil
}

// repeated is a request's body that can be read again.
type repeated struct{ bytes.Reader }

func (*repeated) Close() error { return nil }

// serveAgain measures one request to a gateway whose producer confirms at once, without
// net/http: what a handler costs.
func serveAgain(b *testing.B, path, contentType string, body []byte) {
	b.Helper()
	dir := b.TempDir()
	hash, err := KeyHash(keyOrders)
	if err != nil {
		b.Fatal(err)
	}
	keys := filepath.Join(dir, "keys.json")
	if err := os.WriteFile(keys, []byte(`{"keys": [{"name": "a", "sha256": "`+hash+`", "sender": "orders", "apps": ["shop"], "rights": ["send", "read"]}]}`), 0o600); err != nil {
		b.Fatal(err)
	}
	callers, err := OpenCallers(keys)
	if err != nil {
		b.Fatal(err)
	}
	signer, err := NewSigner(strings.Repeat("s", MinKey))
	if err != nil {
		b.Fatal(err)
	}
	w := &world{topic: [16]byte{1}, rows: map[string][]push.Row{}}
	g := New(Options{Producer: atOnce{}, Offsets: w, Rows: w, Callers: callers, Signer: signer, Apps: []string{"shop"},
		Lanes:   []Lane{{"transactional", "push.transactional", "transactional", EffectivelyOnce}},
		Limits:  Limits{Message: 128 << 10, Lines: 1000, Batch: 4 << 20, Query: 1000, Requests: 100, Batches: 4},
		Times:   Times{Confirm: 5 * time.Second, Status: 5 * time.Second, Kept: 720 * time.Hour, Delay: 2 * time.Hour},
		Metrics: NewMetrics(nil), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	text := &repeated{}
	req, err := http.NewRequest("POST", "http://gateway"+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Body, req.ContentLength = text, int64(len(body))
	req.Header.Set("Authorization", "Bearer "+keyOrders)
	req.Header.Set("Content-Type", contentType)
	e := &ending{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		text.Reset(body)
		clear(e.header)
		g.ServeHTTP(e, req)
		if e.status != http.StatusAccepted {
			b.Fatalf("answered %d", e.status)
		}
	}
	b.ReportMetric(float64(e.bytes)/float64(b.N), "answer-B/op")
}

// message230 is a message of 230 bytes.
func message230(n int) string {
	m := fmt.Sprintf(`{"id":"0199f3c2-7d1a-7c3e-9b1f-%012x","app":"shop","service_type":"transactional","user_id":"u%07d","type":"order_update","title":"On its way","body":"`, n, n)
	return m + strings.Repeat("x", 230-2-len(m)) + `"}`
}

func BenchmarkSend(b *testing.B) {
	b.Run("id", func(b *testing.B) { serveAgain(b, "/v1/messages", "application/json", []byte(message230(1))) })
	b.Run("no id", func(b *testing.B) { serveAgain(b, "/v1/messages", "application/json", []byte(plain)) })
}

// One batch of 500 lines: divide by 500 for a message.
func BenchmarkBatch500(b *testing.B) {
	var body strings.Builder
	for i := range 500 {
		body.WriteString(message230(i) + "\n")
	}
	serveAgain(b, "/v1/messages/batch", "application/x-ndjson", []byte(body.String()))
}
