//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// clientCommand is the hidden command that runs one client of send.
const clientCommand = "send-client"

func newSendCommand(b *bench) *cobra.Command {
	o := send.Options{}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Compare the multiplexer and its APNs client with apns2, net/http and h2load, on one simulator",
		Long: `Starts the simulator of APNs without validation, and lets one client after the other send the same
pushes to it as fast as possible, over ten connections of 1,000 streams:

  ours                      the multiplexer (providers/h2) with prepared requests, answered at once
  ours_apns                 the APNs client (providers/apns) on top, as the worker uses it: it makes
                            each push from a message and a device
  h2load                    if installed (Debian: nghttp2-client); once with one thread and once with
                            one per core, of which the faster run counts
  apns2                     apns2's client, which builds the payload of each push: the base of both
                            ratios to apns2, and comparable with ours_apns
  apns2_prebuilt            the same with a prepared payload
  nethttp                   net/http's transport
  ours_50ms                 ours with answers after 50 ms: at most 200,000/s
  ours_one_connection_50ms  the same over one connection: at most 20,000/s
  ours_50ms_validated       ours_50ms with a simulator that validates every push
  sim_raw                   the simulator itself, on one core

Each client and the simulator are separate processes. CPU is the client's time according to the
operating system, without start, connecting and two seconds of warm-up. h2load is measured between two
moments of its main phase: its rate is what the simulator received between them. Everything shares this
machine's cores, so nothing else should run: "other cores" shows what did.

--minutes lengthens ours and records its memory every minute: with 10 or more, "memory" in the JSON
compares the second minute with the tenth. Progress goes to standard error. With --json the last line of
standard output is the JSON; its "bars" are the required values, and whether they were reached.`,
		Example: `  pushbench send                             # a table, after about two minutes
  pushbench send --json --minutes 10         # everything, in less than 13 minutes
  pushbench send --only ours,h2load --seconds 20
  pushbench send --only sim_raw --profiles .   # and then: go tool pprof bin/pushsim sim_raw_simulator.pprof`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				b.format = terminal.FormatJSON
			}
			return b.send(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	f.Float64Var(&o.Minutes, "minutes", 0, "duration of ours in minutes; 0 = --seconds")
	f.Float64Var(&o.Seconds, "seconds", send.DefaultSeconds, "duration of each measurement in seconds")
	f.StringSliceVar(&o.Only, "only", nil, "make only these measurements: "+strings.Join(send.Names(), ", ")+"; default all")
	f.StringVar(&o.Simulator, "pushsim", "", "simulator to send to; default: the one beside pushbench, or on the PATH")
	f.StringVar(&o.Profiles, "profiles", "", "existing folder for CPU profiles of the clients and the simulator")
	return cmd
}

func newClientCommand(b *bench) *cobra.Command {
	return &cobra.Command{
		Use: clientCommand, Short: "Run one client of send: reads its settings, prints its figures", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return send.ServeClient(cmd.Context(), b.stdin, b.stdout)
		},
	}
}

func (b *bench) send(ctx context.Context, o send.Options) error {
	if err := b.prepareSend(&o); err != nil {
		return err
	}
	r, err := send.Run(ctx, o)
	if err != nil {
		return err
	}
	return b.show(explainSend(r))
}

// prepareSend finds the programs of o, and checks it.
func (b *bench) prepareSend(o *send.Options) error {
	if o.Simulator == "" {
		path, err := besideMe("pushsim")
		if err != nil {
			return usageError{fmt.Errorf("--pushsim: %w", err)}
		}
		o.Simulator = path
	}
	me, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	o.Client, o.Progress = []string{me, clientCommand}, b.progress
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// explainSend is a table with a row per client, and the ratios of their rates.
func explainSend(r *send.Result) terminal.Answer {
	t := terminal.Table{Columns: []string{"client", "pushes/s", "CPU us", "allocations", "p50 ms", "p99 ms", "memory MiB", "simulator CPU us", "other cores"}}
	for _, c := range []struct {
		name string
		f    *send.Figures
	}{
		{"ours, prebuilt", r.Ours}, {"ours, with providers/apns", r.OursAPNS}, {"h2load", r.H2Load}, {"apns2", r.APNS2}, {"apns2, prebuilt", r.APNS2Prebuilt},
		{"net/http", r.NetHTTP}, {"ours, 50 ms", r.Ours50ms}, {"ours, 50 ms, one connection", r.OursOneConnection50ms}, {"ours, 50 ms, validated", r.Ours50msValidated},
	} {
		if f := c.f; f != nil {
			t.Add(c.name, figure(&f.PushesPerSecond, 0), figure(&f.CPU, 2), figure(f.Allocations, 2), figure(f.P50, 1), figure(f.P99, 1),
				figure(&f.RSS, 0), figure(&f.ServerCPU, 2), figure(&f.Others, 2))
		}
	}
	after := fmt.Sprintf("ours with providers/apns to apns2 %s; ours, prebuilt, to apns2 %s, to net/http %s, to h2load %s; the simulator on one core: %s answers/s, %s us each",
		figure(r.RatioOursAPNS, 2), figure(r.RatioAPNS2, 2), figure(r.RatioNetHTTP, 2), figure(r.RatioH2Load, 2), figure(r.SimRaw, 0), figure(r.SimRawCPU, 2))
	if r.Ours != nil && r.Ours.Memory != nil {
		m := r.Ours.Memory
		after += fmt.Sprintf("\nmemory of ours: %.1f MiB after 2 minutes, %.1f after 10 (%+.1f %%)", m.Minute2, m.Minute10, 100*m.Growth)
	}
	for _, b := range r.Bars {
		if !b.Met {
			after += fmt.Sprintf("\nmissed: %s is %.6g, want %.6g", b.Name, b.Got, b.Want)
		}
	}
	return terminal.Answer{Value: r, Table: t, After: after,
		Before: fmt.Sprintf("One push, on %d cores with the simulator, %s:", r.Cores, r.Go)}
}

func figure(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', digits, 64)
}
