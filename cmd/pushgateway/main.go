// Command pushgateway takes notifications over HTTP for the fleet's lanes and tells what
// became of them. This package has the flags and exit codes; package worker runs the
// process, and package gateway answers the requests.
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

func main() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// execute runs one command line and returns its exit code. The first signal ends the
// command's context, the second ends the process at once. Control characters are removed
// from everything printed and logged.
func execute(args []string, in io.Reader, out, errs io.Writer) int {
	stdout, stderr := terminal.NewWriter(out), terminal.NewWriter(errs)
	ctx, stop := terminal.UntilSignal(context.Background())
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		_, _ = fmt.Fprintln(stderr, "pushgateway: "+exit.Error())
		return exit.code
	}
	_, _ = fmt.Fprintln(stderr, "pushgateway: "+err.Error())
	return exitUsage // cobra's own: unknown command or flag
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pushgateway",
		Short: "Takes notifications over HTTP and tells what became of them",
		Long: `pushgateway is the way into the lanes for services that speak HTTP and not Kafka.
Start as many as you like behind a load balancer: they share nothing but their
files of keys and secrets.

New here?  docs/gateway.md, and /openapi of a gateway, in a browser`,
		SilenceUsage: true, SilenceErrors: true, Version: version + " " + commit(),
	}
	root.AddCommand(newServeCommand(), newFanoutCommand(), newWebhooksCommand(), newDashboardCommand(), newConfigCommand(), newKeysCommand())
	return root
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

// loadToServe reads the configuration of a gateway, and all that it names. Problems are a
// usage error that names the keys.
func loadToServe(path string) (*configs.Config, error) {
	c, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	if err := c.CheckGateway(); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
	}
	return c, nil
}

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
