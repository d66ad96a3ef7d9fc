//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/whole"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func newBenchCommand(a *app) *cobra.Command {
	return newGroup("bench", "Measure on this machine, with servers and a simulator of its own", newBenchWholeCommand(a), newBenchSendCommand(a), newBenchClientCommand(a))
}

func newBenchWholeCommand(a *app) *cobra.Command {
	o := whole.Options{}
	cmd := &cobra.Command{
		Use:   "whole",
		Short: "One worker's whole way: Kafka, Redis, Cassandra and the simulator on this machine",
		Long: `Starts real Kafka, Redis and Cassandra (deploy/local/fetch.sh brings them) and the simulator of APNs
and FCM, makes a backlog of notifications, starts one pushworker, and measures it from the end of the
warm-up to the last commit. Everything shares this machine, so the rate is that of all together; the
CPU of each part for one notification is the operating system's account.

The warm-up should be longer than the confirm reads after an assignment: 40,000 records a partition of 4.`,
		Example: "  pushctl bench whole --worker bin/pushworker\n  pushctl bench whole -o json | tail -1",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.benchWhole(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Notifications, "notifications", 400_000, "notifications that count")
	f.IntVar(&o.WarmUp, "warm-up", 200_000, "notifications before those")
	f.IntVar(&o.Devices, "devices", 1, "devices of each user; 0 = one to three")
	f.DurationVar(&o.Latency, "latency", 0, "time the providers take to answer")
	f.StringVar(&o.Worker, "worker", "", "pushworker to measure; default: the one beside pushctl, or on the PATH")
	return cmd
}

func (a *app) benchWhole(ctx context.Context, o whole.Options) error {
	if o.Worker == "" {
		worker, err := besideMe("pushworker")
		if err != nil {
			return usagef("--worker: %v", err)
		}
		o.Worker = worker
	}
	if _, err := os.Stat(o.Worker); err != nil {
		return usagef("--worker: %v", err)
	}
	var said time.Time
	o.Progress = func(format string, args ...any) {
		if time.Since(said) >= 2*time.Second {
			said = time.Now()
			_, _ = fmt.Fprintf(a.stderr, format+"\n", args...)
		}
	}
	r, err := whole.Run(ctx, o)
	if err != nil {
		return err
	}
	t := table{columns: []string{"figure", "value"}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	t.add("notifications/s", number(r.Rate))
	t.add("pushes/s", number(r.PushRate))
	t.add("worker CPU us", number(r.WorkerCPU))
	t.add("Cassandra CPU us", number(r.CassandraCPU))
	t.add("Redis CPU us", number(r.RedisCPU))
	t.add("Kafka CPU us", number(r.KafkaCPU))
	t.add("simulator CPU us", number(r.SimulatorCPU))
	t.add("worker peak memory MB", strconv.Itoa(r.WorkerRSS))
	return a.showFigures(answer{value: r, table: t,
		before: fmt.Sprintf("%d notifications in %.1f s on %d cores, %s; CPU per notification:", r.Notifications, r.Seconds, r.Cores, r.Go)})
}

// showFigures is show with the JSON on one line, the last.
func (a *app) showFigures(ans answer) error {
	if a.format != formatJSON {
		return a.show(ans)
	}
	return terminal.WriteJSON(a.stdout, ans.value, "")
}

// besideMe finds a program of ours in the directory of this one, else on the
// PATH.
func besideMe(name string) (string, error) {
	if me, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(me), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
