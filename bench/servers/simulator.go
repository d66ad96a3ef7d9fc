//go:build linux

package servers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// SimulatorOptions are what the providers are like.
type SimulatorOptions struct {
	Dir     string        // for keys, socket and log; must exist
	App     string        // whose accounts it makes up
	Latency time.Duration // of each answer
	// FCMStreams is how many streams a connection to Google may have; one more, and it is ended. 0 = as many as to Apple.
	FCMStreams int
	FCMQuota   int // pushes a second that Google takes of the project; 0 = as many as come
}

// Simulator is APNs and FCM in a process of their own. Every push is validated, and counted by notification and device.
type Simulator struct {
	*process
	// App is its app, as a worker's configuration names it.
	App configs.App
}

// StartSimulator runs program, whose arguments end where Serve's begin.
func StartSimulator(ctx context.Context, program []string, o SimulatorOptions) (*Simulator, error) {
	p, err := start(ctx, program, o.Dir, simulator)
	if err != nil {
		return nil, err
	}
	s := &Simulator{process: p}
	if err := p.call(ctx, "Simulator.Begin", o, &s.App); err != nil {
		p.Close()
		return nil, err
	}
	return s, nil
}

// Note makes it write down when it accepts pushes for these devices, by their hashes: from then on, Noted tells.
func (s *Simulator) Note(ctx context.Context, devices []string) error {
	return s.call(ctx, "Simulator.Note", devices, new(bool))
}

// Noted are the acceptances written down so far, in their order.
func (s *Simulator) Noted(ctx context.Context) (noted []Noted, err error) {
	return noted, s.call(ctx, "Simulator.Noted", true, &noted)
}

// Others is how many pushes it accepted for devices that it does not write down, since it was told which it does.
func (s *Simulator) Others(ctx context.Context) (others int, err error) {
	return others, s.call(ctx, "Simulator.Others", true, &others)
}

// Accepted is how often each pair was accepted, aligned with them.
func (s *Simulator) Accepted(ctx context.Context, pairs []Pair) (counts []int, err error) {
	return counts, s.call(ctx, "Simulator.Accepted", pairs, &counts)
}

// Total is how many pushes were accepted so far.
func (s *Simulator) Total(ctx context.Context) (total int, err error) {
	return total, s.call(ctx, "Simulator.Total", true, &total)
}

// Rates is how many pushes were accepted in each step of time, up to an hour from its start.
func (s *Simulator) Rates(ctx context.Context) (r Rates, err error) {
	return r, s.call(ctx, "Simulator.Rates", true, &r)
}

// Pair is a notification on a device, by its hash.
type Pair struct{ ID, Device string }

// Noted is one acceptance.
type Noted struct {
	Pair
	At time.Time
}

// Rates are counts of steps that follow each other.
type Rates struct {
	From   time.Time
	Step   time.Duration
	Counts []int64
}

// The steps of Rates.
const (
	rateStep  = 200 * time.Millisecond
	rateSteps = int(time.Hour / rateStep)
)

// quotaSeconds is the time for which Google counts: a minute, as the real one does.
const quotaSeconds = 60

// simulated is the other side of Simulator.
type simulated struct {
	began  time.Time
	counts [rateSteps]atomic.Int64

	mu      sync.Mutex
	server  *sim.Server     // guarded by mu; set by Begin
	devices map[string]bool // guarded by mu: replaced as a whole, then only read
	noted   []Noted         // guarded by mu
	others  int             // guarded by mu
}

func serveSimulator(ctx context.Context, socket string) error {
	s := &simulated{began: time.Now()}
	err := serve(ctx, socket, "Simulator", s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		_ = s.server.Close() // its connections may be anywhere
	}
	return err
}

// Begin starts the server.
func (s *simulated) Begin(o SimulatorOptions, app *configs.App) error {
	creds, err := sim.NewCredentials(o.App, "com.example."+o.App)
	if err != nil {
		return err
	}
	faults := sim.Faults{Latency: o.Latency}
	rules := sim.Rules{Streams: o.FCMStreams}
	if o.FCMQuota > 0 {
		rules.ProjectQuota = sim.Limit{Count: o.FCMQuota * quotaSeconds, Per: quotaSeconds * time.Second}
	}
	server, err := sim.New(sim.Options{Apps: []sim.App{creds.App()}, CountOnly: true, Watch: s.watch,
		Faults: sim.RouteSet{APNS: faults, FCM: faults}, Rules: rules})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	if err := server.Start("127.0.0.1:0"); err != nil {
		return err
	}
	apps, err := fleet.Accounts(o.Dir, server, creds)
	if err != nil {
		return err
	}
	*app = apps[0]
	if o.FCMQuota > 0 {
		app.FCM.Rate = o.FCMQuota
	}
	return nil
}

// ledger is that of the server, which Begin started.
func (s *simulated) ledger() *sim.Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server.Ledger()
}

// watch sees every push. It is on the way of the answers, by many goroutines at once.
func (s *simulated) watch(a *sim.Arrival) {
	if a.What != sim.Decided || !a.Reply.Accepted() {
		return
	}
	if i := int(a.At.Sub(s.began) / rateStep); i >= 0 && i < rateSteps {
		s.counts[i].Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.devices[string(a.Device)]:
		s.noted = append(s.noted, Noted{Pair{string(a.ID), string(a.Device)}, a.At})
	case s.devices != nil:
		s.others++
	}
}

// Note replaces the devices that are written down.
func (s *simulated) Note(devices []string, ok *bool) error {
	set := make(map[string]bool, len(devices))
	for _, d := range devices {
		set[d] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices, s.others, *ok = set, 0, true
	return nil
}

// Noted answers what was written down.
func (s *simulated) Noted(_ bool, noted *[]Noted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*noted = append([]Noted{}, s.noted...)
	return nil
}

// Others answers the count.
func (s *simulated) Others(_ bool, others *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*others = s.others
	return nil
}

// Accepted looks pairs up.
func (s *simulated) Accepted(pairs []Pair, counts *[]int) error {
	ledger := s.ledger()
	for _, p := range pairs {
		*counts = append(*counts, ledger.Accepted(p.ID, p.Device))
	}
	return nil
}

// Total adds up.
func (s *simulated) Total(_ bool, total *int) error {
	*total = int(s.ledger().Totals().Accepted)
	return nil
}

// Rates answers the steps that are over.
func (s *simulated) Rates(_ bool, r *Rates) error {
	*r = Rates{From: s.began, Step: rateStep}
	for i := range min(rateSteps, int(time.Since(s.began)/rateStep)) {
		r.Counts = append(r.Counts, s.counts[i].Load())
	}
	return nil
}
