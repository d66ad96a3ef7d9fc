//go:build linux

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// Arguments that make this test binary a process of callers, or one of the servers.
const (
	asCaller = "call"
	asServer = "serve"
)

func TestMain(m *testing.M) {
	fleettest.Roles(m, map[string]func(context.Context, []string) error{
		asServer: func(ctx context.Context, args []string) error { return servers.Serve(ctx, args, os.Stderr) },
		asCaller: func(ctx context.Context, _ []string) error { return Call(ctx, os.Stdin, os.Stdout) },
	})
}

// small is a run of a few seconds, in which nobody measures anything.
func small(t *testing.T) Options {
	programs, err := fleet.Build(t.Context(), t.TempDir(), false, "pushgateway")
	if err != nil {
		t.Fatal(err)
	}
	return Options{Seconds: 1, WarmUp: 0.2, Rounds: 2, Connections: 8, Batches: 2, Lines: 50, Queries: 2, Receipts: 60, Each: 20, Idle: 50, Partitions: 2,
		Gateway: programs.Gateway, Caller: []string{os.Args[0], asCaller}, Serve: []string{os.Args[0], asServer}, Profiles: t.TempDir(), Progress: t.Logf}
}

// check holds what every run has.
func (r *Result) check(t *testing.T, o *Options, loads map[string]*Load) {
	t.Helper()
	for name, l := range loads {
		if l == nil || l.Rounds < 1 || l.Rounds > o.Rounds || o.Embedded && (l.Rounds > 1 || l.Compiling > 0) || l.Rate <= 0 || l.GatewayCPU <= 0 || l.CallerCPU < 0 || l.KafkaCPU < 0 || l.Allocations <= 0 || l.Bytes <= 0 || l.P50 != nil && *l.P99 < *l.P50 {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if r.Acknowledged < int64(o.Idle) || r.IdleRSS <= 0 || r.PeakRSS < r.IdleRSS || r.StartRSS <= 0 || len(r.Bars) == 0 {
		t.Errorf("%+v", r)
	}
	if taken, err := filepath.Glob(filepath.Join(o.Profiles, "gateway-*.pprof")); err != nil || len(taken) != len(loads) {
		t.Errorf("profiles %q, %v", taken, err)
	}
}

// TestEmbeddedRun: all but receipts is measured without anything to fetch.
func TestEmbeddedRun(t *testing.T) {
	o := small(t)
	o.Embedded = true
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	r.check(t, &o, map[string]*Load{"single": r.Single, "half": r.SingleHalf, "batch": r.Batch})
	if r.Query != nil || !r.Embedded {
		t.Errorf("%+v", r)
	}
}

// TestRealRun: the same with real servers, and with receipts.
func TestRealRun(t *testing.T) {
	localtest.Require(t)
	o := small(t)
	o.Subscribers = 3000
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	r.check(t, &o, map[string]*Load{"single": r.Single, "half": r.SingleHalf, "batch": r.Batch, "query": r.Query})
	if r.Single.Rounds != o.Rounds || r.Single.Compiling < young {
		t.Errorf("with young servers %+v", r.Single)
	}
	if f := r.Fanout; f == nil || f.Subscribers != 3000 || f.Rate <= 0 || f.FanoutCPU <= 0 || f.CassandraCPU <= 0 || f.Allocations <= 0 || f.PeakRSS <= 0 || f.Rounds < 1 || f.Rounds > o.Rounds {
		t.Errorf("a fan-out: %+v", f)
	}
}

// Rounds end when servers are not young any more, or when there were enough.
func TestRounds(t *testing.T) {
	o := Options{Rounds: 3, Progress: t.Logf}
	for _, tt := range []struct {
		round     int
		compiling float64
		again     bool
	}{{1, 1.5, true}, {2, 0.1, true}, {2, 0.09, false}, {3, 1.5, false}} {
		if o.again(tt.round, tt.compiling) != tt.again {
			t.Errorf("after round %d with %v cores again: want %t", tt.round, tt.compiling, tt.again)
		}
	}
}

// The configuration is one that a gateway takes, with a lane for the messages, and the
// caller's key is one that may send them.
func TestConfiguration(t *testing.T) {
	w := &world{dir: t.TempDir(), caller: newCaller(callerKey)}
	defer w.close()
	o := Standard()
	if err := errors.Join(fleet.WriteCallers(w.dir, w.caller), w.openFleet(&o, local.Addresses{Kafka: "127.0.0.1:1", Redis: "127.0.0.1:1", Cassandra: "127.0.0.1:1"})); err != nil {
		t.Fatal(err)
	}
	if err := w.Config.CheckGateway(); err != nil {
		t.Error(err)
	}
	if _, err := gateway.OpenCallers(w.Config.Gateway.KeysFile); err != nil {
		t.Error(err)
	}
	if w.Config.Lane(serviceType) == nil {
		t.Errorf("no lane %s", serviceType)
	}
	d := configs.Default().Gateway
	if g := w.Config.Gateway; o.Connections > g.Requests || o.Batches > g.Batches || o.Queries > g.Batches || o.Idle > g.Connections || g.Requests != d.Requests || g.Linger != d.Linger {
		t.Errorf("it is not run with the defaults, or not within them: %+v", g)
	}
}

func TestOptions(t *testing.T) {
	good := Standard()
	good.Gateway, good.Caller = "x", []string{"y"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"0 s after": func(o *Options) { o.Seconds = 0 }, "NaN s after": func(o *Options) { o.Seconds = math.NaN() }, "-1 s of warm-up": func(o *Options) { o.WarmUp = -1 }, "0 rounds": func(o *Options) { o.Rounds = 0 }, "101 rounds": func(o *Options) { o.Rounds = 101 },
		"4001 connections": func(o *Options) { o.Connections = 4001 }, "0 connections for batches": func(o *Options) { o.Batches = 0 },
		"17 for queries": func(o *Options) { o.Queries = 17 }, "0 lines": func(o *Options) { o.Lines = 0 }, "1001 receipts": func(o *Options) { o.Each = 1001 },
		"999 receipts": func(o *Options) { o.Receipts = 999 }, "-1 idle": func(o *Options) { o.Idle = -1 }, "0 partitions": func(o *Options) { o.Partitions = 0 },
		"the programs": func(o *Options) { o.Gateway = "" },
	} {
		o := good
		spoil(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// calls has callers call a server until they end.
func calls(t *testing.T, h http.HandlerFunc, s spec) ([]event, error) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	s.Address, s.Key = strings.TrimPrefix(server.URL, "http://"), "k"
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	failed := Call(t.Context(), bytes.NewReader(text), &out)
	var all []event
	for dec := json.NewDecoder(&out); ; {
		var e event
		if err := dec.Decode(&e); err != nil {
			return all, failed
		}
		all = append(all, e)
	}
}

// gatewayOf answers as a gateway does, and tells each the messages.
func gatewayOf(t *testing.T, each func(m *push.Message)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer k" {
			t.Error(err, r.Header)
		}
		var results []string
		for line := range bytes.Lines(body) {
			if len(line) < messageSize || len(line) > messageSize+1 {
				t.Errorf("a message has %d bytes", len(line))
			}
			var m push.Message
			if d := decode.Message(line, &m); d != nil {
				t.Errorf("%s: %v", line, d)
			}
			each(&m)
			results = append(results, `{"id":"`+m.ID+`","receipt":"`+m.ID+`~of-`+m.UserID+`"}`)
		}
		answer := strings.Join(results, ",")
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, answer[:len(answer)/2])
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, answer[len(answer)/2:])
	}
}

