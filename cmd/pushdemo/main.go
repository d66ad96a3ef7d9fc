// Command pushdemo runs the whole fleet in one process: in-process servers for
// Kafka, Redis, the status store, APNs and FCM, and the worker and registry of
// production. It accounts for every notification.
//
//	main.go       flags and exit statuses
//	demo.go       one run: users, worker, producer
//	tour.go       afterwards: one message through a gateway
//	serve.go      if asked, a gateway to try instead
//	world.go      the servers around the worker
//	account.go    the outcome of every record
//	result.go     the table, the JSON
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1 // failed, or found a difference
	exitUsage       = 2
	exitInterrupted = 130
)

// exitError carries an exit status to run.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	// The first signal ends ctx, the second one the process.
	ctx, _ := terminal.UntilSignal(context.Background())
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// flags are the command line.
type flags struct {
	notifications int
	latency       time.Duration
	json          bool
	serve         bool   // go on with a gateway
	listen        string // where it listens
}

// run is the whole program. It returns the exit status. Control characters are
// removed from everything printed.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	stdout, stderr := terminal.NewWriter(out), terminal.NewWriter(errs)
	cmd := newCommand(stdout, stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintln(stderr, "pushdemo:", err)
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.status
	}
	return exitUsage // cobra's own: unknown flag
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "pushdemo",
		Short: "Run the whole fleet in one process and account for every record",
		Long: `Starts Kafka, Redis, the status store and simulators of APNs and FCM in this
process, on free ports of 127.0.0.1, makes up users and notifications, and lets
a worker deliver them. Some users have opted out, are over their cap, or have
dead tokens or no device; some records are copies, expired or broken. Nothing
needs to be installed, and nothing is left behind.

The demo ends with a table that accounts for every record. It compares what was
produced with the providers' own ledger, the status store and the DLQ: each
delivered notification must have reached every device of its user.

After that one more message is sent as other services do, through a gateway. With
--serve the gateway stays instead, until Ctrl-C: send messages by the commands that it prints, and ask what became of them.

Exit codes: 0 all agrees, 1 something is lost, sent twice or disagrees, 2 wrong
usage, 130 after Ctrl-C.`,
		Example:      "  pushdemo\n  pushdemo --notifications 1000000 --latency 50ms\n  pushdemo --json | tail -1\n  pushdemo -n 1000 --serve   # and then send some by curl",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.notifications < 1 || f.notifications > 20_000_000 {
				return &exitError{exitUsage, errors.New("--notifications must be 1 to 20,000,000")}
			}
			if f.latency < 0 || f.latency > 5*time.Second {
				return &exitError{exitUsage, errors.New("--latency must be 0 to 5s")}
			}
			if _, port, err := net.SplitHostPort(f.listen); err != nil || port == "" {
				return &exitError{exitUsage, fmt.Errorf("--listen %q: want HOST:PORT, as 127.0.0.1:8088", f.listen)}
			}
			return runDemo(cmd.Context(), f, stdout, stderr)
		},
	}
	cmd.Flags().IntVarP(&f.notifications, "notifications", "n", 100_000, "records to produce")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "time the providers take to answer")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as JSON in the last line, progress on standard error")
	cmd.Flags().BoolVar(&f.serve, "serve", false, "go on with a gateway until Ctrl-C, and print what can be tried")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8088", "where that gateway listens")
	return cmd
}
