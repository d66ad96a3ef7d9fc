//go:build planted

package main

import (
	"github.com/pushfleet/pushfleet/bench/mutants/planted"
	"github.com/pushfleet/pushfleet/worker"
)

// plant makes the worker do wrong what the environment says.
func plant(o *worker.Options) { planted.Plant(o) }
