//go:build !linux

package main

import "github.com/spf13/cobra"

// commands are only available on Linux, because they read /proc.
func commands(*bench) []*cobra.Command { return nil }
