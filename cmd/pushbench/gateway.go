//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/gateway"
	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// callCommand is the process of callers of gateway.
const callCommand = "call"

func newGatewayCommand(b *bench) *cobra.Command {
	o := gateway.Standard()
	asJSON := false
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Measure one gateway, with Kafka, Redis and Cassandra on this machine",
		Long: `Starts real Kafka, Redis and Cassandra (deploy/local/fetch.sh fetches them) and one pushgateway, each in a process
of its own, and calls it from another process, in which one thread serves all connections with epoll and
requests that are made beforehand. Every message has an id of its own, a UUIDv7 of its moment.

  single       one message a request, each connection sends the next one when it is answered
  single_half  the same messages at half of that rate, each in its time whether those before are answered or
               not; latency is from when a request was due
  batch        --lines messages a request
  query        --receipts of the messages of batches, 1,000 a query; a row in Cassandra for each says that it
               was delivered
  fanout       one message to --subscribers of a topic, by one pushgateway fanout: from the request until the receipt
               says that Kafka has a record of the lane for each of them. Nobody works on the lane, so that it is
               not paced
  idle         10,000 connections that have each sent one message, and do nothing

Kafka and Cassandra take twice the processor time while they are young, as Java interprets and compiles what they do. So
each measurement is made in rounds until Java compiles on less than a tenth of a core, --rounds at most, and the last
one counts; "rounds" says how many there were, "compiling_cores" what was left of that.

CPU is what the operating system says of each process, allocations are what the gateway says of itself, both for one
message or receipt. Everything shares this machine, so the rates are those of all parts together.

--embedded uses the Kafka of pushdemo in a process of its own, and no Cassandra: it needs nothing to be fetched, asks for
no receipts and has no fan-outs.

A run fails if anything but 202 (200 for queries) is answered, if a query does not answer each receipt with a
final state, or if Kafka has another number of records than was acknowledged: after each measurement, and
when the gateway is gone.

With --json the last line of standard output is the JSON; its "bars" are the required values, its "aims" what is
hoped for, and whether they were reached. Progress goes to standard error. The exit status is 0 also if a bar is
missed.`,
		Example: `  pushbench gateway                     # a table, after some ten minutes
  pushbench gateway --json | tail -1
  pushbench gateway --seconds 30 --connections 512
  pushbench gateway --embedded --seconds 2
  pushbench gateway --only-fanout --subscribers 200000
  pushbench gateway --profiles .        # and then: go tool pprof gateway-*.pprof`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				b.format = terminal.FormatJSON
			}
			return b.gateway(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	f.BoolVar(&o.Embedded, "embedded", false, "an embedded Kafka instead of real servers")
	f.Float64Var(&o.Seconds, "seconds", o.Seconds, "duration of each round of a measurement in seconds")
	f.Float64Var(&o.WarmUp, "warm-up", o.WarmUp, "seconds before each round that do not count")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "rounds of each measurement at most, until Java has compiled what it will; 1 = servers as young as they are")
	f.IntVar(&o.Connections, "connections", o.Connections, "connections of callers who send single messages")
	f.IntVar(&o.Batches, "batches", o.Batches, "connections of callers who send batches")
	f.IntVar(&o.Lines, "lines", o.Lines, "messages of a batch")
	f.IntVar(&o.Queries, "queries", o.Queries, "connections of callers who ask for receipts")
	f.IntVar(&o.Receipts, "receipts", o.Receipts, "receipts that are asked for in turn")
	f.IntVar(&o.Idle, "idle", o.Idle, "connections that do nothing; 0 = that is not measured")
	f.IntVar(&o.Subscribers, "subscribers", o.Subscribers, "subscribers of a topic that gets a message; 0 = that is not measured")
	f.BoolVar(&o.OnlyFanout, "only-fanout", false, "measure nothing else")
	f.IntVar(&o.Partitions, "partitions", o.Partitions, "partitions of each lane")
	f.StringVar(&o.Gateway, "gateway", "", "pushgateway to measure; default: the one beside pushbench, or on the PATH")
	f.StringVar(&o.Profiles, "profiles", "", "existing folder for a CPU profile of the gateway in each measurement")
	return cmd
}

