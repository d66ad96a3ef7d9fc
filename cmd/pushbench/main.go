// Command pushbench measures on this machine, with servers and a simulator of
// its own: one worker from Kafka to provider, the multiplexer beside other
// clients, what decides who is sent what, the gateway, one sender's messages beside another
// one's message to many, segments beside Bloom filters, and what a fleet does under a
// provider's quota.
// bench/README.md has recorded figures.
//
//	main.go     exit statuses, what the commands share
//	worker.go   pushbench worker, on Linux
//	send.go     pushbench send, on Linux
//	gates.go    pushbench gates, on Linux
//	gateway.go  pushbench gateway, on Linux
//	beside.go   pushbench beside, on Linux
//	lookup.go   pushbench lookup, on Linux
//	stress.go   pushbench stress, on Linux
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1 // failed, or a push or a row is missing
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	// The first signal ends ctx, the second one the process.
	ctx, _ := terminal.UntilSignal(context.Background())
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// usageError is a mistake in the command line: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// bench is what the commands share.
type bench struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	format         terminal.Format
}

// newBench makes a bench whose writers remove control characters.
func newBench(stdin io.Reader, out, errs io.Writer) *bench {
	return &bench{stdin: stdin, stdout: terminal.NewWriter(out), stderr: terminal.NewWriter(errs), format: terminal.FormatTable}
}

// run is the whole program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, out, errs io.Writer) int {
	b := newBench(stdin, out, errs)
	started := false
	root := &cobra.Command{
		Use: "pushbench", Short: "Measure pushfleet on this machine",
		Long:         "pushbench measures on this machine, with servers and a simulator of its own. Nothing else should run at\nthe same time. bench/README.md explains the figures and has recorded ones.",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) { started = true },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError{errors.New("pushbench needs a command: see pushbench --help")}
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().VarP(&b.format, "output", "o", "output: table or json")
	root.AddCommand(commands(b)...)
	root.SetArgs(args)
	root.SetIn(b.stdin)
	root.SetOut(b.stdout)
	root.SetErr(b.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	status := exitFailed
	switch _, usage := errors.AsType[usageError](err); {
	case usage, !started:
		status = exitUsage
	case ctx.Err() != nil:
		status, err = exitInterrupted, errors.New("interrupted")
	}
	_, _ = fmt.Fprintln(b.stderr, "pushbench:", err)
	return status
}

// show writes the figures; as JSON, on the last line.
func (b *bench) show(ans terminal.Answer) error { return ans.Write(b.stdout, b.format, "") }

// progress says what is done, a line at a time.
func (b *bench) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(b.stderr, format+"\n", args...) // nothing can be said about it
}

// besideMe finds one of our programs in the directory of this one, or else on
// the PATH.
func besideMe(name string) (string, error) {
	if me, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(me), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// findProgram fills in the path of one of our programs, unless a flag has named another one, which must be there.
func findProgram(path *string, name, flag string) (err error) {
	if *path == "" {
		*path, err = besideMe(name)
	} else {
		_, err = os.Stat(*path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
