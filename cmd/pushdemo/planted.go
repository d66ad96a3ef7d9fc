//go:build planted

package main

import (
	"github.com/pushfleet/pushfleet/bench/mutants/planted"
	"github.com/pushfleet/pushfleet/worker"
)

// plant plants the bug that the environment names in the worker.
func plant(o *worker.Options) { planted.Plant(o) }
