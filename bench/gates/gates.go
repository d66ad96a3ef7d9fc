//go:build linux

// Package gates measures what a worker does for a notification between its
// preferences and its limits, on a real Redis that shares this machine with it:
// the user's record and limiter state are read and decoded, and three rules are
// decided together and written back. The same three rules the published way, one
// script call per user and rule, are measured beside it.
package gates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/pushfleet/pushfleet/bench/send"
)

// Options are what is measured.
type Options struct {
	// Users that are notified by turns: a multiple of 10,000, the size of a batch.
	Users int
	// Passes is how often each of them is notified while it is measured, each way.
	// Before that each is notified once.
	Passes int
	// UsualRate is what comes before the spike, in notifications a second; 0 = a
	// twentieth of what was measured. The spike is ten times of it: by default half
	// of what was measured, because at all of it queues have no bound.
	UsualRate float64
	// Profiles is a folder for a CPU profile of each pass; empty = none.
	Profiles string
	// Progress is told what is done, a line at a time.
	Progress func(format string, args ...any)

	usual, spike int // batches of the usual traffic and of the spike; set by tests, 0 = the usual numbers
}

// The usual numbers of batches around the spike: enough for a p99 that is more
// than the worst of a few.
const (
	usualBatches = 40
	spikeBatches = 200
)

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	switch {
	case o.Users < batchSize || o.Users%batchSize != 0 || o.Users > maxUsers:
		return fmt.Errorf("%d users: want a multiple of %d up to %d", o.Users, batchSize, maxUsers)
	case o.Passes < 1:
		return errors.New("at least one pass is needed")
	case !(o.UsualRate >= 0 && o.UsualRate <= mostUsual):
		return fmt.Errorf("usual rate of %v: want up to %d", o.UsualRate, mostUsual)
	case o.passesOfAll() > newMax:
		return fmt.Errorf("%d users would get up to %d notifications each, and some may get no more than %d: take more users or fewer passes", o.Users, o.passesOfAll(), newMax)
	}
	return nil
}

// passesOfAll is how many notifications the most notified of the usual users
// gets in the whole run.
func (o *Options) passesOfAll() int {
	usual, spike := o.batches()
	return 1 + o.Passes + (usual*batchSize+spike*usualInSpike+o.Users-1)/o.Users
}

func (o *Options) batches() (usual, spike int) {
	if o.usual > 0 {
		return o.usual, o.spike
	}
	return usualBatches, spikeBatches
}

// Result is what was seen. CPU is the operating system's account of this process
// and Redis's of itself. Making up notifications is not in the worker's.
type Result struct {
	Rate      float64 `json:"notifications_per_second"`
	WorkerCPU float64 `json:"worker_cpu_us"` // of one notification, as all that end in cpu_us
	RedisCPU  float64 `json:"redis_cpu_us"`

	// The published way, with the rules alone: no user record is read.
	OneCall       float64 `json:"one_call_per_user_per_second"`
	RatioOneCall  float64 `json:"ratio_one_call_per_user"`
	OneCallWorker float64 `json:"one_call_per_user_worker_cpu_us"`
	OneCallRedis  float64 `json:"one_call_per_user_redis_cpu_us"`

	// The record of a user read and decoded alone, without a limiter state.
	RecordCPU   float64 `json:"user_record_cpu_us"`
	RecordRedis float64 `json:"user_record_redis_cpu_us"`

	// One bitmap asked for numbers that fit into the caches: the slowest of the
	// kinds of containers that there are.
	Segment       float64 `json:"segment_lookup_ns"`
	SegmentAllocs float64 `json:"segment_lookup_allocs"`

	Spike Spike `json:"spike"`
	// Bars are what has to be reached.
	Bars []send.Bar `json:"bars"`

	// Others is how many processors something else kept busy while Rate was
	// measured: the figures of a machine that is not quiet are worth little.
	Others float64 `json:"others_cores"`

	Users         int    `json:"users"`
	Notifications int    `json:"notifications"` // that were measured, each way
	Workers       int    `json:"stage_workers"` // batches in flight
	Cores         int    `json:"cores"`
	Go            string `json:"go"`
	Redis         string `json:"redis"`
}

// Run starts a Redis, fills it as a registry does, and measures. It fails when a
// notification is not decided as it must be, but for the spike's: how many of
// these were wrong is a figure.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r = &Result{Users: o.Users, Notifications: o.Users * o.Passes, Workers: len(s.loads), Cores: runtime.NumCPU(), Go: runtime.Version()}
	if r.Redis, err = s.version(ctx); err != nil {
		return nil, err
	}
	o.Progress("filling Redis with %d users", len(s.people.ids))
	if err := s.people.register(ctx, s.client, o.Progress); err != nil {
		return nil, err
	}
	if err := s.measure(ctx, &o, r); err != nil {
		return nil, err
	}
	o.Progress("looking up segments")
	if r.Segment, r.SegmentAllocs, err = lookUps(); err != nil {
		return nil, err
	}
	if r.Spike, err = s.spike(ctx, &o, r.Rate); err != nil {
		return nil, err
	}
	r.Bars = bars(r)
	return r, nil
}

// measure alternates between the two ways, pass by pass: what else the machine
// does meanwhile is then in both.
func (s *session) measure(ctx context.Context, o *Options, r *Result) error {
	var making, ours, record, published spent
	perPass := o.Users / batchSize
	for pass := range 1 + o.Passes { // the first is the warm-up
		o.Progress("pass %d of %d", pass, o.Passes)
		profile, err := startProfile(o.Profiles, pass)
		if err != nil {
			return err
		}
		first := pass * perPass
		for _, part := range []struct {
			to *spent
			do work
		}{{&ours, s.decide}, {&record, s.readRecords}, {&published, s.askEach}, {&making, func(context.Context, *load) error { return nil }}} {
			seen, err := s.watch(ctx, perPass, func(ctx context.Context, l *load, k int, _ time.Time) error {
				l.fill(s.people, first+k)
				return part.do(ctx, l)
			})
			if err != nil {
				return errors.Join(err, profile())
			}
			if part.to == &ours {
				if err := profile(); err != nil {
					return err
				}
			}
			if pass > 0 {
				part.to.add(seen)
			}
		}
	}
	r.Rate, r.WorkerCPU, r.RedisCPU = ours.rate(), ours.ownWithout(&making), ours.redisEach()
	r.OneCall, r.OneCallWorker, r.OneCallRedis = published.rate(), published.ownWithout(&making), published.redisEach()
	r.RatioOneCall, r.Others = r.Rate/r.OneCall, ours.others()
	r.RecordCPU, r.RecordRedis = record.ownWithout(&making), record.redisEach()
	return nil
}

// startProfile writes a CPU profile of what happens until the function that it
// returns is called. Without a folder, and of the warm-up, it writes none.
func startProfile(folder string, pass int) (stop func() error, err error) {
	if folder == "" || pass == 0 {
		return func() error { return nil }, nil
	}
	file, err := os.Create(filepath.Join(folder, fmt.Sprintf("gates-%d.pprof", pass)))
	if err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("profiling: %w", err), file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
