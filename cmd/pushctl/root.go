package main

import (
	"context"

	"github.com/spf13/cobra"
)

// commands are all commands, in the order of the help. A new one gets a file of
// its own and a line here.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newTopicsCommand(a),
		newSchemaCommand(a),
		newDevicesCommand(a),
		newPrefsCommand(a),
		newProfileCommand(a),
		newUsersCommand(a),
		newSendCommand(a),
		newLoadCommand(a),
		newStatusCommand(a),
		newDLQCommand(a),
		newReplayCommand(a),
		newWebhooksCommand(a),
		newEventsCommand(a),
		newLagCommand(a),
		newDashboardCommand(a), newTopCommand(a),
		newDedupeCommand(a),
		newLimitsCommand(a), newSegmentsCommand(a),
		newProvidersCommand(a),
		newPlanCommand(a),
		newBenchCommand(),
	}
}

// execute parses args and runs the command they name. An error before the
// command starts is a usageError.
func (a *app) execute(ctx context.Context, args []string) error {
	started := false
	root := &cobra.Command{
		Use:           "pushctl",
		Short:         "Operate a pushfleet",
		Long:          "pushctl operates a pushfleet. It takes the connections to Kafka, Redis and Cassandra from the worker's\nconfiguration. Environment variables (PUSHFLEET_…) override it, as they do for the worker.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			started = true
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&a.configPath, "config", "", "configuration `file` of the worker; default: servers on this machine")
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

// newGroup makes a command that only groups others. For an unknown subcommand
// Cobra would print the help with exit status 0; a script needs an error.
func newGroup(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("%s needs a subcommand: see %s --help", cmd.CommandPath(), cmd.CommandPath())
		},
	}
	cmd.AddCommand(subcommands...)
	return cmd
}