// What callers say was acknowledged is what the server has, each message with a UUIDv7 of
// its own, and the receipts go with their users.
func TestCallers(t *testing.T) {
	for _, s := range []spec{
		{Kind: single, Connections: 3, Measure: 500 * time.Millisecond, WarmUp: 20 * time.Millisecond, Lines: 1},
		{Kind: single, Connections: 3, Measure: 500 * time.Millisecond, Rate: 300, Lines: 1},
		{Kind: batch, Connections: 2, Measure: 500 * time.Millisecond, Lines: 1000, Keep: 1500},
		{Kind: idle, Connections: 300, Lines: 1},
	} {
		var mu sync.Mutex
		seen := map[string]string{} // users by ids
		all, err := calls(t, gatewayOf(t, func(m *push.Message) {
			u, err := uuid.Parse(m.ID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 || seen[m.ID] != "" {
				t.Errorf("id %q, %v", m.ID, err)
			}
			if sec, nsec := u.Time().UnixTime(); time.Since(time.Unix(sec, nsec)).Abs() > time.Minute {
				t.Errorf("id %q is of %v", m.ID, time.Unix(sec, nsec))
			}
			seen[m.ID] = m.UserID
		}), s)
		if err != nil || len(all) == 0 || all[len(all)-1].Figures == nil {
			t.Fatalf("%s: %+v, %v", s.Kind, all, err)
		}
		f := all[len(all)-1].Figures
		if f.Messages != int64(len(seen)) || f.Messages == 0 || !all[0].Begins {
			t.Errorf("%s: %d were acknowledged, %d sent: %+v", s.Kind, f.Messages, len(seen), all)
		}
		if s.Kind == idle && f.Messages != int64(s.Connections) {
			t.Errorf("%d connections have sent %d", s.Connections, f.Messages)
		}
		if s.Kind != idle && (len(all) != 3 || !all[1].Ends || f.Requests == 0 || f.Requests*int64(s.Lines) > f.Messages || f.P50 == nil || *f.P99 < *f.P50) {
			t.Errorf("%s: %+v", s.Kind, all)
		}
		if due := int64(s.Rate*s.Measure.Seconds()) + 1; s.Rate > 0 && f.Messages > due {
			t.Errorf("%d messages, %d were due", f.Messages, due)
		}
		if len(f.Kept) != min(s.Keep, len(seen)) {
			t.Errorf("%d were kept", len(f.Kept))
		}
		for _, k := range f.Kept {
			if id, user, _ := strings.Cut(k.Receipt, "~of-"); seen[id] != k.User || user != k.User {
				t.Errorf("%+v is of %s", k, seen[id])
			}
		}
	}
}

// stores are what a gateway needs, in memory.
type stores struct {
	written atomic.Int64
	rows    map[string][]push.Row // not written while it is read
}

func (s *stores) Produce(_ gateway.Record, done func(gateway.Place, error)) {
	done(gateway.Place{Offset: s.written.Add(1)}, nil)
}
func (*stores) Topic(context.Context, string) ([16]byte, error) { return [16]byte{1}, nil }
func (*stores) Progress(context.Context, string) (gateway.Progress, error) {
	return gateway.Progress{Topic: [16]byte{1}}, nil
}
func (s *stores) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	rows := make([][]push.Row, len(ids))
	for i, id := range ids {
		rows[i] = s.rows[id]
	}
	return rows, nil
}

