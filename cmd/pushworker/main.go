// Command pushworker is the fleet's worker, which consumes notifications from
// Kafka and pushes them to Apple and Google, and the registry, which keeps Redis
// filled with users. This package has the flags and exit codes; package worker
// runs the processes, and package pipeline has the way of a notification.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = "dev"

// Exit codes. Scripts depend on them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
)

// exitError carries an exit code to main.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs one command line and returns its exit code. The first signal
// ends the command's context, the second ends the process at once. Control
// characters are removed from everything printed and logged.
func execute(args []string, out, errs io.Writer) int {
	stdout, stderr := terminal.NewWriter(out), terminal.NewWriter(errs)
	ctx, stop := terminal.UntilSignal(context.Background())
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		if exit.err != nil {
			_, _ = fmt.Fprintln(stderr, "pushworker: "+exit.Error())
		}
		return exit.code
	}
	_, _ = fmt.Fprintln(stderr, "pushworker: "+err.Error())
	return exitUsage // cobra's own: unknown command or flag
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pushworker",
		Short: "Consumes notifications from Kafka and pushes them to APNs and FCM",
		Long: `pushworker is the worker of a push-notification fleet. Start as many as there
are partitions; they share the topics as a consumer group.

New here?  pushdemo                   everything in one process, nothing to install
           pushworker config print    every setting with its default`,
		SilenceUsage: true, SilenceErrors: true, Version: version + " " + commit(),
	}
	root.AddCommand(newRunCommand(), newRegistryCommand(), newDemoCommand(), newConfigCommand())
	return root
}

// newDemoCommand names the program that has replaced `pushworker demo`. It is
// hidden, for scripts that still use the old command.
func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Moved: pushdemo", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &exitError{exitUsage, errors.New("moved to a program of its own: pushdemo, or make demo")}
		},
	}
}

// commit is the revision that the binary was built from, if it is known.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "(unknown revision)"
}

// loadConfig reads and checks the configuration. Problems are a usage error that
// names the keys.
func loadConfig(path string) (*configs.Config, error) {
	c, err := configs.Load(path, os.Environ())
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return c, nil
}

// newLogger makes a logger that writes to w, in the configured format.
func newLogger(w io.Writer, l configs.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // Validate allows only the four levels
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}
