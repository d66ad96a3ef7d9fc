//go:build linux

package send

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// asClient is the argument that makes this test binary a client process.
const asClient = "client"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asClient {
		if err := ServeClient(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// inProcess starts a simulator in this process, and returns the work of a
// small client of it.
func inProcess(t *testing.T, faults sim.Faults) (*sim.Server, *Spec) {
	t.Helper()
	credentials, err := sim.NewCredentials("shop", "com.example.shop")
	if err != nil {
		t.Fatal(err)
	}
	// Not raw: what is sent must be valid.
	server, err := sim.New(sim.Options{Apps: []sim.App{credentials.App()}, Faults: sim.RouteSet{APNS: faults}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := server.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &Spec{
		URL: server.URL(), CAFile: filepath.Join(dir, "ca.pem"), KeyFile: filepath.Join(dir, "key.p8"),
		Topic: credentials.Topic, TeamID: credentials.TeamID, KeyID: credentials.KeyID,
		Connections: 2, Streams: 10, WarmUp: 20 * time.Millisecond, Measure: 100 * time.Millisecond, Server: os.Getpid(),
	}
	for name, content := range map[string][]byte{s.CAFile: server.CAPEM(), s.KeyFile: credentials.P8} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return server, s
}

// Every client sends valid pushes to the same devices, and all that were sent
// are answered.
func TestClients(t *testing.T) {
	for name := range drivers {
		t.Run(name, func(t *testing.T) {
			server, s := inProcess(t, sim.Faults{Latency: time.Millisecond})
			s.Client = name
			f, err := drive(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if f.PushesPerSecond <= 0 || f.RSS <= 0 || f.Allocations == nil {
				t.Errorf("%+v", f)
			}
			if name != clientReplay && (f.P50 == nil || f.P99 == nil || *f.P50 < 1 || *f.P99 < *f.P50) {
				t.Errorf("latencies of answers that take 1 ms: %v %v", f.P50, f.P99)
			}
			sums := server.Ledger().Totals()
			if sums.Accepted == 0 || sums.Refused != 0 || sums.WithoutID != 0 {
				t.Errorf("the ledger: %+v", sums)
			}
			for _, d := range devices(s.Connections * s.Streams) {
				if server.Ledger().Accepted("0199f3c2-7a54-7c3e-9d2b-1f0a5b6c7d8e", sim.DeviceHash(sim.APNS, d.token)) == 0 {
					t.Fatalf("a device of the list got nothing: %+v", sums)
				}
			}
		})
	}
}

// A rate of refused pushes is no figure.
func TestClientsThatFail(t *testing.T) {
	for name := range drivers {
		if name == clientReplay {
			continue // it looks at no answer
		}
		t.Run(name, func(t *testing.T) {
			_, s := inProcess(t, sim.Faults{Unavailable: 1})
			s.Client = name
			want := "503"
			if name == clientOursAPNS {
				want = "ServiceUnavailable" // it has read the answer
			}
			if _, err := drive(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
	for name, spoil := range map[string]func(*Spec){
		"there is no client":   func(s *Spec) { s.Client = "telex" },
		"certificate to trust": func(s *Spec) { s.CAFile += "x" },
		"holds no certificate": func(s *Spec) { s.CAFile = s.KeyFile },
		"signing key":          func(s *Spec) { s.KeyFile += "x" },
	} {
		_, s := inProcess(t, sim.Faults{})
		s.Client = clientOurs
		spoil(s)
		s.WarmUp = time.Minute // it ends before
		if _, err := drive(t.Context(), s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestOrdersThatAreNone(t *testing.T) {
	if err := ServeClient(t.Context(), strings.NewReader("{"), new(bytes.Buffer)); err == nil {
		t.Error("half a line was taken for orders")
	}
}

func TestOptionsThatMeasureNothing(t *testing.T) {
	good := Options{Simulator: "pushsim", Client: []string{"pushctl"}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"telex":    func(o *Options) { o.Only = []string{"ours", "telex"} },
		"minutes":  func(o *Options) { o.Minutes = -1 },
		"seconds":  func(o *Options) { o.Seconds = -1 },
		"required": func(o *Options) { o.Simulator = "" },
	} {
		o := good
		spoil(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestShortRun is the whole of it, with the real simulator and processes, on a
// machine without h2load.
func TestShortRun(t *testing.T) {
	dir := t.TempDir()
	if _, err := fleet.Build(t.Context(), dir, false, "pushsim"); err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	var said []string
	r, err := Run(t.Context(), Options{
		Simulator: filepath.Join(dir, "pushsim"), Client: []string{me, asClient}, warmUp: 200 * time.Millisecond, Seconds: 0.2,
		Progress: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*Figures{
		"ours": r.Ours, "ours 50 ms": r.Ours50ms, "one connection": r.OursOneConnection50ms, "apns2": r.APNS2, "nethttp": r.NetHTTP,
		"ours with apns": r.OursAPNS, "apns2 prebuilt": r.APNS2Prebuilt, "validated": r.Ours50msValidated,
	} {
		if f == nil || f.PushesPerSecond <= 0 || f.RSS <= 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if r.H2Load != nil || r.RatioH2Load != nil || !strings.Contains(strings.Join(said, "\n"), "h2load: not installed") {
		t.Errorf("h2load is not there: %+v, %q", r.H2Load, said)
	}
	if r.RatioOursAPNS == nil || r.RatioAPNS2 == nil || r.RatioNetHTTP == nil || r.SimRaw == nil || *r.SimRaw <= 0 || r.SimRawCPU == nil || len(r.Bars) == 0 {
		t.Errorf("%+v", r)
	}
	// The base of both is the row in which the library builds its payloads.
	for name, of := range map[string]struct {
		got  *float64
		ours *Figures
	}{"ours": {r.RatioAPNS2, r.Ours}, "ours with apns": {r.RatioOursAPNS, r.OursAPNS}} {
		if of.got != nil && *of.got != of.ours.PushesPerSecond/r.APNS2.PushesPerSecond {
			t.Errorf("%s to apns2: %v", name, *of.got)
		}
	}
	if r.Ours50ms != nil && *r.Ours50ms.P50 < 50 {
		t.Errorf("answers after 50 ms took %v", *r.Ours50ms.P50)
	}
}

// Scripts depend on the keys.
func TestKeys(t *testing.T) {
	figures := &Figures{PushesPerSecond: 1, CPU: 2, RSS: 3, ServerCPU: 4, Others: 5}
	for _, tt := range []struct {
		value any
		want  string
	}{
		{figures, `{"pushes_per_second":1,"cpu_us_per_push":2,"allocs_per_push":null,"p50_ms":null,"p99_ms":null,"rss_mb":3,"server_cpu_us_per_push":4,"others_cores":5}`},
		{&Result{Cores: 2, Go: "go"}, `{"ours":null,"ours_apns":null,"ours_50ms":null,"ours_one_connection_50ms":null,"ours_50ms_validated":null,"apns2":null,"apns2_prebuilt":null,"nethttp":null,"h2load":null,` +
			`"ratio_ours_apns_apns2":null,"ratio_apns2":null,"ratio_nethttp":null,"ratio_h2load":null,"sim_raw_per_second":null,"sim_raw_cpu_us_per_answer":null,"bars":null,"cores":2,"go":"go"}`},
		{&Memory{1, 2, 3}, `{"minute_2_mb":1,"minute_10_mb":2,"growth":3}`},
		{Bar{"a", 1, 2, true}, `{"name":"a","want":1,"got":2,"met":true}`},
	} {
		got, err := json.Marshal(tt.value)
		if err != nil || string(got) != tt.want {
			t.Errorf("\n got %s\nwant %s (%v)", got, tt.want, err)
		}
	}
}

// Only "ours" is lengthened by minutes: then the others, a dozen of them, still
// take seconds.
func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		name string
		want time.Duration
	}{
		{Options{}, "ours", DefaultSeconds * time.Second},
		{Options{Minutes: 10}, "ours", 10 * time.Minute},
		{Options{Minutes: 10}, "apns2", DefaultSeconds * time.Second},
		{Options{Minutes: 10, Seconds: 30}, "sim_raw", 30 * time.Second},
		{Options{Seconds: 0.5}, "ours", 500 * time.Millisecond},
	} {
		if _, got := tt.o.times(tt.name); got != tt.want {
			t.Errorf("%+v, %s: %v, want %v", tt.o, tt.name, got, tt.want)
		}
	}
}

func TestGrowth(t *testing.T) {
	minutes := []float64{90, 50, 1, 1, 1, 1, 1, 1, 1, 51, 400}
	if m := growth(minutes); m == nil || m.Minute2 != 50 || m.Minute10 != 51 || m.Growth < 0.0199 || m.Growth > 0.0201 {
		t.Errorf("%+v", m)
	}
	if m := growth(minutes[:9]); m != nil {
		t.Errorf("nine minutes: %+v", m)
	}
}

// A bar is met from its figure on, and is only there where it was measured.
func TestBars(t *testing.T) {
	if got := bars(&Result{}); got == nil || len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	number := func(v float64) *float64 { return &v }
	good := func() *Result {
		return &Result{
			Ours:                  &Figures{CPU: 2, RSS: 64, Allocations: number(0), Memory: &Memory{Growth: -0.05}},
			Ours50ms:              &Figures{PushesPerSecond: 190_000, CPU: 2, RSS: 64},
			OursOneConnection50ms: &Figures{PushesPerSecond: 19_000, CPU: 2},
			RatioOursAPNS:         number(10), RatioAPNS2: number(10), RatioH2Load: number(1), SimRaw: number(400_000),
		}
	}
	missed := func(r *Result) (names []string) {
		for _, b := range bars(r) {
			if !b.Met {
				names = append(names, b.Name)
			}
		}
		return names
	}
	if got := missed(good()); len(got) != 0 || len(bars(good())) != 13 {
		t.Errorf("missed %v of %d, want none of 13", got, len(bars(good())))
	}
	for want, spoil := range map[string]func(*Result){
		"ratio_ours_apns_apns2":                      func(r *Result) { *r.RatioOursAPNS = 9.99 },
		"ratio_apns2":                                func(r *Result) { *r.RatioAPNS2 = 9.99 },
		"ratio_h2load":                               func(r *Result) { *r.RatioH2Load = 0.99 },
		"ours.cpu_us_per_push":                       func(r *Result) { r.Ours.CPU = 2.01 },
		"ours.allocs_per_push":                       func(r *Result) { *r.Ours.Allocations = 0.1 },
		"ours.rss_mb":                                func(r *Result) { r.Ours.RSS = 65 },
		"ours.memory.growth":                         func(r *Result) { r.Ours.Memory.Growth = 0.06 },
		"ours_50ms.pushes_per_second":                func(r *Result) { r.Ours50ms.PushesPerSecond = 189_999 },
		"ours_50ms.cpu_us_per_push":                  func(r *Result) { r.Ours50ms.CPU = 3 },
		"ours_50ms.rss_mb":                           func(r *Result) { r.Ours50ms.RSS = 65 },
		"ours_one_connection_50ms.pushes_per_second": func(r *Result) { r.OursOneConnection50ms.PushesPerSecond = 18_999 },
		"ours_one_connection_50ms.cpu_us_per_push":   func(r *Result) { r.OursOneConnection50ms.CPU = 3 },
		"sim_raw_per_second":                         func(r *Result) { *r.SimRaw = 399_999 },
	} {
		r := good()
		spoil(r)
		if got := missed(r); len(got) != 1 || got[0] != want {
			t.Errorf("missed %v, want %s", got, want)
		}
	}
}

func TestRatio(t *testing.T) {
	if q := ratio(&Figures{PushesPerSecond: 30}, &Figures{PushesPerSecond: 3}); q == nil || *q != 10 {
		t.Errorf("%v", q)
	}
	if ratio(nil, &Figures{PushesPerSecond: 3}) != nil || ratio(&Figures{}, nil) != nil || ratio(&Figures{}, &Figures{}) != nil {
		t.Error("a ratio of nothing")
	}
}

func TestLatencies(t *testing.T) {
	for _, d := range []time.Duration{
		time.Microsecond, 31 * time.Microsecond, 63 * time.Microsecond, 64 * time.Microsecond, time.Millisecond, 50 * time.Millisecond, 17 * time.Second,
	} {
		off := bucketTime(bucketOf(d)) - d
		if off.Abs() > d/128+time.Microsecond {
			t.Errorf("%v is counted as %v", d, d+off)
		}
	}
	if bucketOf(-1) != 0 || bucketOf(1<<62) != bucketCount-1 {
		t.Error("times that cannot be leave the table")
	}
	var l latencies
	l.add(time.Hour, 1000) // in the warm-up
	before := l.sums()
	l.add(time.Millisecond, 98)
	l.add(40*time.Millisecond, 2)
	after := l.sums()
	p50, p99 := after.since(&before)
	if p50 == nil || p99 == nil || *p50 < 0.97 || *p50 > 1.03 || *p99 < 39 || *p99 > 41 {
		t.Errorf("%v %v", p50, p99)
	}
	if p50, p99 := after.since(&after); p50 != nil || p99 != nil {
		t.Error("percentiles of nothing")
	}
}