// A gateway takes what callers send, and answers what they ask about it once it is
// delivered, and not before.
func TestCallersOfAGateway(t *testing.T) {
	w := &world{dir: t.TempDir(), caller: newCaller("k" + strings.Repeat("-", gateway.MinKey))}
	if err := fleet.WriteCallers(w.dir, w.caller); err != nil {
		t.Fatal(err)
	}
	keys, err := gateway.OpenCallers(filepath.Join(w.dir, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gateway.NewSigner(strings.Repeat("s", gateway.MinKey))
	if err != nil {
		t.Fatal(err)
	}
	s := &stores{rows: map[string][]push.Row{}}
	g := gateway.New(gateway.Options{Producer: s, Offsets: s, Rows: s, Callers: keys, Signer: signer, Apps: []string{app},
		Lanes:   []gateway.Lane{{Name: serviceType, Topic: "push." + serviceType, ServiceType: serviceType, Mode: gateway.AtLeastOnce}},
		Limits:  gateway.Limits{Message: 128 << 10, Lines: 1000, Batch: 4 << 20, Query: 1000, Requests: 100, Batches: 4},
		Times:   gateway.Times{Confirm: slow, Status: slow, Kept: 720 * time.Hour, Delay: 2 * time.Hour},
		Metrics: gateway.NewMetrics(nil), Log: slog.New(slog.DiscardHandler)})
	serve := func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+w.caller.Key)
		g.ServeHTTP(rw, r)
	}
	var kept []sent
	for _, spec := range []spec{{Kind: single, Connections: 2, Lines: 1}, {Kind: batch, Connections: 2, Lines: 500, Keep: 2000}} {
		spec.Measure = 300 * time.Millisecond
		before := s.written.Load()
		all, err := calls(t, serve, spec)
		if err != nil || all[len(all)-1].Figures.Messages != s.written.Load()-before || s.written.Load() == before {
			t.Fatalf("%s: %+v, %v; %d are written", spec.Kind, all, err, s.written.Load()-before)
		}
		kept = all[len(all)-1].Figures.Kept
	}
	if len(kept) < 500 {
		t.Fatalf("%d receipts were kept", len(kept))
	}
	ask := spec{Kind: query, Connections: 2, Measure: 300 * time.Millisecond, Lines: 500}
	for _, m := range kept {
		ask.Receipts = append(ask.Receipts, m.Receipt)
	}
	if _, err := calls(t, serve, ask); err == nil || !strings.Contains(err.Error(), "of 500 receipts 0 are final") {
		t.Errorf("before they are delivered: %v", err)
	}
	for _, row := range rowsOf(kept) {
		s.rows[row.ID] = append(s.rows[row.ID], row)
	}
	if all, err := calls(t, serve, ask); err != nil || all[len(all)-1].Figures.Requests == 0 {
		t.Errorf("when they are delivered: %+v, %v", all, err)
	}
}

