package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/configs"
)

func newConfigCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or print the configuration",
	}
	cmd.PersistentFlags().StringVarP(&path, "config", "c", "", "configuration file; without it, the defaults")
	check := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with the configuration, all of it at once",
		Long: `Reads the file and the PUSHFLEET_ environment variables as the worker would, opens
every file that they name, and says all that is wrong, each with its key.

Exit codes: 0 fine, 2 not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := c.CheckRun(); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d lanes, %d apps, at most about %d MiB of memory\n", len(c.Lanes), len(c.Apps), int64(c.MemoryBound().Total())>>20)
			return err
		},
	}
	print := &cobra.Command{
		Use:   "print",
		Short: "Print every setting as it is in effect; secrets are files and stay there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			return configs.Print(cmd.OutOrStdout(), c)
		},
	}
	cmd.AddCommand(check, print)
	return cmd
}
