package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
)

// gatewayKey is the key of sender orders, for the app shop.
const gatewayKey = "orders-orders-orders-orders-orders"

// gatewayFiles gives a configuration a gateway's files.
func gatewayFiles(t *testing.T, c *configs.Config) {
	t.Helper()
	hash, err := gateway.KeyHash(gatewayKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c.Gateway.KeysFile, c.Gateway.ReceiptsFile = filepath.Join(dir, "keys.json"), filepath.Join(dir, "receipts.key")
	for path, text := range map[string]string{
		c.Gateway.KeysFile:     `{"keys": [{"name": "orders", "sha256": "` + hash + `", "sender": "orders", "apps": ["shop"], "rights": ["send", "read", "broadcast"]}]}`,
		c.Gateway.ReceiptsFile: strings.Repeat("r", 40) + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Gateway.Listen, c.Gateway.AdminListen = "127.0.0.1:0", ""
}

func gatewayOptions(c *configs.Config) GatewayOptions {
	o := options(c, io.Discard)
	return GatewayOptions{Config: c, Log: o.Log, Metrics: o.Metrics}
}

// pipes is a listener of connections inside the process, for virtual time.
type pipes struct {
	calls  chan net.Conn // unbuffered, never closed
	closed chan struct{} // closed by Close
	once   sync.Once
}

func newPipes() *pipes { return &pipes{calls: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// client calls a gateway through the pipes.
func (p *pipes) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case p.calls <- theirs:
			return ours, nil
		case <-p.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}}
}

// reply is what a gateway answered.
type reply struct {
	status  int
	id      string
	receipt string
	text    string
	json    map[string]any
}

func call(t *testing.T, c *http.Client, method, url, body string, header ...string) (*reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+gatewayKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	r, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a := &reply{status: r.StatusCode, text: string(text)}
	if err := json.Unmarshal(text, &a.json); err != nil {
		t.Fatalf("%d %s", r.StatusCode, text)
	}
	a.id, _ = a.json["id"].(string)
	a.receipt, _ = a.json["receipt"].(string)
	return a, nil
}

const toTheOwl = `{"app": "shop", "service_type": "transactional", "user_id": "owl", "title": "Hello"}`

// dying is a producer whose gateway dies between Kafka's ack and the answer.
type dying struct {
	gateway.Producer
	acked chan struct{} // capacity 1: one for each ack; never closed
}

// Produce implements gateway.Producer: the ack comes, and nobody hears of it.
func (d dying) Produce(r gateway.Record, _ func(gateway.Place, error)) {
	d.Producer.Produce(r, func(_ gateway.Place, err error) {
		if err == nil {
			d.acked <- struct{}{}
		}
	})
}

// fleetWithGateway is a worker and a registry in virtual time, with a user owl.
func fleetWithGateway(t *testing.T) *night {
	t.Helper()
	c := configs.Default()
	c.Kafka.JoinWithin, c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 0, 2, 1
	c.Dedupe.Capacity, c.Registry.CheckInterval = 100_000, 10*time.Minute
	c.Admin.Listen, c.Registry.Listen = "", ""
	c.Lanes = c.Lanes[1:2]
	gatewayFiles(t, c)
	n := newNight(t, apnsApp(t, c, "shop"), c)
	n.users(func(client *users.Client) error {
		_, err := client.RegisterDevice(t.Context(), "owl", push.Device{Platform: push.APNS, Environment: push.Production, App: "shop",
			Token: fmt.Sprintf("%064x", "owl"), RegisteredAt: time.Now().Add(-time.Hour)})
		return err
	})
	return n
}

// startGateway starts one gateway of the fleet, and returns its client.
func (n *night) startGateway(change ...func(*GatewayOptions)) (client *http.Client, stop func()) {
	o, p := gatewayOptions(n.config), newPipes()
	o.Dial, o.OpenStatus = n.options.Dial, n.options.OpenStatus
	o.Listen = func() (net.Listener, error) { return p, nil }
	for _, c := range change {
		c(&o)
	}
	return p.client(), n.start(func(ctx context.Context) error { return RunGateway(ctx, o) })
}

// A gateway is killed between Kafka's ack and its answer, and the client repeats at
// another one: the same id, and one push. So for an id of its own, for an
// Idempotency-Key, and for one with a time; and again some minutes later.
func TestAGatewayDiesBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Repeats = 0 // the workers alone find that it is a copy
		n.worker()
		time.Sleep(time.Minute) // the registry has built what the worker waits for
		acked := make(chan struct{}, 1)
		doomed, kill := n.startGateway(func(o *GatewayOptions) {
			o.WrapProducer = func(p gateway.Producer) gateway.Producer { return dying{p, acked} }
			drain := *o.Config
			drain.Gateway.Drain = time.Millisecond // it is killed: nobody waits for its answers
			o.Config = &drain
		})
		healthy, _ := n.startGateway()
		minted := func(last int) string {
			ms := time.Now().UnixMilli()
			return fmt.Sprintf("%08x-%04x-7c3e-9b1f-2a6c5d4e3f%02x", ms>>16, ms&0xffff, last)
		}
		sends := []struct {
			why, body string
			header    []string
		}{
			{"an id of its own", `{"id": "` + minted(1) + `", ` + toTheOwl[1:], nil},
			{"a key", toTheOwl, []string{"Idempotency-Key", "order-17"}},
			{"a key with a time", toTheOwl, []string{"Idempotency-Key", `"` + minted(2) + `"`}},
		}
		var lost sync.WaitGroup
		for _, s := range sends {
			lost.Go(func() {
				if a, err := call(t, doomed, "POST", "http://gateway/v1/messages", s.body, s.header...); err == nil {
					t.Errorf("%s: it was answered %d %s", s.why, a.status, a.text)
				}
			})
			<-acked
		}
		kill()
		lost.Wait()

		ids := map[string]string{}
		for round, wait := range []time.Duration{10 * time.Minute, time.Second} {
			for _, s := range sends {
				a, err := call(t, healthy, "POST", "http://gateway/v1/messages", s.body, s.header...)
				if err != nil || a.status != http.StatusAccepted {
					t.Fatalf("%s: %v %+v", s.why, err, a)
				}
				if first := ids[s.why]; round > 0 && a.id != first {
					t.Errorf("%s: the id is %s and then %s", s.why, first, a.id)
				}
				ids[s.why] = a.id
				time.Sleep(30 * time.Second)
				got, err := call(t, healthy, "GET", "http://gateway/v1/receipts/"+a.receipt, "")
				if err != nil || got.status != http.StatusOK || got.json["status"] != "DELIVERED" || got.json["final"] != true {
					t.Errorf("%s: its receipt says %v %+v", s.why, err, got)
				}
				if _, pushed := n.became(a.id); len(pushed) != 1 {
					t.Errorf("%s, round %d: %s was pushed at %v, want once", s.why, round, a.id, pushed)
				}
			}
			time.Sleep(wait)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.pushed) != len(sends) {
			t.Errorf("pushed were %v", n.pushed)
		}
	})
}

