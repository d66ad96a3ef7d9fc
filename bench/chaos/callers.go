//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/client"
	"github.com/pushfleet/pushfleet/crowd"
)

// callers send messages through gateways, each again with what names it until it is answered
// for good, and some once more. They write down each attempt.
type callers struct {
	doors  []*slot
	caller fleet.Caller
	http   *http.Client
	people *crowd.Crowd
	seed   uint64

	mu    sync.Mutex
	calls map[string]*sent  // guarded by mu; by name
	open  map[string]string // guarded by mu; calls with an attempt under way, and its gateway
	there map[string]bool   // guarded by mu; of open, those with a record of that attempt, or of one before
}

// sent is a call, and what becomes of its notification.
type sent struct {
	invariants.Call
	fate    crowd.Fate
	receipt string // of the latest answer with 202
}

// callPatience bounds an attempt that nobody ends. A gateway that is stopped with SIGSTOP
// answers when it goes on.
const callPatience = 2 * time.Minute

func newCallers(w *world, seed uint64) *callers {
	// One connection for each request: else what is sent on one that the other side has
	// just closed would be sent again by the transport, and be two attempts.
	return &callers{doors: w.doors(), caller: caller(), people: w.people, seed: seed, calls: map[string]*sent{}, open: map[string]string{}, there: map[string]bool{},
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: callPatience}}
}

