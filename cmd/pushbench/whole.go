//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/whole"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func newWholeCommand(b *bench) *cobra.Command {
	o := whole.Options{}
	cmd := &cobra.Command{
		Use:   "whole",
		Short: "Measure one worker from Kafka to provider, with all servers on this machine",
		Long: `Starts real Kafka, Redis and Cassandra (deploy/local/fetch.sh fetches them) and the simulator of APNs
and FCM, makes a backlog of notifications, starts one pushworker, and measures it from the end of the
warm-up to the last commit. Everything shares this machine, so the rate is that of all parts together.
The CPU time of each part per notification is that of the operating system.

The warm-up should be longer than the confirm reads after an assignment: 40,000 records for each of the 4
partitions. When it ends, the worker already has up to as many later records in progress. Without a
cool-down these count, although part of their work is already done. With a cool-down of 160,000 about as
many are unfinished at the end.

Afterwards every push is looked up in the simulator's ledger, and every status row in Cassandra. If one is
missing or occurs too often, the result is an error that names it instead of figures.

--commit-log batch makes Cassandra write to disk before it acknowledges. --limits is the number of limit
rules; no user reaches them. --confirms is the share of notifications that are put into the dedupe filter
beforehand, so that it answers "maybe" and the worker reads their status.`,
		Example: `  pushbench whole --worker bin/pushworker
  pushbench whole --commit-log batch
  pushbench whole --limits 3 --confirms 0.1
  pushbench whole -o json | tail -1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.whole(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Notifications, "notifications", 400_000, "notifications to measure")
	f.IntVar(&o.WarmUp, "warm-up", 200_000, "notifications before them")
	f.IntVar(&o.CoolDown, "cool-down", 0, "notifications after them")
	f.IntVar(&o.Devices, "devices", 1, "devices per user; 0 = one to three")
	f.DurationVar(&o.Latency, "latency", 0, "time the providers take to answer")
	f.StringVar(&o.CommitLog, "commit-log", whole.Periodic, "when Cassandra acknowledges a write: "+whole.Periodic+" = before it is on disk, "+whole.Batch+" = after")
	f.IntVar(&o.Limits, "limits", 1, "limit rules")
	f.Float64Var(&o.Confirms, "confirms", 0, "share of the notifications whose status must be read before they are sent, 0 to 1")
	f.StringVar(&o.Worker, "worker", "", "pushworker to measure; default: the one beside pushbench, or on the PATH")
	return cmd
}

func (b *bench) whole(ctx context.Context, o whole.Options) error {
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	if o.Worker == "" {
		worker, err := besideMe("pushworker")
		if err != nil {
			return usageError{fmt.Errorf("--worker: %w", err)}
		}
		o.Worker = worker
	}
	if _, err := os.Stat(o.Worker); err != nil {
		return usageError{fmt.Errorf("--worker: %w", err)}
	}
	var said time.Time
	o.Progress = func(format string, args ...any) {
		if time.Since(said) >= 2*time.Second {
			said = time.Now()
			_, _ = fmt.Fprintf(b.stderr, format+"\n", args...)
		}
	}
	r, err := whole.Run(ctx, o)
	if err != nil {
		return err
	}
	return b.show(explainWhole(r))
}

// explainWhole is a table with a row per figure and per setting of the run.
func explainWhole(r *whole.Result) terminal.Answer {
	t := terminal.Table{Columns: []string{"figure", "value"}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	t.Add("notifications/s", number(r.Rate))
	t.Add("pushes/s", number(r.PushRate))
	t.Add("worker CPU us", number(r.WorkerCPU))
	t.Add("Cassandra CPU us", number(r.CassandraCPU))
	t.Add("Redis CPU us", number(r.RedisCPU))
	t.Add("Kafka CPU us", number(r.KafkaCPU))
	t.Add("simulator CPU us", number(r.SimulatorCPU))
	t.Add("worker peak memory MB", strconv.Itoa(r.WorkerRSS))
	t.Add("cool-down notifications", strconv.Itoa(r.CoolDown))
	t.Add("commit log", r.CommitLog)
	t.Add("replication of topics", strconv.Itoa(r.KafkaReplication))
	t.Add("replication of the keyspace", r.KeyspaceReplication)
	t.Add("limit rules", strconv.Itoa(r.LimitRules))
	t.Add("confirmed by a status read", percent(r.Confirmed))
	t.Add("pushes and rows checked", strconv.Itoa(r.Checked))
	return terminal.Answer{Value: r, Table: t,
		Before: fmt.Sprintf("%d notifications in %.1f s on %d cores, %s; CPU per notification:", r.Notifications, r.Seconds, r.Cores, r.Go)}
}

func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return strconv.FormatFloat(100**share, 'f', 1, 64) + " %"
}
