package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gateway"
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
		Long: `Reads the file and the PUSHFLEET_ environment variables as the gateway would, opens
every file that it would open, and reports every problem with its key. If there is
none, it prints which lane takes which service type.

The file is the argument or that of --config.

Exit codes: 0 valid, 2 not valid.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := oneFile(path, args)
			if err != nil {
				return err
			}
			c, err := loadToServe(path)
			if err != nil {
				return err
			}
			callers, signer, err := checkKeys(c)
			if err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			return report(cmd, c, callers, signer)
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

// checkKeys reads what CheckGateway only opens: the callers' keys, and the secrets of
// receipts and of confidential texts.
func checkKeys(c *configs.Config) (callers *gateway.Callers, signer *gateway.Signer, err error) {
	if callers, err = gateway.OpenCallers(c.Gateway.KeysFile); err != nil {
		return nil, nil, fmt.Errorf("gateway.keys_file: %w", err)
	}
	if signer, err = wiring.Signer(c); err != nil {
		return nil, nil, fmt.Errorf("gateway.receipts_file: %w", err)
	}
	if _, err := wiring.Confidential(c); err != nil {
		return nil, nil, fmt.Errorf("gateway.confidential.keys_file: %w", err)
	}
	return callers, signer, nil
}

// report prints what a valid configuration means.
func report(cmd *cobra.Command, c *configs.Config, callers *gateway.Callers, signer *gateway.Signer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "ok: %d keys, %d apps, at %s\n", callers.Len(), len(c.Apps), c.Gateway.Listen)
	for _, l := range wiring.GatewayLanes(c) {
		fmt.Fprintf(&b, "%s, %s: lane %s, topic %s\n", l.ServiceType, l.Mode, l.Name, l.Topic)
	}
	if n := callers.ByCertificate(); n > 0 && c.Gateway.TLS.ClientCAFile == "" {
		fmt.Fprintf(&b, "note: gateway.keys_file: %d callers are known by certificates, which nobody is asked for: gateway.tls.client_ca_file is not set\n", n)
	}
	if see, act := callers.OfFleet(wiring.AppNames(c)); see > 0 {
		fmt.Fprintf(&b, "dashboard: %d keys see the fleet, %d of them act, at %s\n", see, act, c.Gateway.Dashboard.Listen)
	}
	if from, keyed := signer.KeyedFrom(); keyed {
		fmt.Fprintf(&b, "ids of Idempotency-Keys: by a secret from %s on\n", from.UTC().Format(time.RFC3339))
	} else {
		fmt.Fprintf(&b, "note: gateway.receipts_file: no line ids: whoever knows sender, app, receiver and Idempotency-Key of a message can take its id\n")
	}
	if c.Gateway.Clicks.Enabled && !c.Gateway.Registry {
		fmt.Fprintf(&b, "note: gateway.clicks: apps cannot report UNSUBSCRIBED without gateway.registry\n")
	}
	if c.Gateway.Topics && c.Gateway.Confidential.KeysFile == "" {
		fmt.Fprintf(&b, "note: gateway.confidential.keys_file: confidential topics take no messages without it\n")
	}
	for _, n := range c.Insecure() {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
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