// A message waits in Kafka, is worked on and ends: PENDING as long as no worker has
// passed it, then what became of it.
func TestAReceiptFollowsItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		client, _ := n.startGateway()
		time.Sleep(time.Minute)
		ask := func(receipt string) *reply {
			t.Helper()
			a, err := call(t, client, "GET", "http://gateway/v1/receipts/"+receipt, "")
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		sent, err := call(t, client, "POST", "http://gateway/v1/messages", toTheOwl)
		if err != nil || sent.status != http.StatusAccepted {
			t.Fatalf("%v %+v", err, sent)
		}
		nobody, err := call(t, client, "POST", "http://gateway/v1/messages", strings.Replace(toTheOwl, "owl", "nobody", 1))
		if err != nil {
			t.Fatal(err)
		}
		if a := ask(sent.receipt); a.json["status"] != "PENDING" || a.json["final"] != false {
			t.Errorf("no worker has come yet: %s", a.text)
		}
		n.worker()
		time.Sleep(time.Minute)
		if a := ask(sent.receipt); a.json["status"] != "DELIVERED" || len(a.json["devices"].([]any)) != 1 {
			t.Errorf("it was pushed: %s", a.text)
		}
		if a := ask(nobody.receipt); a.json["status"] != "FAILED" || a.json["state"] != "SUPPRESSED" || a.json["reason"] != "no_device" {
			t.Errorf("to a user without a device: %s", a.text)
		}
		// The same id for another user ends under its place.
		reused, err := call(t, client, "POST", "http://gateway/v1/messages", `{"id": "`+sent.id+`", `+strings.Replace(toTheOwl, "owl", "nobody", 1)[1:])
		if err != nil || reused.status != http.StatusAccepted {
			t.Fatalf("%v %+v", err, reused)
		}
		time.Sleep(time.Minute)
		if a := ask(reused.receipt); a.json["status"] != "FAILED" || a.json["reason"] != "id_reused" {
			t.Errorf("the id of another user's: %s", a.text)
		}
	})
}