// Queries have all receipts in turn.
func TestQueries(t *testing.T) {
	var asked [3]atomic.Int64
	s := spec{Kind: query, Connections: 2, Measure: 50 * time.Millisecond, Lines: 2, Receipts: []string{"0~a", "0~b", "1~a", "1~b", "2~a"}}
	all, err := calls(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Receipts []string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Receipts) != 2 || r.URL.Path != "/v1/receipts:query" {
			t.Errorf("%s %v %v", r.URL, q, err)
			return
		}
		for _, receipt := range q.Receipts {
			asked[receipt[0]-'0'].Add(1)
		}
		_, _ = io.WriteString(w, `{"results":[{"final":true},{"final":true}]}`)
	}, s)
	if err != nil || len(all) != 3 || all[2].Figures.Messages != 0 || all[2].Figures.Requests == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if asked[0].Load() == 0 || asked[1].Load() == 0 || asked[2].Load() > 0 {
		t.Errorf("asked %d, %d, %d", asked[0].Load(), asked[1].Load(), asked[2].Load())
	}
}

// Whatever is answered but what has to be ends the callers, who say what it was.
func TestWrongAnswers(t *testing.T) {
	answer := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	one := spec{Kind: single, Connections: 1, Measure: time.Second, Lines: 1}
	for _, tt := range []struct {
		why  string
		spec spec
		h    http.HandlerFunc
		want string
	}{
		{"busy", one, answer(503, `{"code":"busy"}`), `"code":"busy"`},
		{"some of a batch failed", spec{Kind: batch, Connections: 1, Measure: time.Second, Lines: 2}, answer(207, "{}"), "207"},
		{"a receipt is open", spec{Kind: query, Connections: 1, Measure: time.Second, Lines: 2, Receipts: []string{"a", "b"}}, answer(200, `[{"final":true},{"final":false}]`), "of 2 receipts 1 are final"},
		{"no length", one, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(202)
			w.(http.Flusher).Flush()
		}, "does not say its length"},
		{"the connection is closed", one, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		}, "has closed"},
		{"nothing to ask for", spec{Kind: query, Connections: 1, Measure: time.Second, Lines: 2, Receipts: []string{"a"}}, answer(200, ""), "no receipts"},
	} {
		all, err := calls(t, tt.h, tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
		if n := len(all); n > 0 && (all[n-1].Figures != nil || all[n-1].Failed == "") {
			t.Errorf("%s: told %+v", tt.why, all)
		}
	}
}

