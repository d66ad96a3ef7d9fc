//go:build !linux

package main

import "github.com/spf13/cobra"

// newBenchCommand stands in for the measurements, which read Linux's account
// of each process.
func newBenchCommand(*app) *cobra.Command {
	return newGroup("bench", "Measure on this machine; on Linux only")
}
