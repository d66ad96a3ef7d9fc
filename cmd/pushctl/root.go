package main

import (
	"context"

	"github.com/spf13/cobra"
)

// commands are all of them, in the order of the help. A new one gets its file
// and its line here.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newTopicsCommand(a),
		newSchemaCommand(a),
		newDevicesCommand(a),
		newPrefsCommand(a),
		newUsersCommand(a),
		newSendCommand(a),
		newLoadCommand(a),
		newStatusCommand(a),
		newDLQCommand(a),
		newEventsCommand(a),
		newLagCommand(a),
		newDedupeCommand(a),
		newBenchCommand(),
	}
}

// execute parses args and runs the command they name. What is wrong before a
// command starts is the caller's words: a usageError.
func (a *app) execute(ctx context.Context, args []string) error {
	started := false
	root := &cobra.Command{
		Use:           "pushctl",
		Short:         "Operate a pushfleet",
		Long:          "pushctl operates a pushfleet: it reads the worker's configuration for the connections to\nKafka, Redis and Cassandra. Environment variables (PUSHFLEET_…) override it, as they do for the worker.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			started = true
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&a.configPath, "config", "", "configuration `file` of the worker; none = the defaults (servers on this machine)")
	flags.VarP(&a.format, "output", "o", "output: table or json")
	root.AddCommand(commands(a)...)
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !started {
		return usageError{err}
	}
	return err
}

// newGroup is a command that only holds others. Cobra would answer a word that
// names none of them with the help and exit status 0; scripts want to know.
func newGroup(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("%s does nothing by itself: see %s --help", cmd.CommandPath(), cmd.CommandPath())
		},
	}
	cmd.AddCommand(subcommands...)
	return cmd
}
