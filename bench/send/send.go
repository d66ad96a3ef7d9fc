//go:build linux

// Package send measures clients of APNs on the same simulator, with the same
// notifications: the multiplexer of providers/h2 alone and with providers/apns
// on top, apns2, net/http's transport and h2load. Each runs in a process of its own, one after the other, and so
// does the simulator: what the operating system says a client used is the
// client's alone.
package send

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// warmUpTime opens connections and grows buffers, and does not count.
const warmUpTime = 2 * time.Second

// DefaultSeconds is the time of a measurement unless Options say otherwise.
const DefaultSeconds = 6

// The load: what Apple grants a connection, and as many of them as a worker
// has for each app.
const (
	connections = 10
	streams     = 1000
	slowAnswer  = 50 * time.Millisecond
)

// Options are what is measured and with which programs.
type Options struct {
	Simulator string   // path of a built pushsim
	Client    []string // program and arguments that end in ServeClient
	// Only names the measurements to make, as in Names; nil = all.
	Only []string
	// Seconds that each measurement takes after its warm-up; 0 =
	// DefaultSeconds.
	Seconds float64
	// Minutes that "ours" takes instead, so that its memory can be watched;
	// 0 = no more than the others.
	Minutes float64
	// Profiles is a folder for CPU profiles of the simulator and of the clients
	// written in Go; empty = none.
	Profiles string
	// Progress is told what is done, a line at a time.
	Progress func(format string, args ...any)

	warmUp time.Duration // set by tests; 0 = the usual
}

// Figures are what was seen of one client. Pointers are nil where the client
// cannot tell.
type Figures struct {
	PushesPerSecond float64  `json:"pushes_per_second"`
	CPU             float64  `json:"cpu_us_per_push"`
	Allocations     *float64 `json:"allocs_per_push"`
	P50             *float64 `json:"p50_ms"` // from handing over to the answer
	P99             *float64 `json:"p99_ms"`
	RSS             float64  `json:"rss_mb"` // peak, in MiB
	// RSSByMinute is the memory at the end of each minute, in MiB.
	RSSByMinute []float64 `json:"rss_by_minute_mb,omitempty"`
	// Memory is whether it grows, where that was watched for ten minutes.
	Memory *Memory `json:"memory,omitempty"`
	// Threads of h2load, of the number that served it best.
	Threads int `json:"threads,omitempty"`
	// ServerCPU is what the simulator used for one push, in us.
	ServerCPU float64 `json:"server_cpu_us_per_push"`
	// Others is how many processors something else kept busy meanwhile: the
	// figures of a machine that is not quiet are worth little.
	Others float64 `json:"others_cores"`
}

// Memory compares the second minute with the tenth, in MiB.
type Memory struct {
	Minute2  float64 `json:"minute_2_mb"`
	Minute10 float64 `json:"minute_10_mb"`
	Growth   float64 `json:"growth"` // 0.05 = 5 % more
}

// growth is nil for less than ten minutes.
func growth(byMinute []float64) *Memory {
	if len(byMinute) < 10 {
		return nil
	}
	m := &Memory{Minute2: byMinute[1], Minute10: byMinute[9]}
	m.Growth = m.Minute10/m.Minute2 - 1
	return m
}

