//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/stress"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func newStressCommand(b *bench) *cobra.Command {
	o := stress.Standard()
	var asJSON, alone, apns2 bool
	cmd := &cobra.Command{
		Use:   "stress",
		Short: "Measure what a rate that workers share costs, and how soon and how well it helps",
		Long: `Starts a real Redis (deploy/local/fetch.sh fetches it) and measures four things.

rate_cpu_us is what a shared rate adds to the CPU of a send's ticket, at --sends a second: the same loop is run without
a rate and with one that is just enough. redis_commands_per_100_ms is how often Redis was asked meanwhile.

slowdown_p99_ms is the time from a 429 that one worker gets to when the last of --workers, which all send, knows that the
rate is lower. It is taken --slowdowns times, each with rates of its own.

password_p99_ms is how long one-time passwords take from producer to provider while promotions wait for a quota that is
a tenth of them: pushbench worker with --quota, which starts Kafka and Cassandra too. password_ratio_p99 compares it with
one-time passwords that have nothing beside them. --rate-only leaves this part out.

limit_cpu_us is what a limit of the whole fleet (send.fleet_rate) adds to a ticket. shed_per_second and shed_cpu_us are of
--shed records that all end SHED: from decoding to row, event and commit, without Kafka, the filter and Cassandra. --apns2
measures in the same session what apns2 takes for a push (pushbench send --only apns2): shed_of_apns2 is the share of it.

With --json the last line of standard output is the JSON; its "bars" are the required values, and whether they were
reached. Progress goes to standard error. The exit status is 0 also if a bar is missed.`,
		Example: `  pushbench stress                     # a table, after about three minutes
  pushbench stress --json | tail -1
  pushbench stress --rate-only --workers 18`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				b.format = terminal.FormatJSON
			}
			if alone {
				o.Passwords = nil
			}
			return b.stress(cmd.Context(), o, apns2)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	f.BoolVar(&alone, "rate-only", false, "leave the one-time passwords out: a Redis is all that is needed")
	f.BoolVar(&apns2, "apns2", false, "also measure apns2, and what a shed record takes of its CPU")
	f.IntVar(&o.Shed, "shed", o.Shed, "records that are shed; 0 leaves them out")
	f.IntVar(&o.Sends, "sends", o.Sends, "sends a second under the rate")
	f.IntVar(&o.Seconds, "seconds", o.Seconds, "seconds for which they are made, with the rate and without")
	f.IntVar(&o.Workers, "workers", o.Workers, "workers that slow down together")
	f.IntVar(&o.Slowdowns, "slowdowns", o.Slowdowns, "how often they do")
	f.IntVar(&o.Passwords.Quota, "quota", o.Passwords.Quota, "pushes a second that Google takes, while one-time passwords are timed")
	f.StringVar(&o.Passwords.Worker, "worker", "", "pushworker to measure; default: the one beside pushbench, or on the PATH")
	return cmd
}

func (b *bench) stress(ctx context.Context, o stress.Options, apns2 bool) error {
	o.Progress = b.progress
	if o.Passwords != nil {
		if err := b.prepareWorker(o.Passwords); err != nil {
			return err
		}
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	var other *float64
	if apns2 {
		f, err := b.apns2(ctx)
		if err != nil {
			return err
		}
		other = &f.CPU
	}
	r, err := stress.Run(ctx, o)
	if err != nil {
		return err
	}
	r.CompareWithAPNS2(other)
	return b.show(explainStress(r))
}

// explainStress is a table with a row per figure.
func explainStress(r *stress.Result) terminal.Answer {
	t := terminal.Table{Columns: []string{"figure", "value"}}
	t.Add("shared rate, CPU us a send", figure(&r.RateCPU, 3))
	t.Add("  the rest of the ticket", figure(&r.TicketCPU, 3))
	t.Add("limit of the fleet, CPU us a send", figure(&r.LimitCPU, 3))
	t.Add("Redis commands in 100 ms", figure(&r.Commands, 2))
	t.Add("sends/s under it", figure(&r.Sends, 0))
	t.Add("from a 429 to all workers p50, p99 ms", figure(&r.SlowdownP50, 0)+", "+figure(&r.SlowdownP99, 0))
	if r.Shed > 0 {
		t.Add("shed records/s", figure(&r.ShedRate, 0))
		t.Add("  CPU us each", figure(&r.ShedCPU, 2))
		t.Add("  of apns2's push", figure(r.ShedOfAPNS2, 3))
	}
	if r.Quota > 0 {
		t.Add("one-time passwords p99 ms", figure(r.PasswordP99, 1))
		t.Add("  with nothing beside them", figure(r.PasswordUnloadedP99, 1))
		t.Add("  ratio", figure(r.PasswordRatio, 2))
	}
	after := ""
	for _, bar := range r.Bars {
		if !bar.Met {
			after += fmt.Sprintf("\nmissed: %s is %.6g, want %.6g", bar.Name, bar.Got, bar.Want)
		}
	}
	return terminal.Answer{Value: r, Table: t, After: after,
		Before: fmt.Sprintf("%d slowdowns of %d workers, on %d cores with %s:", r.Slowdowns, r.Workers, r.Cores, r.Go)}
}
