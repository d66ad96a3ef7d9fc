package h2

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// serverEnv makes this test binary the benchmarks' server: a separate process,
// so that the measured CPU time is the client's alone.
const serverEnv = "H2_BENCH_SERVER_LATENCY"

func TestMain(m *testing.M) {
	if latency, ok := os.LookupEnv(serverEnv); ok {
		if err := serveBenchmark(latency); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func serveBenchmark(latency string) error {
	d, err := time.ParseDuration(latency)
	if err != nil {
		return err
	}
	s, err := sim.New(sim.Options{Raw: true, CountOnly: true, Faults: sim.RouteSet{APNS: sim.Faults{Latency: d}}})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Start("127.0.0.1:0"); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(benchServer{s.URL(), s.CAPEM()}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the benchmark ends
	return err
}

type benchServer struct {
	URL string
	CA  []byte
}

func startServer(b testing.TB, latency time.Duration) (string, *tls.Config) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+latency.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var s benchServer
	if err != nil || json.Unmarshal(line, &s) != nil {
		b.Fatal("the server did not start")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA)
	return s.URL, &tls.Config{RootCAs: pool}
}

// cpu is the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs f and reports the cost of b.N pushes.
func measure(b *testing.B, f func()) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, start := cpu(), time.Now()
	b.ResetTimer()
	f()
	b.StopTimer()
	used, wall := cpu()-used, time.Since(start)
	runtime.ReadMemStats(&after)
	n := float64(b.N)
	b.ReportMetric(n/wall.Seconds(), "pushes/s")
	b.ReportMetric(float64(used.Nanoseconds())/n/1e3, "cpu-us/push")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/push")
}

var benchBody = []byte(`{"aps":{"alert":{"title":"Your order is on its way","body":"It will be with you between ten and twelve o'clock."},"sound":"default","thread-id":"orders"},"pf_id":"0199f3c2-7a54-7c3e-9d2b-1f0a5b6c7d8e"}`)

// benchHeader is what all requests share, including its memory, as a provider's
// requests do.
var benchHeader = []Field{
	{Name: "authorization", Value: append([]byte("bearer "), bytes.Repeat([]byte("eyJhbGci"), 26)...)},
	{Name: "apns-topic", Value: []byte("com.example.shop")},
	{Name: "apns-push-type", Value: []byte("alert")},
	{Name: "apns-priority", Value: []byte("10")},
}

func benchRequest(i int) *Request {
	token := make([]byte, 32)
	for k := range token {
		token[k] = byte(i >> (k % 4 * 8) * (k + 7))
	}
	return &Request{
		Path: append([]byte("/3/device/"), hex.EncodeToString(token)...),
		Header: append(slices.Clip(benchHeader),
			Field{Name: "apns-expiration", Value: []byte("1795257600"), Indexing: NotIndexed},
			Field{Name: "apns-id", Value: fmt.Appendf(nil, "0199f3c2-7a54-8c3e-9d2b-%012x", i), Indexing: NotIndexed}),
		Body: benchBody,
	}
}

// flow keeps a number of requests in flight, and counts answers up to n.
type flow struct {
	b       *testing.B
	pool    *Pool
	left    atomic.Int64 // to submit
	missing atomic.Int64 // without an answer
	done    chan struct{}
	group   *Group
}

func (f *flow) answered(rs []*Request) {
	for _, r := range rs {
		if r.Outcome != Answered || r.Answer.Status != 200 {
			f.b.Errorf("%v, %v, status %d", r.Outcome, r.Err, r.Answer.Status)
		}
	}
	again := rs
	if left := f.left.Add(-int64(len(rs))); left < 0 {
		again = rs[:max(0, len(rs)+int(left))]
	}
	if len(again) > 0 {
		if _, err := f.pool.SubmitTo(context.Background(), 0, again, f.group); err != nil {
			f.b.Error(err)
		}
	}
	if f.missing.Add(-int64(len(rs))) == 0 {
		close(f.done)
	}
}

func (f *flow) run(rs []*Request, n int) {
	rs = rs[:min(len(rs), n)]
	f.left.Store(int64(n - len(rs)))
	f.missing.Store(int64(n))
	f.done = make(chan struct{})
	for len(rs) > 0 {
		k := min(256, len(rs))
		if _, err := f.pool.SubmitTo(context.Background(), 0, rs[:k], f.group); err != nil {
			f.b.Fatal(err)
		}
		rs = rs[k:]
	}
	<-f.done
}

func benchPool(b *testing.B, connections int, latency time.Duration) {
	const streams = 1000
	url, conf := startServer(b, latency)
	p, err := NewPool(Options{URL: url, TLS: conf, Connections: connections, StreamsPerConnection: streams, Lanes: []Lane{{"only", 1, 2 * connections * streams}}})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close(context.Background())
	f := &flow{b: b, pool: p}
	f.group = NewGroup(f.answered)
	rs := make([]*Request, connections*streams)
	for i := range rs {
		rs[i] = benchRequest(i)
	}
	for range 3 { // warms up connections, buffers, windows
		f.run(rs, 2*len(rs))
	}
	measure(b, func() { f.run(rs, b.N) })
}

func BenchmarkPool(b *testing.B)                  { benchPool(b, 10, 0) }
func BenchmarkPool50ms(b *testing.B)              { benchPool(b, 10, 50*time.Millisecond) }
func BenchmarkPoolOneConnection50ms(b *testing.B) { benchPool(b, 1, 50*time.Millisecond) }

// BenchmarkNetHTTP is net/http's transport on the same server with the same
// requests, for comparison.
func BenchmarkNetHTTP(b *testing.B) {
	url, conf := startServer(b, 0)
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	const workers, connections = 10_000, 10
	clients := make([]*http.Client, connections)
	for i := range clients {
		tr := &http.Transport{TLSClientConfig: conf.Clone(), Protocols: protocols, DisableCompression: true,
			HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
		defer tr.CloseIdleConnections()
		clients[i] = &http.Client{Transport: tr}
	}
	one := func(client *http.Client, r *Request) {
		req, err := http.NewRequest(http.MethodPost, url+string(r.Path), bytes.NewReader(r.Body))
		if err != nil {
			b.Error(err)
			return
		}
		for _, f := range r.Header {
			req.Header[http.CanonicalHeaderKey(f.Name)] = []string{string(f.Value)}
		}
		res, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	for i, c := range clients {
		one(c, benchRequest(i))
	}
	measure(b, func() {
		var left atomic.Int64
		left.Store(int64(b.N))
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				r := benchRequest(i)
				for left.Add(-1) >= 0 {
					one(clients[i%connections], r)
				}
			})
		}
		wg.Wait()
	})
}
