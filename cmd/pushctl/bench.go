package main

import "github.com/spf13/cobra"

// newBenchCommand says where the measurements went. It stays hidden, for those
// who have the old words in a script.
func newBenchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "bench", Short: "Moved: pushbench whole, pushbench send", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("the measurements are a program of their own now: pushbench whole, pushbench send")
		},
	}
}
