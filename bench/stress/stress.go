//go:build linux

// Package stress measures what a rate that a fleet shares costs and brings: CPU and Redis commands of sends under it, how
// soon a 429 of one worker has slowed the others, what a record costs that is shed, and how long one-time passwords take while ten times as much waits as the
// provider takes.
//
//	stress.go     what is measured, and the figures
//	cost.go       what a send under a shared rate costs
//	shed.go       what a record costs that is shed
//	slowdown.go   from the first 429 to the lowered rate at all workers
//	bars.go       what is required
package stress

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/bench/worker"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Options are what is measured.
type Options struct {
	Sends     int // a second that are made under the shared rate
	Seconds   int // for how long, with the rate and without
	Workers   int // of the fleet whose slowing down is timed
	Slowdowns int // how many are timed
	Shed      int // records that are shed, rounded up to tens of thousands; 0 leaves them out
	// Passwords is the run with one-time passwords: its Quota is what the provider takes. Nil leaves it out.
	Passwords *worker.Options
	// Progress is told what is done, a line at a time.
	Progress func(format string, args ...any)
}

// Standard is what is measured without flags: 200,000 sends a second, four workers, and passwords beside ten times a quota
// of 2,000 a second.
func Standard() Options {
	passwords := worker.Standard()
	passwords.Quota, passwords.WarmUp, passwords.Notifications, passwords.CoolDown = 2000, 10_000, 40_000, 30_000
	return Options{Sends: 200_000, Seconds: 5, Workers: 4, Slowdowns: 200, Shed: 2_000_000, Passwords: &passwords}
}

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	switch {
	case o.Sends < 1000 || o.Sends > 10_000_000:
		return fmt.Errorf("%d sends a second: want 1,000 to 10,000,000", o.Sends)
	case o.Seconds < 1 || o.Seconds > 600:
		return fmt.Errorf("%d seconds: want 1 to 600", o.Seconds)
	case o.Workers < 2 || o.Workers > 100:
		return fmt.Errorf("%d workers: want 2 to 100", o.Workers)
	case o.Slowdowns < 1 || o.Slowdowns > 10_000:
		return fmt.Errorf("%d slowdowns: want 1 to 10,000", o.Slowdowns)
	case o.Shed < 0 || o.Shed > 1_000_000_000:
		return fmt.Errorf("%d records that are shed: want at most 1,000,000,000", o.Shed)
	case o.Passwords != nil && o.Passwords.Quota == 0:
		return errors.New("the run with one-time passwords needs a quota")
	case o.Passwords != nil:
		return o.Passwords.Check()
	}
	return nil
}

// Result is what was seen. Times are in ms where their name says so.
type Result struct {
	// RateCPU is what a shared rate adds to the CPU of a send's ticket, in us; TicketCPU is that of the ticket without it.
	RateCPU   float64 `json:"rate_cpu_us"`
	TicketCPU float64 `json:"ticket_cpu_us"`
	// LimitCPU is what the limit of a whole fleet adds to that, in us.
	LimitCPU float64 `json:"limit_cpu_us"`
	// Commands is how many commands Redis got for a worker, a rate and 100 ms.
	Commands float64 `json:"redis_commands_per_100_ms"`
	Sends    float64 `json:"sends_per_second"` // that were made under the rate

	SlowdownP50 float64 `json:"slowdown_p50_ms"` // from the first 429 at one worker to the lowered rate at the last
	SlowdownP99 float64 `json:"slowdown_p99_ms"`
	Slowdowns   int     `json:"slowdowns"`
	Workers     int     `json:"workers"`

	// Of records that are shed, all of them: how many a second, what one costs, and how many rows a write has.
	Shed     int64   `json:"shed"`
	ShedRate float64 `json:"shed_per_second"`
	ShedCPU  float64 `json:"shed_cpu_us"`
	ShedRows float64 `json:"shed_rows_per_write"`
	// APNS2CPU is what apns2 takes for a push in the same session, in us, and ShedOfAPNS2 what a shed record takes of that;
	// nil where it was not measured.
	APNS2CPU    *float64 `json:"apns2_cpu_us"`
	ShedOfAPNS2 *float64 `json:"shed_of_apns2"`

	// Of one-time passwords: beside ten times the quota, and with nothing beside them; nil where they were left out.
	PasswordP99         *float64 `json:"password_p99_ms"`
	PasswordUnloadedP99 *float64 `json:"password_unloaded_p99_ms"`
	PasswordRatio       *float64 `json:"password_ratio_p99"`
	Quota               int      `json:"quota_per_second"`

	Cores int        `json:"cores"`
	Go    string     `json:"go"`
	Date  time.Time  `json:"date"`
	Bars  []send.Bar `json:"bars"`
}

// route is the one whose rate is shared.
var route = push.Route{Platform: push.FCM, App: "shop"}

// redisPatience is how long Redis may take to answer: a busy machine is no Redis that is away.
const redisPatience = 30 * time.Second

// Run measures. It ends early, with an error, when ctx does.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	r := &Result{Slowdowns: o.Slowdowns, Workers: o.Workers, Cores: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().UTC().Truncate(time.Second)}
	if err := shared(ctx, &o, r); err != nil {
		return nil, err
	}
	if err := shed(ctx, &o, r); err != nil {
		return nil, err
	}
	if o.Passwords != nil {
		if err := passwords(ctx, &o, r); err != nil {
			return nil, err
		}
	}
	r.Bars = bars(r)
	return r, nil
}

// shared measures what needs a Redis alone.
func shared(ctx context.Context, o *Options, r *Result) (err error) {
	o.Progress("starting Redis")
	server, err := local.StartRedis(ctx, local.RedisOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	ro := shards.DefaultOptions()
	ro.Addrs, ro.ReadTimeout, ro.WriteTimeout = []string{server.Addr()}, redisPatience, redisPatience
	client, err := shards.Open(ro)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := cost(ctx, o, client, r); err != nil {
		return err
	}
	return slowdowns(ctx, o, client, r)
}

// passwords measures one-time passwords beside more promotions than the provider takes.
func passwords(ctx context.Context, o *Options, r *Result) error {
	p := *o.Passwords
	p.Progress = o.Progress
	seen, err := worker.Run(ctx, p)
	if err != nil {
		return err
	}
	r.Quota, r.PasswordP99, r.PasswordUnloadedP99 = p.Quota, seen.CriticalP99, seen.CriticalUnloadedP99
	if r.PasswordP99 != nil && r.PasswordUnloadedP99 != nil {
		ratio := *r.PasswordP99 / *r.PasswordUnloadedP99
		r.PasswordRatio = &ratio
	}
	return nil
}