// What a fan-out took is divided by its subscribers.
func TestFanoutFigures(t *testing.T) {
	at := time.Now()
	before := &account{&usage.Account{At: at, CPU: map[string]time.Duration{fanoutProcess: time.Second, kafkaServer: 0}, Compilers: map[int]time.Duration{7: time.Second}}, fleet.Metrics{}}
	after := &account{&usage.Account{At: at.Add(10 * time.Second), CPU: map[string]time.Duration{fanoutProcess: 3 * time.Second, kafkaServer: 4 * time.Second}, Machine: 11 * time.Second,
		Compilers: map[int]time.Duration{7: 3 * time.Second}}, fleet.Metrics{}}
	f := fanoutBetween(before, after, 8*time.Second, 1_000_000)
	if f.Rate != 125_000 || f.FanoutCPU != 2 || f.KafkaCPU != 4 || f.Others != 0.5 || f.Compiling != 0.2 || f.Seconds != 8 {
		t.Errorf("%+v", f)
	}
}

// Bars are about what they are about: other batches than the are not judged.
func TestBars(t *testing.T) {
	p99 := 49.9
	r := &Result{Single: &Load{Rate: 20_000}, SingleHalf: &Load{P99: &p99}, Batch: &Load{Rate: 100_000}, Query: &Load{Rate: 50_000}, IdleRSS: 256, Lines: 500, Idle: 10_000}
	r.judge()
	for _, b := range r.Bars {
		if !b.Met {
			t.Errorf("%+v is missed", b)
		}
	}
	if len(r.Bars) != 5 || len(r.Aims) != 2 || r.Aims[0].Met || r.Aims[1].Met {
		t.Errorf("%+v, %+v", r.Bars, r.Aims)
	}
	p99 = 50
	r.Single.Rate, r.Batch.Rate, r.Query.Rate, r.IdleRSS = 19_999, 99_999, 49_999, 256.1
	r.judge()
	for _, b := range r.Bars {
		if b.Met {
			t.Errorf("%+v is reached", b)
		}
	}
	only := &Result{OnlyFanout: true, Fanout: &Fanout{Subscribers: 1_000_000, Rate: 150_000}}
	if only.judge(); len(only.Bars) != 1 || !only.Bars[0].Met || len(only.Aims) != 1 || only.Aims[0].Met {
		t.Errorf("%+v, %+v", only.Bars, only.Aims)
	}
	only.Fanout.Subscribers = 200_000
	if only.judge(); len(only.Bars)+len(only.Aims) != 0 {
		t.Errorf("of 200,000 subscribers: %+v, %+v", only.Bars, only.Aims)
	}
	r.Lines, r.Idle = 1000, 100
	r.judge()
	if names := fmt.Sprint(named(r.Bars)); names != "[single.per_second single_half.p99_ms query.per_second]" {
		t.Errorf("%s", names)
	}
}

func named(bars []send.Bar) (names []string) {
	for _, b := range bars {
		names = append(names, b.Name)
	}
	return names
}