func newCallCommand(b *bench) *cobra.Command {
	return &cobra.Command{
		Use: callCommand, Short: "Call a gateway: reads what to do, prints what was seen", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return gateway.Call(cmd.Context(), b.stdin, b.stdout) },
	}
}

func (b *bench) gateway(ctx context.Context, o gateway.Options) error {
	me, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	o.Caller, o.Serve, o.Progress = []string{me, callCommand}, []string{me, serveCommand}, b.progress
	if err := findProgram(&o.Gateway, "pushgateway", "--gateway"); err != nil {
		return usageError{err}
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	r, err := gateway.Run(ctx, o)
	if err != nil {
		return err
	}
	return b.show(explainGateway(r))
}

// explainGateway is a table with a row per measurement, and the rest in words.
func explainGateway(r *gateway.Result) terminal.Answer {
	t := terminal.Table{Columns: []string{"what", "a second", "p50 ms", "p99 ms", "gateway CPU us", "Kafka CPU us", "Cassandra CPU us", "caller CPU us", "allocations", "bytes", "other cores", "compiling cores", "rounds"}}
	for _, row := range []struct {
		name string
		l    *gateway.Load
	}{
		{"single messages", r.Single}, {"at half of that rate", r.SingleHalf}, {fmt.Sprintf("messages in batches of %d", r.Lines), r.Batch},
		{fmt.Sprintf("receipts, %d a query", r.Each), r.Query},
	} {
		l := row.l
		if l == nil {
			continue
		}
		t.Add(row.name, figure(&l.Rate, 0), figure(l.P50, 1), figure(l.P99, 1), figure(&l.GatewayCPU, 2), figure(&l.KafkaCPU, 2), figure(&l.CassandraCPU, 2),
			figure(&l.CallerCPU, 2), figure(&l.Allocations, 1), figure(&l.Bytes, 0), figure(&l.Others, 2), figure(&l.Compiling, 2), strconv.Itoa(l.Rounds))
	}
	after := ""
	if f := r.Fanout; f != nil {
		after = fmt.Sprintf("a message to %d subscribers: %.0f records a second, %.2f s; CPU of the fan-out %.2f us, Kafka %.2f us, Cassandra %.2f us, %.1f allocations and %.0f bytes a record; "+
			"%.1f MiB at the most; %.2f other cores, Java compiled on %.2f, the last of %d rounds\n", f.Subscribers, f.Rate, f.Seconds, f.FanoutCPU, f.KafkaCPU, f.CassandraCPU, f.Allocations, f.Bytes, f.PeakRSS, f.Others, f.Compiling, f.Rounds)
	}
	after += fmt.Sprintf("gateway's memory: %.1f MiB when it was ready, %.1f MiB with %d idle connections while a message to %d was worked on, %.1f MiB at the most; %d messages were acknowledged, and are in Kafka",
		r.StartRSS, r.IdleRSS, r.Idle, r.IdleFanout, r.PeakRSS, r.Acknowledged)
	for _, bars := range []struct {
		word string
		all  []send.Bar
	}{{"missed", r.Bars}, {"hoped for", r.Aims}} {
		for _, bar := range bars.all {
			if !bar.Met {
				after += fmt.Sprintf("\n%s: %s is %.6g, want %.6g", bars.word, bar.Name, bar.Got, bar.Want)
			}
		}
	}
	servers := "real servers"
	if r.Embedded {
		servers = "an embedded Kafka"
	}
	return terminal.Answer{Value: r, Table: t, After: after,
		Before: fmt.Sprintf("%g s each, %d connections for single messages, %d for batches, %d for queries, on %d cores with %s, %s; CPU and allocations for one message or receipt:",
			r.Seconds, r.Connections, r.Batches, r.Queries, r.Cores, servers, r.Go)}
}
