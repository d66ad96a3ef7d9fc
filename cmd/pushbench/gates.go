//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/gates"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func newGatesCommand(b *bench) *cobra.Command {
	o := gates.Options{}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "gates",
		Short: "Measure preferences, devices and limits, with a Redis on this machine",
		Long: `Starts a real Redis (deploy/local/fetch.sh fetches it), lets a registry fill it with users, and takes batches
of 10,000 notifications to different users through a worker's own stages: preferences (the user's record and
limiter state are read from Redis and decoded), devices, and limits (a cap per user, one per user and type and
one per segment are decided together and written back). As many batches are in flight as a worker has stage
workers.

Every user is notified once before it counts, then --passes times. Between these passes the same rules are asked
the published way: one call of a sliding-log script per user and rule, pipelined, without any user record.
"ratio" compares the two rates. Both use the same Redis, and by turns, so that other work on the machine is in
both.

CPU time is per notification: "worker" is this process according to the operating system, minus what making the
notifications takes, "Redis" is what Redis says of itself. Rates, their ratio and latencies are only worth
something on a machine that does nothing else; CPU times depend less on it.

Then a spike: batches arrive at the usual rate, and afterwards ten times as fast, with nine tenths of the
notifications for 100 users, who are offered far more than their caps. A decision is wrong if such a user gets
one more or one less than the cap leaves him, or if anybody else is refused. Latency is from the arrival of a
batch to its end. By default the spike is half of the measured rate: faster than everything is decided, batches
queue without bound.

With --json the last line of standard output is the JSON; its "bars" are the required values, and whether they were
reached. Progress goes to standard error. The exit status is 0 also if a bar is missed, and 1 if a notification
of the passes was not decided as it had to be: then there are no figures.`,
		Example: `  pushbench gates                     # a table, after two to four minutes
  pushbench gates --json | tail -1
  pushbench gates --users 400000 --passes 6
  pushbench gates --usual 10000       # a spike of 100,000/s
  pushbench gates --profiles .        # and then: go tool pprof gates-*.pprof`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				b.format = terminal.FormatJSON
			}
			return b.gates(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	f.IntVar(&o.Users, "users", 200_000, "users in Redis, a multiple of 10,000")
	f.IntVar(&o.Passes, "passes", 3, "notifications to each of them that are measured")
	f.Float64Var(&o.UsualRate, "usual", 0, "notifications a second before the spike; 0 = a twentieth of the measured rate")
	f.StringVar(&o.Profiles, "profiles", "", "existing folder for a CPU profile of each pass")
	return cmd
}

func (b *bench) gates(ctx context.Context, o gates.Options) error {
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	o.Progress = func(format string, args ...any) { _, _ = fmt.Fprintf(b.stderr, format+"\n", args...) }
	r, err := gates.Run(ctx, o)
	if err != nil {
		return err
	}
	return b.show(explainGates(r))
}

// explainGates is a table with a row per way, and the rest in words.
func explainGates(r *gates.Result) terminal.Answer {
	number := func(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
	t := terminal.Table{Columns: []string{"what", "notifications/s", "worker CPU us", "Redis CPU us"}}
	t.Add("record, device and three caps", number(r.Rate, 0), number(r.WorkerCPU, 2), number(r.RedisCPU, 2))
	t.Add("three caps, one call each", number(r.OneCall, 0), number(r.OneCallWorker, 2), number(r.OneCallRedis, 2))
	t.Add("record alone", "", number(r.RecordCPU, 2), number(r.RecordRedis, 2))
	s := r.Spike
	after := fmt.Sprintf("ratio of the rates %.2f; a segment looked up in %.1f ns with %.0f allocations", r.RatioOneCall, r.Segment, r.SegmentAllocs)
	after += fmt.Sprintf("\nspike of %.0f/s after %.0f/s, %.0f/s reached: p99 of a batch %.1f ms after %.1f ms (x %.2f); %d hot users got %d of %d, %d decisions wrong",
		s.Rate, s.UsualRate, s.Reached, s.P99, s.UsualP99, s.RatioP99, s.HotUsers, s.Allowed, s.Offered, s.Wrong)
	for _, bar := range r.Bars {
		if !bar.Met {
			after += fmt.Sprintf("\nmissed: %s is %.6g, want %.6g", bar.Name, bar.Got, bar.Want)
		}
	}
	return terminal.Answer{Value: r, Table: t, After: after,
		Before: fmt.Sprintf("%d notifications each way to %d users, %d batches in flight, on %d cores with Redis %s, %s, %.2f cores busy with other work:",
			r.Notifications, r.Users, r.Workers, r.Cores, r.Redis, r.Go, r.Others)}
}
