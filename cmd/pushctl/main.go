// Command pushctl is the operator's tool: topics, schema, devices,
// preferences, sending and looking up. It reads the worker's configuration for
// the connections, and nothing from a running worker.
//
//	main.go     exit statuses, signals
//	root.go     the command tree and its common flags
//	app.go      what commands share: configuration and connections
//	output.go   tables for people, JSON for scripts
//	<name>.go   one file a command: newNameCommand(app) *cobra.Command
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
	"github.com/pushfleet/pushfleet/shards"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1 // failed, or found a difference
	exitUsage       = 2 // wrong usage or configuration
	exitInterrupted = 130
)

func main() {
	shards.LogTo(slog.New(slog.DiscardHandler))          // what fails is told once, by the command
	ctx, _ := terminal.UntilSignal(context.Background()) // until the process ends
	// A second signal ends the process at once.
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// usageError is a command that was given the wrong words: exit status 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// errDifference is returned by a command that has reported what it found and
// found that it is not as it should be: exit status 1 without another word.
var errDifference = errors.New("found a difference")

// run is the whole command. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := newApp(stdin, stdout, stderr)
	defer a.close()
	return a.end(ctx, a.execute(ctx, args))
}

// end tells of an error that nobody has told yet, and returns the exit status.
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

// partly is an error of a command that had done something by then: that is told
// however the command ended.
type partly struct {
	err  error
	done string
}

func (e *partly) Error() string { return e.err.Error() + " (" + e.done + ")" }
func (e *partly) Unwrap() error { return e.err }

// partlyf makes a partly of err.
func partlyf(err error, format string, args ...any) error {
	return &partly{err, fmt.Sprintf(format, args...)}
}

// interrupted is what there is to say of a command that a signal has ended with
// err: what it had done.
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
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.As(err, &problems):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	default:
		return exitFailed
	}
}
