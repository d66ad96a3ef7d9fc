// Command pushsim is a server that simulates APNs, FCM HTTP v1 and Google's token
// endpoint, for trying out and measuring a worker without Apple and Google.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// shutdownTime is how long answers in flight may take at the end.
const shutdownTime = 5 * time.Second

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, signals))
}

// errUsage marks errors of the command line.
type errUsage struct{ error }

// run is the whole program; a signal ends it. It returns the exit status.
// Control characters are removed from everything printed.
func run(args []string, out, errs io.Writer, signals <-chan os.Signal) int {
	stdout, stderr := terminal.NewWriter(out), terminal.NewWriter(errs)
	f := defaults()
	started := false
	status := exitDone
	cmd := &cobra.Command{
		Use: "pushsim", Short: "Simulate APNs and FCM", Long: long, Example: example,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(*cobra.Command, []string) (err error) {
			started = true
			status, err = serve(f, stdout, signals)
			return err
		},
	}
	f.register(cmd.Flags())
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.Execute()
	if err == nil {
		return status
	}
	_, _ = fmt.Fprintln(stderr, "pushsim:", err)
	var usage errUsage
	if !started || errors.As(err, &usage) {
		_, _ = fmt.Fprintln(stderr, "Run pushsim --help for the flags.")
		return exitUsage
	}
	return exitFailed
}

// serve runs the simulator until a signal arrives, and prints the ledger's
// totals.
func serve(f *flags, stdout io.Writer, signals <-chan os.Signal) (int, error) {
	options, credentials, err := f.options()
	if err != nil {
		return exitUsage, errUsage{err}
	}
	stopProfile, err := f.startProfile()
	if err != nil {
		return exitFailed, err
	}
	defer stopProfile()
	s, err := sim.New(options)
	if err != nil {
		return exitUsage, errUsage{err}
	}
	status, err := serveUntil(s, f, credentials, stdout, signals)
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if e := s.Shutdown(ctx); err == nil && !errors.Is(e, context.DeadlineExceeded) {
		err = e
	}
	if status == exitFailed || err != nil {
		return exitFailed, err
	}
	return status, f.report(stdout, s.Ledger().Totals())
}

func serveUntil(s *sim.Server, f *flags, credentials []*sim.Credentials, stdout io.Writer, signals <-chan os.Signal) (int, error) {
	if err := s.Start(f.listen); err != nil {
		return exitFailed, err
	}
	if f.admin != "" {
		if err := s.StartAdmin(f.admin); err != nil {
			return exitFailed, err
		}
	}
	started, err := f.write(s, credentials)
	if err != nil {
		return exitFailed, err
	}
	if err := f.announce(stdout, started); err != nil {
		return exitFailed, err
	}
	if <-signals == os.Interrupt {
		return exitInterrupted, nil
	}
	return exitDone, nil
}

// startProfile profiles this process, if --cpu-profile is given, until stop is
// called.
func (f *flags) startProfile() (stop func(), err error) {
	if f.profile == "" {
		return func() {}, nil
	}
	file, err := os.Create(f.profile)
	if err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("profiling: %w", err), file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close() // pprof reports an incomplete profile when it reads it
	}, nil
}
