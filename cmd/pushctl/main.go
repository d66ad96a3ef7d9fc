// Command pushctl is the operator's tool: topics, schema, devices, preferences,
// sending, status, dead letters, events, lag, segments and sizing. It takes the
// connections from the worker's configuration and never talks to a running
// worker.
//
//	main.go     exit statuses, signals
//	root.go     the command tree and its common flags
//	app.go      what commands share: configuration and connections
//	lines.go    files of lines, progress
//	<name>.go   one file per command: newNameCommand(app) *cobra.Command
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1 // failed, or found a difference
	exitUsage       = 2 // wrong usage or configuration
	exitInterrupted = 130
)

func main() {
	shards.LogTo(slog.New(slog.DiscardHandler)) // the command itself reports errors, once
	// The first signal ends ctx, the second one the process.
	ctx, _ := terminal.UntilSignal(context.Background())
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// usageError is a mistake in the command line or configuration: exit status 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// errDifference is returned by a command that has printed its answer and found
// something that is not as it should be: exit status 1 without a message.
var errDifference = errors.New("found a difference")

// run is the whole program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := newApp(stdin, stdout, stderr)
	defer a.close()
	return a.end(ctx, a.execute(ctx, args))
}

// end prints an error that has not been printed yet, and returns the exit
// status.
func (a *app) end(ctx context.Context, err error) int {
	status := exitStatus(ctx, err)
	if err != nil && !errors.Is(err, errDifference) {
		if status == exitInterrupted {
			err = interrupted(err)
		}
		fmt.Fprintln(a.stderr, "pushctl:", err)
	}
	return status
}

// partly is the error of a command that had already changed something. The
// message says what, even if the command was interrupted.
type partly struct {
	err  error
	done string
}

func (e *partly) Error() string { return e.err.Error() + " (" + e.done + ")" }
func (e *partly) Unwrap() error { return e.err }

// partlyf wraps err with what was done before it.
func partlyf(err error, format string, args ...any) error {
	return &partly{err, fmt.Sprintf(format, args...)}
}

// showDone shows what a command has done to records, also where it ended with err, which
// then says what that does not count.
func (a *app) showDone(answer terminal.Answer, err error) error {
	if more, ok := errors.AsType[*dlq.UncountedError](err); ok {
		err = &partly{more.Err, more.Done()}
	}
	if shown := a.show(answer); shown != nil {
		return errors.Join(err, shown)
	}
	return err
}

// interrupted is the message for a command that a signal ended with err. It
// keeps what the command had done.
func interrupted(err error) error {
	cause := errors.New("interrupted")
	if some, ok := errors.AsType[*partly](err); ok {
		return &partly{cause, some.done}
	}
	return cause
}

func exitStatus(ctx context.Context, err error) int {
	var (
		usage    usageError
		problems configs.Problems
		named    *reach.ConfigError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.As(err, &problems), errors.As(err, &named):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	default:
		return exitFailed
	}
}
