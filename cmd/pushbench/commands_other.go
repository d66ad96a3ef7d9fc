//go:build !linux

package main

import "github.com/spf13/cobra"

// There are none elsewhere: they read Linux's account of each process.
func commands(*bench) []*cobra.Command { return nil }
