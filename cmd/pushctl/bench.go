package main

import "github.com/spf13/cobra"

// newBenchCommand names the program that has replaced `pushctl bench`. It is
// hidden, for scripts that still use the old command.
func newBenchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "bench", Short: "Moved: pushbench worker, pushbench send", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("moved to a program of its own: pushbench worker, pushbench send")
		},
	}
}