// Result is everything that was seen. Figures are nil where a client is not
// installed or was not asked for.
//
// Ours, APNS2Prebuilt, NetHTTP and H2Load send what was put together before.
// OursAPNS and APNS2 make each push from its parts: the first from a message and
// a device, with its path, its headers and its apns-id, as the worker does, the
// second its payload, by the library's builder. So RatioOursAPNS compares like
// with like, and RatioAPNS2, which has the same base, flatters ours by what it
// does not do.
type Result struct {
	Ours                  *Figures `json:"ours"`
	OursAPNS              *Figures `json:"ours_apns"`
	Ours50ms              *Figures `json:"ours_50ms"`
	OursOneConnection50ms *Figures `json:"ours_one_connection_50ms"`
	Ours50msValidated     *Figures `json:"ours_50ms_validated"` // with the simulator's policies on
	APNS2                 *Figures `json:"apns2"`
	APNS2Prebuilt         *Figures `json:"apns2_prebuilt"`
	NetHTTP               *Figures `json:"nethttp"`
	H2Load                *Figures `json:"h2load"`
	// Ratios of pushes a second, answers at once: of Ours to theirs, and first of
	// OursAPNS to APNS2.
	RatioOursAPNS *float64 `json:"ratio_ours_apns_apns2"`
	RatioAPNS2    *float64 `json:"ratio_apns2"`
	RatioNetHTTP  *float64 `json:"ratio_nethttp"`
	RatioH2Load   *float64 `json:"ratio_h2load"`
	// SimRaw is how many answers a second the simulator gives on one core.
	SimRaw *float64 `json:"sim_raw_per_second"`
	// SimRawCPU is what each of them took it, in us: the answers that a core
	// of its own would give are 1,000,000 by that.
	SimRawCPU *float64 `json:"sim_raw_cpu_us_per_answer"`
	// Bars are what has to be reached, of what was measured.
	Bars  []Bar  `json:"bars"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
}

// measurement is one row of the result.
type measurement struct {
	name        string
	client      string // as in Spec.Client
	connections int
	latency     time.Duration
	policies    bool // of the simulator
	to          func(*Result) **Figures
}

var measurements = [...]measurement{
	{"ours", clientOurs, connections, 0, false, func(r *Result) **Figures { return &r.Ours }},
	{"ours_apns", clientOursAPNS, connections, 0, false, func(r *Result) **Figures { return &r.OursAPNS }},
	{"h2load", clientH2Load, connections, 0, false, func(r *Result) **Figures { return &r.H2Load }},
	{"apns2", clientAPNS2, connections, 0, false, func(r *Result) **Figures { return &r.APNS2 }},
	{"apns2_prebuilt", clientAPNS2Prebuilt, connections, 0, false, func(r *Result) **Figures { return &r.APNS2Prebuilt }},
	{"nethttp", clientNetHTTP, connections, 0, false, func(r *Result) **Figures { return &r.NetHTTP }},
	{"ours_50ms", clientOurs, connections, slowAnswer, false, func(r *Result) **Figures { return &r.Ours50ms }},
	{"ours_one_connection_50ms", clientOurs, 1, slowAnswer, false, func(r *Result) **Figures { return &r.OursOneConnection50ms }},
	{"ours_50ms_validated", clientOurs, connections, slowAnswer, true, func(r *Result) **Figures { return &r.Ours50msValidated }},
}

// simRaw is the name of the measurement of the simulator itself.
const simRaw = "sim_raw"

// Names are the measurements, in the order in which they are made.
func Names() []string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	return append(names, simRaw)
}

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("there is no measurement %q", name)
		}
	}
	if o.Minutes < 0 || o.Minutes > 24*60 {
		return fmt.Errorf("%v minutes: want 0 to 1440", o.Minutes)
	}
	if o.Seconds < 0 || o.Seconds > 24*3600 {
		return fmt.Errorf("%v seconds: want 0 to 86400", o.Seconds)
	}
	if o.Simulator == "" || len(o.Client) == 0 {
		return errors.New("simulator and client are required")
	}
	return nil
}

func (o *Options) wants(name string) bool { return o.Only == nil || slices.Contains(o.Only, name) }

// times are the warm-up and the time that counts of one measurement.
func (o *Options) times(name string) (warmUp, measure time.Duration) {
	warmUp, measure = warmUpTime, DefaultSeconds*time.Second
	if o.warmUp > 0 {
		warmUp = o.warmUp
	}
	if o.Seconds > 0 {
		measure = time.Duration(o.Seconds * float64(time.Second))
	}
	if o.Minutes > 0 && name == measurements[0].name {
		measure = time.Duration(o.Minutes * float64(time.Minute))
	}
	return warmUp, measure
}

// Run makes the measurements, one at a time.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pushfleet-send-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	r := &Result{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if err := compareClients(ctx, &o, dir, r); err != nil {
		return nil, err
	}
	r.RatioOursAPNS = ratio(r.OursAPNS, r.APNS2)
	r.RatioAPNS2, r.RatioNetHTTP, r.RatioH2Load = ratio(r.Ours, r.APNS2), ratio(r.Ours, r.NetHTTP), ratio(r.Ours, r.H2Load)
	if o.wants(simRaw) {
		if err := measureSimulator(ctx, &o, dir, r); err != nil {
			return nil, fmt.Errorf("measuring the simulator: %w", err)
		}
	}
	r.Bars = bars(r)
	return r, nil
}

// compareClients runs every client against one simulator, or one of its own
// where that has policies.
func compareClients(ctx context.Context, o *Options, dir string, r *Result) error {
	raw, err := startSimulator(ctx, o, dir, "simulator", []string{"--raw"})
	if err != nil {
		return err
	}
	defer raw.close()
	for i := range measurements {
		m := &measurements[i]
		if !o.wants(m.name) {
			continue
		}
		f, err := m.make(ctx, o, dir, raw)
		if errors.Is(err, errNotInstalled) {
			o.Progress("%s: not installed", m.name)
			continue
		}
		if err != nil {
			return fmt.Errorf("measuring %s: %w", m.name, err)
		}
		o.Progress("%s: %.0f pushes/s, %.2f us of CPU each, %.0f MiB; %.1f cores busy with something else", m.name, f.PushesPerSecond, f.CPU, f.RSS, f.Others)
		*m.to(r) = f
	}
	return nil
}

// make makes one measurement.
func (m *measurement) make(ctx context.Context, o *Options, dir string, server *simulator) (*Figures, error) {
	warmUp, measure := o.times(m.name)
	o.Progress("%s: %d connections of %d streams, answers after %v; %v after a warm-up of %v", m.name, m.connections, streams, m.latency, measure, warmUp)
	if m.policies {
		own, err := startSimulator(ctx, o, dir, m.name+"_simulator", nil)
		if err != nil {
			return nil, err
		}
		defer own.close()
		server = own
	}
	if err := server.setLatency(ctx, m.latency); err != nil {
		return nil, err
	}
	return server.measure(ctx, o, m.client, m.connections, m.name)
}

// measureSimulator counts what a simulator answers that may use one core, to
// a client that only replays bytes.
func measureSimulator(ctx context.Context, o *Options, dir string, r *Result) error {
	_, measure := o.times(simRaw)
	o.Progress("%s: a client that replays bytes, the simulator on one core; %v", simRaw, measure)
	server, err := startSimulator(ctx, o, dir, simRaw+"_simulator", []string{"--raw"}, "GOMAXPROCS=1")
	if err != nil {
		return err
	}
	defer server.close()
	f, err := server.measure(ctx, o, clientReplay, connections, simRaw)
	if err != nil {
		return err
	}
	o.Progress("%s: %.0f answers/s, %.2f us of CPU each; %.1f cores busy with something else", simRaw, f.PushesPerSecond, f.ServerCPU, f.Others)
	r.SimRaw, r.SimRawCPU = &f.PushesPerSecond, &f.ServerCPU
	return nil
}

func ratio(a, b *Figures) *float64 {
	if a == nil || b == nil || b.PushesPerSecond == 0 {
		return nil
	}
	q := a.PushesPerSecond / b.PushesPerSecond
	return &q
}
