package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/wiring"
)

func newConfigCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or print the configuration",
	}
	cmd.PersistentFlags().StringVarP(&path, "config", "c", "", "configuration file; without it, the defaults")
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the configuration and report every problem at once",
		Long: `Reads the file and the PUSHFLEET_ environment variables as the worker would, opens
every file that they name, and reports every problem with its key. If there is
none, it prints notes on valid settings that may not be what you intended.

The file is the argument or that of --config.

Exit codes: 0 valid, 2 not valid.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := oneFile(path, args)
			if err != nil {
				return err
			}
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := c.CheckRun(); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			if err := wiring.CheckLimits(c); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d lanes, %d apps, at most about %d MiB of memory\n", len(c.Lanes), len(c.Apps), int64(c.MemoryBound().Total())>>20)
			for _, n := range c.Notes() {
				if err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), "note: "+n.String())
				}
			}
			return err
		},
	}
	print := &cobra.Command{
		Use:   "print [FILE]",
		Short: "Print every setting in effect; of secrets, only the names of their files",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := oneFile(path, args)
			if err != nil {
				return err
			}
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

// oneFile is the configuration file of a command line: its argument, or that of
// --config.
func oneFile(flag string, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return flag, nil
	case flag != "" && flag != args[0]:
		return "", &exitError{exitUsage, errors.New("the argument and --config name two different files")}
	}
	return args[0], nil
}
