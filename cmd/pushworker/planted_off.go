//go:build !planted

package main

import "github.com/pushfleet/pushfleet/worker"

// plant changes nothing. With the build tag planted it spoils what the worker
// works with, so that bench/mutants can show that its checkers notice.
func plant(*worker.Options) {}
