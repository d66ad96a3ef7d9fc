package worker

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
)

const webhookKey = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver is an endpoint over HTTPS that checks what it is posted.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	bodies map[string]string // guarded by mu; by webhook-id
	times  map[string]int    // guarded by mu; how often each came
	wrong  []string          // guarded by mu
	calls  int               // guarded by mu
	answer func(call int, body string) int
}

func newReceiver(t *testing.T, answer func(call int, body string) int) *receiver {
	t.Helper()
	r := &receiver{bodies: make(map[string]string), times: make(map[string]int), answer: answer}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	r.mu.Lock()
	r.calls++
	id := q.Header.Get("webhook-id")
	key, _ := base64.StdEncoding.DecodeString(webhookKey)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, q.Header.Get("webhook-timestamp"), body)
	if err != nil || q.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		r.wrong = append(r.wrong, id+" is not signed")
	}
	status := r.answer(r.calls, string(body))
	if status/100 == 2 {
		if before, again := r.bodies[id]; again && before != string(body) {
			r.wrong = append(r.wrong, id+" has two bodies")
		}
		r.bodies[id] = string(body)
		r.times[id]++
	}
	r.mu.Unlock()
	w.WriteHeader(status)
}

func (r *receiver) has() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

// webhookFleet is a broker with events for senders, and their endpoints in a file.
func webhookFleet(t *testing.T, endpoints map[string]string) (*configs.Config, kafka.Options) {
	t.Helper()
	c := configs.Default()
	c.Gateway.Webhooks.AdminListen, c.Gateway.Webhooks.File = "", filepath.Join(t.TempDir(), "webhooks.json")
	var file bytes.Buffer
	for sender, url := range endpoints {
		c.Gateway.Webhooks.Senders = append(c.Gateway.Webhooks.Senders, sender)
		if file.Len() > 0 {
			file.WriteString(",")
		}
		fmt.Fprintf(&file, `{"sender": %q, "url": %q, "secrets": ["whsec_%s"]}`, sender, url, webhookKey)
	}
	if err := os.WriteFile(c.Gateway.Webhooks.File, fmt.Appendf(nil, `{"webhooks": [%s]}`, &file), 0o600); err != nil {
		t.Fatal(err)
	}
	var topics []embedded.Topic
	for _, s := range wiring.Topics(c) {
		topics = append(topics, embedded.Topic{Name: s.Name, Partitions: 2, Compacted: s.Configs["cleanup.policy"] == "compact"})
	}
	k, err := embedded.StartKafka(topics...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c.Kafka.Brokers = k.Addrs()
	c.Gateway.Webhooks.Timeout = time.Minute // no call is cut off, however busy the machine is
	return c, kafka.Options{Brokers: c.Kafka.Brokers}
}

// tellEnds writes n events for a sender, and what is no event.
func tellEnds(t *testing.T, o kafka.Options, sender string, n int) {
	t.Helper()
	w, err := kafka.NewWriter(o, kafka.WriterOptions{Topic: kafka.WebhooksTopic(sender)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var records []kafka.Record
	for i := range n {
		records = append(records, kafka.Record{Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, `{"type":"notification.ended","data":{"id":"%s-%d"}}`, sender, i)})
	}
	if err := w.Append(t.Context(), append(records, kafka.Record{Key: []byte("x"), Value: []byte("no JSON")})); err != nil {
		t.Fatal(err)
	}
}

// startWebhooks runs a process until the test ends, or stop is called. kill cuts it off from Kafka
// first, so that it commits nothing more.
func startWebhooks(t *testing.T, c *configs.Config, r *receiver) (stop, kill func()) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	var dead atomic.Bool
	var mu sync.Mutex
	var conns []net.Conn
	o := WebhooksOptions{Config: c, Log: options(c, io.Discard).Log, Metrics: options(c, io.Discard).Metrics, Roots: roots, CheckAddress: func(netip.Addr) error { return nil },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dead.Load() {
				return nil, errors.New("killed")
			}
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
			}
			return conn, err
		}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunWebhooks(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop, func() {
		dead.Store(true)
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		stop()
	}
}

// deadLetters reads n of them: their reasons by their keys.
func deadLetters(t *testing.T, o kafka.Options, n int) map[string]string {
	t.Helper()
	f, err := kafka.NewFollower(o, kafka.DeadWebhooksTopic, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reasons := make(map[string]string)
	for len(reasons) < n {
		records, err := f.Poll(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			reasons[string(r.Value)] = r.Headers["sender"] + " " + r.Headers["reason"]
		}
	}
	return reasons
}

// A process is killed between deliveries and their commit, and the endpoint fails now and
// then: the next one delivers all, what came twice with the same id, while another
// sender's endpoint is dead and a third one's wants no more.
func TestWebhooks(t *testing.T) {
	r := newReceiver(t, func(call int, body string) int {
		if bytes.Contains([]byte(body), []byte(`"gone-`)) {
			return http.StatusGone
		}
		if call%10 == 3 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	c, o := webhookFleet(t, map[string]string{"orders": r.URL + "/orders", "auth": "https://" + nobody.Addr().String(), "gone": r.URL + "/gone"})
	c.Kafka.SessionTimeout = 6 * time.Second // of the one that is killed
	const n = 300
	tellEnds(t, o, "orders", n)
	tellEnds(t, o, "auth", 5)
	tellEnds(t, o, "gone", 5)
	_, kill := startWebhooks(t, c, r)
	await(t, "some deliveries", func() bool { return r.has() > n/10 })
	kill()
	first := r.has()
	stop, _ := startWebhooks(t, c, r)
	await(t, "all deliveries", func() bool { return r.has() == n })
	got := deadLetters(t, o, 6) // what is no event is alike
	if got["no JSON"] == "" || got[`{"type":"notification.ended","data":{"id":"gone-3"}}`] != "gone gone" {
		t.Errorf("dead letters %v", got)
	}
	stop()
	if len(r.wrong) > 0 {
		t.Errorf("%v", r.wrong)
	}
	twice := 0
	for _, times := range r.times {
		if times > 1 {
			twice++
		}
	}
	t.Logf("%d delivered before the kill, %d of %d twice", first, twice, n)
	for value := range got {
		if bytes.Contains([]byte(value), []byte(`"auth-`)) {
			t.Errorf("dead letter %s of an endpoint that is only away", value)
		}
	}
}

// A process that stops in order repeats nothing.
func TestWebhooksStopInOrder(t *testing.T) {
	r := newReceiver(t, func(int, string) int { return http.StatusOK })
	c, o := webhookFleet(t, map[string]string{"orders": r.URL})
	tellEnds(t, o, "orders", 50)
	stop, _ := startWebhooks(t, c, r)
	await(t, "all deliveries", func() bool { return r.has() == 50 })
	deadLetters(t, o, 1)
	stop()
	before := r.calls
	startWebhooks(t, c, r)
	tellEnds(t, o, "orders", 51) // 50 of them are the same again, as their ids are
	await(t, "one more", func() bool { return r.has() == 51 })
	await(t, "those of the second round", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.calls >= before+51 })
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, times := range r.times {
		if times > 2 {
			t.Errorf("%s came %d times", id, times)
		}
	}
	if r.calls != before+51 {
		t.Errorf("%d calls for 51 events", r.calls-before)
	}
}

// A file that cannot be used ends the process at once, as wrong configuration.
func TestWebhooksWithoutAFile(t *testing.T) {
	c := configs.Default()
	c.Gateway.Webhooks.Senders, c.Gateway.Webhooks.File = []string{"orders"}, filepath.Join(t.TempDir(), "none")
	o := options(c, io.Discard)
	var wrong *ConfigError
	if err := RunWebhooks(t.Context(), WebhooksOptions{Config: c, Log: o.Log, Metrics: o.Metrics}); !errors.As(err, &wrong) {
		t.Errorf("ended with %v", err)
	}
}
