package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/gateway"
)

func newKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Callers' keys",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "hash < KEY",
		Short: "Print the SHA-256 of a key, which is what gateway.keys_file has of it",
		Long: `Reads one key from standard input, so that it is in no list of processes and no
history, and prints its SHA-256. The key goes to the caller, and the hash to
gateway.keys_file.`,
		Example: "  openssl rand -base64 32 | tee key | pushgateway keys hash",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4<<10))
			if err != nil {
				return &exitError{exitFailed, fmt.Errorf("reading the key: %w", err)}
			}
			key := strings.TrimRight(string(text), "\r\n")
			if key == "" {
				return &exitError{exitUsage, errors.New("standard input has no key")}
			}
			hash, err := gateway.KeyHash(key)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hash)
			return err
		},
	})
	return cmd
}
