//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/bench/worker"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// serveCommand runs one of the servers of worker in a process of its own.
const serveCommand = "serve"

func newWorkerCommand(b *bench) *cobra.Command {
	o := worker.Standard()
	var asJSON, apns2 bool
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Measure one worker from Kafka to provider, with all servers on this machine",
		Long: `Starts real Kafka, Redis and Cassandra (deploy/local/fetch.sh fetches them) and the simulator of APNs
and FCM, each in a process of its own. First a worker without a backlog gets one-time passwords, 20 a
second, on its critical lane. Then the backlog is produced on the promotional lane, and another worker is
measured from the end of the warm-up to the beginning of the cool-down, with one-time passwords as before.

Without flags this is the standard scenario, whose figures bench/README.md records: one device per user,
half of them Apple's, three limit rules that nobody reaches, 1 % copies, messages of 480 bytes, ids minted
20,000 a second, answers at once.

Everything shares this machine, so the rate is that of all parts together. CPU is what the operating system
says of each process, in microseconds per notification; parts_us splits the worker's by its CPU profile. A
profile is also taken of its allocations: allocs_by_part, allocs_by_owner. critical_p99_ms is the time from
producing a one-time password to its acceptance by a provider, critical_unloaded_p99_ms the same without
the backlog. rss_mb is the worker's peak.

--apns2 also measures in the same session what apns2 takes for a push (pushbench send --only apns2), before
and afterwards, and adds what share of it the worker takes (worker_of_apns2, parts_of_apns2), and the
notifications a second by apns2's pushes a second (rate_of_apns2).

--embedded uses the Kafka and Redis of pushdemo, each in a process of its own, and a worker that keeps its
status rows in its memory. It needs nothing to be fetched.

When the warm-up ends, the worker already has up to 160,000 later records in progress. With a cool-down of
as many, about as many are unfinished at the end; without it they count although part of their work was
already done.

Afterwards every push is looked up in the simulator's ledger, and every status row in Cassandra. If one is
missing or occurs too often, the result is an error that names it, and the exit status is 1.

Progress goes to standard error. With --json the last line of standard output is the JSON. --plot is a file
for a drawing (SVG) of rate and latency over time.`,
		Example: `  pushbench worker                                # the standard scenario: a table, after about two minutes
  pushbench worker --json --apns2 | tail -1
  pushbench worker --embedded --notifications 100000 --warm-up 20000
  pushbench worker --rate 15000 --warm-up 50000   # how long a notification takes at that rate
  pushbench worker --workers 2                    # two workers on the same machine
  pushbench worker --commit-log batch --limits 0 --confirms 0.1 --plot batch.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				b.format = terminal.FormatJSON
			}
			return b.worker(cmd.Context(), o, apns2)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	f.BoolVar(&apns2, "apns2", false, "also measure apns2, and the worker's shares of its CPU")
	f.BoolVar(&o.Embedded, "embedded", false, "embedded servers instead of real ones")
	f.IntVar(&o.Notifications, "notifications", o.Notifications, "notifications to measure")
	f.IntVar(&o.WarmUp, "warm-up", o.WarmUp, "notifications before them")
	f.IntVar(&o.CoolDown, "cool-down", o.CoolDown, "notifications after them")
	f.IntVar(&o.Devices, "devices", o.Devices, "devices per user; 0 = one to three")
	f.Float64Var(&o.Duplicates, "duplicates", o.Duplicates, "share of the backlog that is a second copy, 0 to 0.5")
	f.IntVar(&o.Minted, "minted", o.Minted, "ids per second: how far apart those of the backlog were minted")
	f.IntVar(&o.Workers, "workers", o.Workers, "workers that share the partitions and are measured as one")
	f.IntVar(&o.Partitions, "partitions", o.Partitions, "partitions of each lane")
	f.IntVar(&o.Rate, "rate", o.Rate, "notifications produced a second while they run, to measure how long one takes; 0 = a backlog is there before")
	f.IntVar(&o.Quota, "quota", o.Quota, "pushes a second that Google takes, and the fleet's rate for it; 0 = as many as come")
	f.IntVar(&o.Limits, "limits", o.Limits, "limit rules")
	f.DurationVar(&o.Latency, "latency", o.Latency, "time the providers take to answer")
	f.StringVar(&o.CommitLog, "commit-log", o.CommitLog, "when Cassandra acknowledges a write: "+worker.Periodic+" = before it is on disk, "+worker.Batch+" = after")
	f.BoolVar(&o.PackedRows, "packed-rows", o.PackedRows, "cassandra.packed_rows of the worker: status rows are written in one column")
	f.Float64Var(&o.Confirms, "confirms", o.Confirms, "share of the notifications whose status must be read before they are sent, 0 to 1")
	f.DurationVar(&o.Unloaded, "unloaded", o.Unloaded, "time for which one-time passwords are sent before there is a backlog")
	f.StringVar(&o.Worker, "worker", "", "pushworker to measure; default: the one beside pushbench, or on the PATH")
	f.StringVar(&o.Profiles, "profiles", "", "directory for the worker's profiles, which is made: cpu.pprof while it is measured and allocs.pprof, for go tool pprof; empty = none are kept")
	f.StringVar(&o.Plot, "plot", "pushbench-worker.svg", "file for the plot; empty = none")
	return cmd
}

func newServeCommand(b *bench) *cobra.Command {
	return &cobra.Command{
		Use: serveCommand, Short: "Be one of the servers of worker", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error { return servers.Serve(cmd.Context(), args, b.stderr) },
	}
}

func (b *bench) worker(ctx context.Context, o worker.Options, apns2 bool) error {
	if err := b.prepareWorker(&o); err != nil {
		return err
	}
	if !apns2 {
		r, err := worker.Run(ctx, o)
		if err != nil {
			return err
		}
		return b.show(explainWorker(r))
	}
	// Machines change within minutes: so apns2 is measured on both sides of the worker.
	before, err := b.apns2(ctx)
	if err != nil {
		return err
	}
	r, err := worker.Run(ctx, o)
	if err != nil {
		return err
	}
	after, err := b.apns2(ctx)
	if err != nil {
		return err
	}
	r.Compare((before.CPU+after.CPU)/2, (before.PushesPerSecond+after.PushesPerSecond)/2)
	return b.show(explainWorker(r))
}

// prepareWorker fills in the programs, and checks the options.
func (b *bench) prepareWorker(o *worker.Options) error {
	me, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	o.Serve = []string{me, serveCommand}
	o.Progress = b.progress
	if !o.Embedded {
		if err := findProgram(&o.Worker, "pushworker", "--worker"); err != nil {
			return usageError{err}
		}
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// apns2 is what apns2 takes for a push now, and how many it sends a second.
func (b *bench) apns2(ctx context.Context) (*send.Figures, error) {
	o := send.Options{Only: []string{"apns2"}}
	if err := b.prepareSend(&o); err != nil {
		return nil, err
	}
	r, err := send.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return r.APNS2, nil
}

// explainWorker is a table with a row per figure and per setting of the run.
func explainWorker(r *worker.Result) terminal.Answer {
	t := terminal.Table{Columns: []string{"figure", "value"}}
	t.Add("notifications/s", figure(&r.Rate, 0))
	t.Add("worker CPU us", figure(&r.WorkerCPU, 1))
	for _, name := range largest(r.Parts) {
		us := r.Parts[name]
		t.Add("  "+name, figure(&us, 2))
	}
	t.Add("of apns2's CPU", figure(r.WorkerRatio, 3))
	t.Add("notifications/s to apns2's pushes/s", figure(r.RateRatio, 2))
	t.Add("Kafka CPU us", figure(&r.KafkaCPU, 1))
	t.Add("Redis CPU us", figure(&r.RedisCPU, 1))
	t.Add("Cassandra CPU us", figure(r.CassandraCPU, 1))
	t.Add("simulator CPU us", figure(&r.SimCPU, 1))
	t.Add("allocations", figure(&r.Allocations, 2))
	for _, name := range largest(r.AllocationOwners) {
		n := r.AllocationOwners[name]
		t.Add("  "+name, figure(&n, 2))
	}
	t.Add("rows per status batch", figure(r.RowsPerBatch, 1))
	t.Add("one-time passwords p50, p99 ms", figure(r.CriticalP50, 1)+", "+figure(r.CriticalP99, 1))
	t.Add("  without a backlog", figure(r.CriticalUnloadedP50, 1)+", "+figure(r.CriticalUnloadedP99, 1))
	if r.ProducedPerSecond > 0 {
		t.Add("notifications p50, p99 ms", figure(r.NotificationP50, 1)+", "+figure(r.NotificationP99, 1))
	}
	if r.Workers > 1 {
		t.Add("of the pushes, by worker", strings.Join(percents(r.Shares), ", "))
	}
	t.Add("worker peak memory MiB", strconv.Itoa(r.RSS))
	t.Add("other cores", figure(&r.OthersCores, 2))
	t.Add("cores on which Java compiles", figure(&r.Compiling, 2))
	t.Add("confirmed by a status read", percent(r.Confirmed))
	t.Add("pushes and rows checked", strconv.Itoa(r.Checked))
	for _, s := range [][2]string{
		{"workers", strconv.Itoa(r.Workers)}, {"partitions", strconv.Itoa(r.Partitions)},
		{"limit rules", strconv.Itoa(r.LimitRules)}, {"ids minted/s", strconv.Itoa(r.Minted)}, {"duplicates", percent(&r.Duplicates)},
		{"commit log", r.CommitLog}, {"packed rows", strconv.FormatBool(r.PackedRows)}, {"replication of topics", strconv.Itoa(r.KafkaReplication)},
		{"replication of the keyspace", r.KeyspaceReplication}, {"plot", r.Plot},
	} {
		t.Add(s[0], s[1])
	}
	kind := "real"
	if r.Embedded {
		kind = "embedded"
	}
	return terminal.Answer{Value: r, Table: t,
		Before: fmt.Sprintf("%d notifications in %.1f s with %s servers on %d cores, %s; CPU and allocations per notification:", r.Notifications, r.Seconds, kind, r.Cores, r.Go)}
}

// largest are the names of parts, the largest first.
func largest(parts map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), cmp.Compare(a, b))
	})
}

func percents(shares []float64) (all []string) {
	for _, s := range shares {
		all = append(all, percent(&s))
	}
	return all
}

func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return strconv.FormatFloat(100**share, 'f', 1, 64) + " %"
}
