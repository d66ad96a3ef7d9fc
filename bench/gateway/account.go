//go:build linux

package gateway

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// The processes whose time is taken.
const (
	gatewayProcess = "gateway"
	callerProcess  = "caller"
	fanoutProcess  = "fanout"
	kafkaServer    = "kafka"
	redisServer    = "redis"
	cassandra      = "cassandra"
)

// account is what everything had used at one moment.
type account struct {
	at      time.Time
	cpu     map[string]time.Duration // by process
	machine time.Duration
	gateway fleet.Metrics
	// compilers are the threads in which Java compiles, whose time is in cpu too.
	compilers map[int]time.Duration
}

func (w *world) take(ctx context.Context, caller int) (*account, error) {
	a := &account{cpu: make(map[string]time.Duration), compilers: make(map[int]time.Duration)}
	var err error
	if a.gateway, err = w.gateway.Metrics(ctx); err != nil {
		return nil, err
	}
	if a.machine, err = usage.Machine(); err != nil {
		return nil, err
	}
	a.at = time.Now()
	for name, pid := range w.pids {
		if a.cpu[name], err = usage.CPU(pid); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		compilers, err := usage.Compilers(pid)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		maps.Copy(a.compilers, compilers)
	}
	a.cpu[callerProcess], err = usage.CPU(caller)
	return a, err
}

// load is what happened between two accounts, by what was done in it: requests, each of so
// many messages or receipts.
func loadBetween(before, after *account, f *callerFigures, each int) *Load {
	took := after.at.Sub(before.at)
	n := float64(max(1, f.Requests)) * float64(each)
	used := func(name string) float64 { return (after.cpu[name] - before.cpu[name]).Seconds() * 1e6 / n }
	counted := func(name string) float64 { return (after.gateway.Sum(name) - before.gateway.Sum(name)) / n }
	l := &Load{Rate: n / took.Seconds(), P50: f.P50, P99: f.P99, GatewayCPU: used(gatewayProcess), KafkaCPU: used(kafkaServer),
		CassandraCPU: used(cassandra), CallerCPU: used(callerProcess), Allocations: counted("go_memstats_mallocs_total"), Bytes: counted("go_memstats_alloc_bytes_total")}
	var ours []time.Duration
	for name, all := range after.cpu {
		ours = append(ours, all-before.cpu[name])
	}
	l.Others, l.Compiling = usage.Others(took, after.machine-before.machine, ours...), usage.Compiling(took, before.compilers, after.compilers)
	return l
}
