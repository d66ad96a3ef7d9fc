//go:build linux

package gateway

import (
	"context"
	"maps"

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

// account is what everything had used at one moment, and what the gateway says of itself.
type account struct {
	*usage.Account
	gateway fleet.Metrics
}

func (w *world) take(ctx context.Context, caller int) (*account, error) {
	metrics, err := w.gateway.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	pids := maps.Clone(w.pids)
	pids[callerProcess] = []int{caller}
	used, err := usage.Take(pids)
	return &account{used, metrics}, err
}

// loadBetween is what happened between two accounts, by what was done in it: requests, each of so
// many messages or receipts.
func loadBetween(before, after *account, f *callerFigures, each int) *Load {
	n, spent := float64(max(1, f.Requests))*float64(each), after.Since(before.Account)
	counted := func(name string) float64 { return (after.gateway.Sum(name) - before.gateway.Sum(name)) / n }
	return &Load{Rate: n / spent.Took.Seconds(), P50: f.P50, P99: f.P99, GatewayCPU: spent.Each(gatewayProcess, n), KafkaCPU: spent.Each(kafkaServer, n),
		CassandraCPU: spent.Each(cassandra, n), CallerCPU: spent.Each(callerProcess, n), Allocations: counted("go_memstats_mallocs_total"), Bytes: counted("go_memstats_alloc_bytes_total"),
		Others: spent.Others, Compiling: spent.Compiling}
}
