//go:build !planted

package main

import "github.com/pushfleet/pushfleet/worker"

// plant changes nothing. With the build tag planted it plants a bug, so that
// bench/mutants can show that its checkers find it.
func plant(*worker.Options) {}