// run sends n messages at a rate, and returns when each is answered for good.
func (c *callers) run(ctx context.Context, n, rate int) error {
	g := c.people.Records()
	draw := rand.New(rand.NewPCG(c.seed, 0x63616c6c))
	var sending sync.WaitGroup
	defer sending.Wait()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began := time.Now()
	for done := 0; done < n; {
		due := min(n, int(time.Since(began).Seconds()*float64(rate)))
		for done < due {
			r, err := c.request(draw, g, done)
			if err != nil {
				return err
			}
			done += len(r.calls)
			sending.Go(func() { c.send(ctx, r) })
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	sending.Wait()
	return context.Cause(ctx)
}

// request is one that is sent until all its calls are answered for good.
type request struct {
	path    string
	body    []byte
	headers []string
	calls   []*sent
	draw    *rand.Rand // of this one
	more    bool       // it is sent once more when it has been answered
}

// mostLines is how many messages a batch has at most.
const mostLines = 12

// request makes up the next one, whose first call has a number: a single message with its
// own id or an Idempotency-Key, or a batch.
func (c *callers) request(draw *rand.Rand, g *crowd.Records, number int) (*request, error) {
	kind, lines, more, seed := draw.IntN(20), 2+draw.IntN(mostLines-1), draw.IntN(4) == 0, draw.Uint64()
	r := &request{path: "/v1/messages", draw: rand.New(rand.NewPCG(c.seed, seed)), more: more}
	if kind >= 3 { // a single one
		lines = 1
	} else {
		r.path, r.headers = "/v1/messages/batch", []string{"Content-Type", "application/x-ndjson"}
	}
	for i := range lines {
		call, m := c.message(r.draw, g.Next(time.Now()), number+i)
		if lines == 1 && kind < 10 && call.Invalid == "" {
			delete(m, "id")
			r.headers = []string{"Idempotency-Key", fmt.Sprintf("order %s of %d", call.Name, c.seed)}
			if kind < 6 { // one with a time
				r.headers[1] = call.ID
			}
			call.ID = ""
		}
		text, err := json.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("callers: %w", err)
		}
		r.body = append(append(r.body, text...), '\n')
		r.calls = append(r.calls, call)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range r.calls {
		c.calls[call.Name] = call
	}
	return r, nil
}

// invalid is what makes one of some messages one that no gateway takes.
var invalid = []struct {
	what   string
	change func(m map[string]any)
}{
	{"is for an app that nobody has", func(m map[string]any) { m["app"] = "nobodys" }},
	{"has a number as its title", func(m map[string]any) { m["title"] = 5 }},
	{"has no service type", func(m map[string]any) { delete(m, "service_type") }},
	{"is of another sender", func(m map[string]any) { m["sender_id"] = "somebody" }},
	{"is of tomorrow", func(m map[string]any) { m["id"] = crowd.Mint(time.Now().Add(24 * time.Hour)) }},
	{"names no receiver", func(m map[string]any) { delete(m, "user_id") }},
}

// oneInvalid is one of how many messages is invalid.
const oneInvalid = 20

// message makes a message of a record of the crowd. Its data names the call, so that its
// record is known by that whatever id it has.
func (c *callers) message(draw *rand.Rand, r crowd.Record, number int) (*sent, map[string]any) {
	call := &sent{Call: invariants.Call{Name: fmt.Sprintf("call-%d", number), ID: r.ID}, fate: r.Fate}
	var m map[string]any
	if err := json.Unmarshal(r.Value, &m); err != nil {
		panic(fmt.Sprintf("callers: the crowd has made %q: %v", r.Value, err)) // it was asked for no broken ones
	}
	m["service_type"], m["data"] = fleet.Lane, map[string]string{"call": call.Name}
	if which := draw.IntN(oneInvalid * len(invalid)); which < len(invalid) {
		call.Invalid = invalid[which].what
		invalid[which].change(m)
		call.ID, _ = m["id"].(string)
	}
	return call, m
}

// longestPause is the longest time that a caller waits before it tries again.
const longestPause = 2 * time.Second

// send sends a request until each of its calls is answered for good, and then perhaps once
// more.
func (c *callers) send(ctx context.Context, r *request) {
	for pause := 200 * time.Millisecond; ctx.Err() == nil && !c.attempt(ctx, r); pause = min(2*pause, longestPause) {
		hold(ctx, millis(r.draw, pause/4, pause))
	}
	if r.more && ctx.Err() == nil {
		hold(ctx, millis(r.draw, 0, 5*time.Second))
		c.attempt(ctx, r)
	}
}

// answer is that to a message, or to a line of a batch.
type answer struct {
	ID      string `json:"id"`
	Receipt string `json:"receipt"`
	Again   bool   `json:"replayed"` // the receipt is an earlier one
	Code    string `json:"code"`     // of a problem
	Problem *struct {
		Status int    `json:"status"`
		Code   string `json:"code"`
	} `json:"problem"`
	status int
}

// attempt sends a request once, to any gateway, and reports whether all its calls are
// answered for good.
func (c *callers) attempt(ctx context.Context, r *request) (good bool) {
	door := c.doors[r.draw.IntN(len(c.doors))]
	c.begin(r, door.name)
	from := time.Now()
	status, text, err := c.caller.Ask(ctx, c.http, http.MethodPost, "http://"+door.door.Addr()+r.path, r.body, r.headers...)
	answers := answersOf(status, text, err, len(r.calls))
	to := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	good = true
	for i, call := range r.calls {
		a := &answers[i]
		delete(c.open, call.Name)
		delete(c.there, call.Name)
		if ctx.Err() != nil && a.status == 0 {
			return false // it was we who ended it
		}
		call.Sent = append(call.Sent, invariants.Attempt{Gateway: door.name, From: from, To: to, Status: a.status, ID: a.ID, Why: a.Code, Replayed: a.Again})
		if a.status == http.StatusAccepted {
			call.receipt = a.Receipt
		}
		good = good && (a.status == http.StatusAccepted || a.status/100 == 4 && a.status != http.StatusTooManyRequests)
	}
	return good
}

func (c *callers) begin(r *request, gateway string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range r.calls {
		c.open[call.Name] = gateway
	}
}

// answersOf are the answers to the calls of a request.
func answersOf(status int, text []byte, err error, calls int) []answer {
	all := make([]answer, calls)
	var batch struct{ Results []answer }
	switch {
	case err != nil:
	case calls == 1 && status == http.StatusAccepted && !bytes.Contains(text, []byte(`"results"`)):
		if json.Unmarshal(text, &all[0]) == nil {
			all[0].status = status
		}
	case status != http.StatusAccepted && status != http.StatusMultiStatus:
		var a answer
		_ = json.Unmarshal(text, &a) // the status says it, whatever else does
		for i := range all {
			all[i].status, all[i].Code = status, a.Code
		}
	case json.Unmarshal(text, &batch) == nil && len(batch.Results) == calls:
		all = batch.Results
		for i := range all {
			all[i].status = http.StatusAccepted
			if all[i].Problem != nil {
				all[i].status, all[i].ID, all[i].Code = all[i].Problem.Status, "", all[i].Problem.Code
			}
		}
	}
	return all
}

// landed notes that the lane has a record of a call, and says what becomes of it; ok is
// false when there is no such call.
func (c *callers) landed(name string) (fate crowd.Fate, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[name]
	if call == nil {
		return 0, false
	}
	if c.open[name] != "" {
		c.there[name] = true
	}
	return call.fate, true
}

// unanswered is how many calls a gateway has open whose records are in the lane since.
func (c *callers) unanswered(gateway string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.there {
		if c.open[name] == gateway {
			n++
		}
	}
	return n
}

// receipts asks what became of all that was answered 202.
func (c *callers) receipts(ctx context.Context) error {
	asking, err := client.New(client.Options{URL: "http://" + c.doors[0].door.Addr(), Key: c.caller.Key})
	if err != nil {
		return err
	}
	defer asking.Close()
	var with []*sent
	for _, name := range slices.Sorted(maps.Keys(c.calls)) {
		if call := c.calls[name]; call.receipt != "" {
			with = append(with, call)
		}
	}
	for some := range slices.Chunk(with, client.MaxReceipts) {
		names := make([]string, len(some))
		for i, call := range some {
			names[i] = call.receipt
		}
		answers, err := asking.Receipts(ctx, names)
		if err != nil {
			return err
		}
		for i, a := range answers {
			if a.Problem != nil {
				return fmt.Errorf("the receipt of %s: %w", some[i].Name, a.Problem)
			}
			some[i].Told = &invariants.Told{ID: a.Report.ID, Status: a.Report.Status, State: invariants.OutcomeOf(a.Report.State), Final: a.Report.Final}
		}
	}
	return nil
}

// seal ends the ledger, when nothing is under way any more, and writes it to a file, line by
// line.
func (c *callers) seal(path string) (invariants.Ledger[invariants.Call], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var l []invariants.Call
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	for _, name := range slices.Sorted(maps.Keys(c.calls)) {
		call := c.calls[name].Call
		if err := lines.Encode(&call); err != nil {
			return invariants.Ledger[invariants.Call]{}, fmt.Errorf("the ledger of calls: %w", err)
		}
		l = append(l, call)
	}
	return invariants.Seal(l), os.WriteFile(path, out.Bytes(), 0o600)
}
