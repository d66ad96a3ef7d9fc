//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/beside"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func newBesideCommand(b *bench) *cobra.Command {
	o := beside.Standard()
	asJSON := false
	cmd := &cobra.Command{
		Use:   "beside",
		Short: "Measure one sender's messages beside another one's message to many",
		Long: `Starts real Kafka, Redis and Cassandra (deploy/local/fetch.sh fetches them), the simulator of APNs and FCM,
pushgateway serve, pushgateway fanout and a pushworker with the lanes transactional and promotional, each in
a process of its own. A topic gets --subscribers, each a user with one device.

One sender sends single transactional messages through the gateway, --rate a second, each in its time whether
those before have arrived or not, to users who are no subscribers. First the fleet does nothing else (idle).
Then another sender sends one message to the topic, and what counts goes on until providers have accepted it for
every subscriber, or for --seconds (beside).

Latency is from when a message was due to be sent to the gateway until the simulator has received it whole,
before the --latency of its answer; percentiles are exact. The message to many is in the promotional lane; with
--same-lane it is in the transactional one, where gateway.fanout.lag_time (--lag-time) bounds what the others wait
behind.

Everything shares this machine, so what is felt may be its processors: cpu_cores says which process had how much
of them. "refused" and "undelivered" are single messages that the gateway did not accept or no provider has
received. They must be 0: else the exit status is 1, after the figures.

A million users take about two minutes to register and subscribe, ten million more than ten times as long and
several GB of memory for Redis. With --json the last line of standard output is the JSON. Progress goes to standard error.`,
		Example: `  pushbench beside                                  # a million subscribers: a table
  pushbench beside --json --subscribers 10000000 --seconds 600 | tail -1
  pushbench beside --fanout-rate 3000               # processors are left to others
  pushbench beside --same-lane
  pushbench beside --same-lane --lag-time 500ms --subscribers 200000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				b.format = terminal.FormatJSON
			}
			return b.beside(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	f.IntVar(&o.Subscribers, "subscribers", o.Subscribers, "subscribers of the topic that gets a message")
	f.BoolVar(&o.SameLane, "same-lane", false, "the message to many is in the lane of the single messages")
	f.IntVar(&o.Rate, "rate", o.Rate, "single messages a second")
	f.Float64Var(&o.WarmUp, "warm-up", o.WarmUp, "seconds of single messages that do not count")
	f.Float64Var(&o.Idle, "idle", o.Idle, "seconds of single messages on an idle fleet")
	f.Float64Var(&o.Seconds, "seconds", o.Seconds, "seconds of single messages beside the message to many at most; 0 = until it is pushed to all")
	f.DurationVar(&o.LagTime, "lag-time", o.LagTime, "gateway.fanout.lag_time: more is emitted while workers are behind by less than they do in it; 0s = by gateway.fanout.lag alone")
	f.IntVar(&o.FanoutRate, "fanout-rate", o.FanoutRate, "gateway.fanout.rate: records a second of the message to many at most; 0 = no bound")
	f.DurationVar(&o.Latency, "latency", o.Latency, "of the providers' answers")
	f.IntVar(&o.Workers, "workers", o.Workers, "workers that share the partitions")
	f.IntVar(&o.Partitions, "partitions", o.Partitions, "partitions of each lane")
	f.StringVar(&o.Gateway, "gateway", "", "pushgateway to measure; default: the one beside pushbench, or on the PATH")
	f.StringVar(&o.Worker, "worker", "", "pushworker to measure; default: the one beside pushbench, or on the PATH")
	return cmd
}

func (b *bench) beside(ctx context.Context, o beside.Options) error {
	me, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	o.Serve, o.Progress = []string{me, serveCommand}, b.progress
	if err := errors.Join(findProgram(&o.Gateway, "pushgateway", "--gateway"), findProgram(&o.Worker, "pushworker", "--worker")); err != nil {
		return usageError{err}
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	r, err := beside.Run(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(b.show(explainBeside(r)), r.Err())
}

// explainBeside is a table with a row for each time, and the rest in words.
func explainBeside(r *beside.Result) terminal.Answer {
	processes := []string{beside.GatewayProcess, beside.FanoutProcess, beside.WorkerProcess, beside.KafkaServer, beside.RedisServer, beside.CassandraServer, beside.Simulator, beside.MeasuringProcess}
	t := terminal.Table{Columns: append([]string{"single messages", "samples", "p50 ms", "p99 ms", "longest ms"}, append(processes, "other cores", "compiling cores")...)}
	add := func(name string, m *beside.Messages) {
		row := []string{name, strconv.Itoa(m.Samples), figure(m.P50, 1), figure(m.P99, 1), figure(m.Max, 1)}
		for _, p := range processes {
			cores := m.CPU[p]
			row = append(row, figure(&cores, 2))
		}
		t.Add(append(row, figure(&m.Others, 2), figure(&m.Compiling, 2))...)
	}
	add("on an idle fleet", &r.Idle)
	add("beside a message to many", &r.Beside)
	lane, over := "another lane", "the time was over before all were pushed"
	if r.SameLane {
		lane = "the same lane"
	}
	if r.PushedAll {
		over = "all were pushed"
	}
	return terminal.Answer{Value: r, Table: t,
		Before: fmt.Sprintf("%d single messages a second beside one to %d subscribers in %s, providers that answer after %g ms, workers: %d, %d cores with real servers, %s; CPU in cores:",
			r.MessagesPerSecond, r.Subscribers, lane, r.Latency, r.Workers, r.Cores, r.Go),
		After: fmt.Sprintf("beside by idle: p50 %s, p99 %s\nof %d single messages that were accepted %d have not arrived; %d were refused\n"+
			"the message to many: %d emitted, %s s until all were; %d pushed in %.1f s, %.0f a second: %s",
			figure(r.P50Ratio, 2), figure(r.P99Ratio, 2), r.Sent, r.Undelivered, r.Refused, r.Emitted, figure(r.EmittedSeconds, 1), r.Pushed, r.Beside.Seconds, r.Rate, over)}
}
