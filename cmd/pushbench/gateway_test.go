//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/gateway"
	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func TestGatewayUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"want 0.1 to 600": {"--gateway", os.Args[0], "--seconds", "0"}, "0 connections": {"--gateway", os.Args[0], "--connections", "0"},
		"1001 lines": {"--gateway", os.Args[0], "--lines", "1001"}, "17 connections for batches": {"--gateway", os.Args[0], "--batches", "17"},
		"900 receipts": {"--gateway", os.Args[0], "--receipts", "900"}, "10001 idle": {"--gateway", os.Args[0], "--idle", "10001"},
		"10000001 subscribers": {"--gateway", os.Args[0], "--subscribers", "10000001"}, "only a fan-out": {"--gateway", os.Args[0], "--only-fanout", "--subscribers", "0"},
		"no such file": {"--gateway", "/does/not/exist"}, `"all"`: {"all"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), append([]string{"gateway"}, args...), strings.NewReader(""), &stdout, &stderr)
		if exit != exitUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", args, exit, stderr.String(), stdout.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if exit := run(t.Context(), []string{callCommand}, strings.NewReader("{"), &stdout, &stderr); exit != exitFailed || !strings.Contains(stderr.String(), "what to call") {
		t.Errorf("callers without anything to do: status %d, %q", exit, stderr.String())
	}
}

// The table has a row for each measurement and what was missed; JSON is on one line.
func TestGatewayAnswer(t *testing.T) {
	p50, p99 := 7.25, 21.5
	l := func(rate float64) *gateway.Load {
		return &gateway.Load{Rate: rate, P50: &p50, P99: &p99, GatewayCPU: 31.5, KafkaCPU: 4.5, CassandraCPU: 0.25, CallerCPU: 3, Allocations: 22, Bytes: 2048, Others: 0.1, Compiling: 0.03, Rounds: 4}
	}
	r := &gateway.Result{Single: l(21_000.4), SingleHalf: l(10_500), Batch: l(150_000), Query: l(60_000), StartRSS: 20, IdleRSS: 180.25, IdleFanout: 1_000_000, PeakRSS: 200, Acknowledged: 1_000_000,
		Fanout:  &gateway.Fanout{Subscribers: 1_000_000, Seconds: 8, Rate: 125_000, FanoutCPU: 2.25, KafkaCPU: 3.5, CassandraCPU: 6.75, Allocations: 3.25, Bytes: 806, PeakRSS: 62.5, Others: 0.5, Compiling: 0.05, Rounds: 7},
		Seconds: 10, Connections: 256, Batches: 8, Lines: 500, Queries: 4, Receipts: 50_000, Each: 1000, Idle: 10_000, Partitions: 4, Cores: 2, Go: "go1",
		Bars: []send.Bar{{Name: "one", Want: 1, Got: 2, Met: true}, {Name: "two", Want: 3, Got: 2.5}}, Aims: []send.Bar{{Name: "three", Want: 4, Got: 3}}}
	var stdout bytes.Buffer
	b := newBench(strings.NewReader(""), &stdout, &stdout)
	b.format = terminal.FormatTable
	if err := b.show(explainGateway(r)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"10 s each, 256 connections for single messages, 8 for batches, 4 for queries, on 2 cores with real servers, go1; CPU and allocations for one message or receipt:",
		"single messages 21000 7.2 21.5 31.50 4.50 0.25 3.00 22.0 2048 0.10 0.03 4", "at half of that rate 10500 7.2 21.5 31.50 4.50 0.25 3.00 22.0 2048 0.10 0.03 4",
		"messages in batches of 500 150000 7.2 21.5 31.50 4.50 0.25 3.00 22.0 2048 0.10 0.03 4", "receipts, 1000 a query 60000 7.2 21.5 31.50 4.50 0.25 3.00 22.0 2048 0.10 0.03 4",
		"a message to 1000000 subscribers: 125000 records a second, 8.00 s; CPU of the fan-out 2.25 us, Kafka 3.50 us, Cassandra 6.75 us, 3.2 allocations and 806 bytes a record; 62.5 MiB at the most; 0.50 other cores, Java compiled on 0.05, the last of 7 rounds",
		"gateway's memory: 20.0 MiB when it was ready, 180.2 MiB with 10000 idle connections while a message to 1000000 was worked on, 200.0 MiB at the most; 1000000 messages were acknowledged, and are in Kafka",
		"missed: two is 2.5, want 3", "hoped for: three is 3, want 4",
	} {
		if !strings.Contains("\n"+spaced(stdout.String()), "\n"+want+"\n") {
			t.Errorf("%q is not in\n%s", want, stdout.String())
		}
	}
	stdout.Reset()
	b.format = terminal.FormatJSON
	if err := b.show(explainGateway(r)); err != nil || strings.Count(stdout.String(), "\n") != 1 {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	var said struct {
		Single struct {
			Rate float64 `json:"per_second"`
		} `json:"single"`
		Bars []send.Bar `json:"bars"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &said); err != nil || said.Single.Rate != 21_000.4 || len(said.Bars) != 2 {
		t.Errorf("%v: %s", err, stdout.String())
	}
}