// Kafka goes away: 503 within 5 s, and what was answered 202 before is in it. When it is
// back, a repeat is accepted.
func TestAGatewayWithoutKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		var away struct {
			sync.Mutex
			is    bool
			conns []net.Conn
		}
		client, _ := n.startGateway(func(o *GatewayOptions) {
			dial := o.Dial
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				away.Lock()
				defer away.Unlock()
				if away.is {
					return nil, errors.New("connection refused")
				}
				c, err := dial(ctx, network, address)
				away.conns = append(away.conns, c)
				return c, err
			}
		})
		time.Sleep(time.Minute)
		first, err := call(t, client, "POST", "http://gateway/v1/messages", toTheOwl)
		if err != nil || first.status != http.StatusAccepted {
			t.Fatalf("%v %+v", err, first)
		}
		away.Lock()
		away.is = true
		for _, c := range away.conns {
			if c != nil {
				_ = c.Close()
			}
		}
		away.Unlock()
		time.Sleep(30 * time.Second) // nothing that is known of Kafka is fresh any more
		start := time.Now()
		refused, err := call(t, client, "POST", "http://gateway/v1/messages", toTheOwl)
		if took := time.Since(start); err != nil || refused.status != http.StatusServiceUnavailable || took > 5*time.Second {
			t.Fatalf("after %v: %v %+v", took, err, refused)
		}
		time.Sleep(time.Minute)
		away.Lock()
		away.is = false
		away.Unlock()
		time.Sleep(time.Minute)
		again, err := call(t, client, "POST", "http://gateway/v1/messages", `{"id": "`+refused.id+`", `+toTheOwl[1:])
		if err != nil || again.status != http.StatusAccepted || again.id != refused.id {
			t.Fatalf("%v %+v", err, again)
		}
		n.worker()
		time.Sleep(2 * time.Minute)
		for _, id := range []string{first.id, again.id} {
			if rows, pushed := n.became(id); len(pushed) != 1 || !slices.Equal(rows, []string{"DELIVERED"}) {
				t.Errorf("%s: %q, pushed %v", id, rows, pushed)
			}
		}
	})
}

// The status store and Redis away: sends go on, and receipts are 503 until it is there.
// What is not ready is told.
func TestAGatewayWithoutItsStores(t *testing.T) {
	c, _, store := servers(t)
	gatewayFiles(t, c)
	c.Apps = []configs.App{{Name: "shop"}}
	c.Gateway.AdminListen, c.Redis.Addresses = "127.0.0.1:0", []string{"127.0.0.1:1"}
	surroundings := goleak.IgnoreCurrent()
	var mu sync.Mutex
	away := true // guarded by mu
	o := gatewayOptions(c)
	o.OpenStatus = func(context.Context, status.Options) (Status, error) {
		mu.Lock()
		defer mu.Unlock()
		if away {
			return nil, errors.New("connection refused")
		}
		return store, nil
	}
	at := make(chan string, 1) // buffered, capacity 1; never closed
	o.Listening = func(a net.Addr) { at <- "http://" + a.String() }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1) // buffered, capacity 1; never closed
	go func() { ended <- RunGateway(ctx, o) }()
	url := <-at
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	sent, err := call(t, client, "POST", url+"/v1/messages", toTheOwl)
	if err != nil || sent.status != http.StatusAccepted {
		t.Fatalf("%v %+v", err, sent)
	}
	ask := func() *reply {
		a, err := call(t, client, "GET", url+"/v1/receipts/"+sent.receipt, "")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(); a.status != http.StatusServiceUnavailable || a.json["code"] != "status_away" {
		t.Errorf("its receipt: %d %s", a.status, a.text)
	}
	mu.Lock()
	away = false
	mu.Unlock()
	for ask().status != http.StatusOK {
		time.Sleep(10 * time.Millisecond) // until the next attempt to connect
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if n := store.closed.Load(); n != 1 {
		t.Errorf("the status store was closed %d times", n)
	}
	goleak.VerifyNone(t, surroundings)
}

// Two gateways and one sender, who may send 1,000 a second and sends half as much again: never
// more is accepted, and hardly less.
func TestTwoGatewaysLimitASender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Limits.Default = configs.SenderLimits{Second: 1000}
		const each, seconds = 25, 5
		var counting sync.Mutex // guards the next
		accepted := map[int64]float64{}
		var sending, stopping sync.WaitGroup
		defer stopping.Wait()
		for g := range 2 {
			client, stop := n.startGateway()
			defer stopping.Go(stop)
			sending.Go(func() {
				time.Sleep(time.Minute) // Kafka is found
				var under sync.WaitGroup
				for i := range seconds * 30 {
					var lines strings.Builder
					for k := range each {
						fmt.Fprintf(&lines, `{"id": "g%d-%d-%d", "app": "shop", "service_type": "transactional", "user_id": "owl", "title": "x"}`+"\n", g, i, k)
					}
					under.Go(func() {
						second := time.Now().Unix()
						a, err := call(t, client, "POST", "http://gateway/v1/messages/batch", lines.String(), "Content-Type", "application/x-ndjson")
						if err != nil || a.status != http.StatusAccepted && a.status != http.StatusMultiStatus {
							t.Errorf("%+v, %v", a, err)
							return
						}
						counting.Lock()
						defer counting.Unlock()
						got, _ := a.json["accepted"].(float64)
						accepted[second] += got
					})
					time.Sleep(time.Second / 30)
				}
				under.Wait()
			})
		}
		sending.Wait()
		full := 0
		for second, got := range accepted {
			// A batch at the end of a second may be admitted in the next one.
			if got > 1000+2*each {
				t.Errorf("second %d: %v were accepted", second, got)
			}
			if got >= 950 {
				full++
			}
		}
		if full < seconds-1 {
			t.Errorf("in %d of %d seconds 950 were accepted: %v", full, seconds, accepted)
		}
	})
}

// The examples of docs/gateway.md, as they stand there, in a shell with curl: each is
// answered with what the page says, as far as it can be the same.
func TestTheExamplesOfTheDocumentation(t *testing.T) {
	c, _, store := servers(t)
	gatewayFiles(t, c)
	c.Apps = []configs.App{{Name: "shop"}}
	c.Gateway.Limits.Default = configs.SenderLimits{Second: 100, Hour: 1000}
	o := gatewayOptions(c)
	o.OpenStatus = func(context.Context, status.Options) (Status, error) { return store, nil }
	at := make(chan string, 1) // buffered, capacity 1; never closed
	o.Listening = func(a net.Addr) { at <- "http://" + a.String() }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1) // buffered, capacity 1; never closed
	go func() { ended <- RunGateway(ctx, o) }()
	defer func() {
		stop()
		<-ended
	}()
	text, err := os.ReadFile("../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GATEWAY="+<-at, "KEY="+gatewayKey)
	ran, receipt := 0, ""
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		script, rest, _ := strings.Cut(block, "```")
		if !strings.Contains(script, "curl") {
			continue
		}
		got := example(t, script, rest, append(env, "RECEIPT="+receipt))
		ran++
		if receipt == "" {
			// What a worker would write.
			receipt, _ = got["receipt"].(string)
			id, _ := got["id"].(string)
			if err := store.Write(t.Context(), []push.Row{{ID: id, Device: "q83vASNFZ4mrze8B", State: push.StateDelivered, At: time.Now(), Platform: push.FCM, UserHash: push.UserHash("u42")}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ran != 6 {
		t.Errorf("the page has %d examples with curl", ran)
	}
}

func parsed(t *testing.T, text string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}

// like wants an answer to have the members of the page's, and the values of those that
// do not differ from call to call.
func like(t *testing.T, what string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		m, _ := got.(map[string]any)
		for name, value := range want {
			if _, is := m[name]; !is {
				t.Errorf("%s\nhas no %s: %v", what, name, got)
				continue
			}
			if !slices.Contains([]string{"id", "receipt", "accepted_at", "updated_at", "expires_at", "at", "next", "meaning", "used", "remaining", "reset", "reset_at"}, name) {
				like(t, what, m[name], value)
			}
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			t.Errorf("%s\nhas %v, want %v", what, got, want)
			return
		}
		for i := range want {
			like(t, what, list[i], want[i])
		}
	default:
		if got != want {
			t.Errorf("%s\nhas %v, want %v", what, got, want)
		}
	}
}

// nextHeading begins a part of a page.
var nextHeading = regexp.MustCompile(`(?m)^##+ `)

// examples runs those of one part of a page, from its heading to the next one, that stand in
// blocks of bash, want in all, and holds what is answered against what the page says. RECEIPT is the first answer's, for which
// first is called.
func examples(t *testing.T, page, part string, want int, first func(receipt string), env ...string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+part+"\n")
	section := nextHeading.Split(rest, 2)[0]
	blocks := strings.Split(section, "```bash\n")[1:]
	if len(blocks) != want {
		t.Fatalf("%s has %d examples under %q, want %d", page, len(blocks), part, want)
	}
	receipt := ""
	for _, block := range blocks {
		script, rest, _ := strings.Cut(block, "```")
		got := example(t, script, rest, append(append(os.Environ(), env...), "RECEIPT="+receipt))
		if receipt == "" {
			receipt, _ = got["receipt"].(string)
			first(receipt)
		}
	}
}

// example runs a script of a page, and holds what is answered against what stands behind it.
func example(t *testing.T, script, behind string, env []string) map[string]any {
	t.Helper()
	_, says, answered := strings.Cut(behind, "```json\n")
	if !answered {
		t.Fatalf("no answer stands behind\n%s", script)
	}
	says, _, _ = strings.Cut(says, "```")
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s\n%s", err, &errs, out, script)
	}
	got := parsed(t, string(out))
	like(t, script, got, parsed(t, says))
	return got
}
