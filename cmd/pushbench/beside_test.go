//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/beside"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func TestBesideUsage(t *testing.T) {
	programs := []string{"beside", "--gateway", os.Args[0], "--worker", os.Args[0]}
	for want, args := range map[string][]string{
		"0 subscribers": {"--subscribers", "0"}, "10000001 subscribers": {"--subscribers", "10000001"}, "0 messages a second": {"--rate", "0"},
		"0 s on an idle fleet": {"--idle", "0"}, "-1 s beside": {"--seconds", "-1"}, "lag time of -1s": {"--lag-time", "-1s"}, "0 workers": {"--workers", "0"},
		"--gateway: ": {"--gateway", "/does/not/exist"}, "--worker: ": {"--worker", "/does/not/exist"}, `"all"`: {"all"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), append(programs[:len(programs):len(programs)], args...), strings.NewReader(""), &stdout, &stderr)
		if exit != exitUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", args, exit, stderr.String(), stdout.String())
		}
	}
}

// The table has a row for each time, and behind it what is missing and how far the message to many came.
func TestBesideAnswer(t *testing.T) {
	ms := func(v float64) *float64 { return &v }
	cores := map[string]float64{beside.GatewayProcess: 0.03, beside.FanoutProcess: 0.07, beside.WorkerProcess: 0.5, beside.KafkaServer: 0.2, beside.RedisServer: 0.06, beside.CassandraServer: 0.9, beside.Simulator: 0.1, beside.MeasuringProcess: 0.02}
	r := &beside.Result{Idle: beside.Messages{Samples: 600, P50: ms(28.5), P99: ms(36.5), Max: ms(90), CPU: map[string]float64{beside.WorkerProcess: 0.1}},
		Beside:   beside.Messages{Seconds: 80, Samples: 1600, P50: ms(57), P99: ms(73), Max: ms(400), CPU: cores, Others: 0.01, Compiling: 0.3},
		P50Ratio: ms(2), P99Ratio: ms(2), Sent: 2400, Refused: 3, Undelivered: 4, Subscribers: 1_000_000, Emitted: 1_000_000, EmittedSeconds: ms(79.5), Pushed: 1_000_000, PushedAll: true, Rate: 12_500,
		MessagesPerSecond: 20, Latency: 50, Workers: 1, Cores: 2, Go: "go1"}
	for _, want := range []string{
		"20 single messages a second beside one to 1000000 subscribers in another lane, providers that answer after 50 ms, workers: 1, 2 cores with real servers, go1; CPU in cores:",
		"on an idle fleet 600 28.5 36.5 90.0 0.00 0.00 0.10 0.00 0.00 0.00 0.00 0.00 0.00 0.00",
		"beside a message to many 1600 57.0 73.0 400.0 0.03 0.07 0.50 0.20 0.06 0.90 0.10 0.02 0.01 0.30",
		"beside by idle: p50 2.00, p99 2.00", "of 2400 single messages that were accepted 4 have not arrived; 3 were refused",
		"the message to many: 1000000 emitted, 79.5 s until all were; 1000000 pushed in 80.0 s, 12500 a second: all were pushed",
	} {
		if said := besideText(t, r, terminal.FormatTable); !strings.Contains("\n"+spaced(said), "\n"+want+"\n") {
			t.Errorf("%q is not in\n%s", want, said)
		}
	}
	r.SameLane, r.PushedAll, r.EmittedSeconds, r.P50Ratio = true, false, nil, nil
	for _, want := range []string{"in the same lane,", "p50 -,", ", - s until all were;", "the time was over before all were pushed"} {
		if said := besideText(t, r, terminal.FormatTable); !strings.Contains(said, want) {
			t.Errorf("%q is not in\n%s", want, said)
		}
	}
	if said := besideText(t, r, terminal.FormatJSON); strings.Count(said, "\n") != 1 || !strings.Contains(said, `"beside":{"seconds":80,"samples":1600,"p50_ms":57,`) || !strings.Contains(said, `"emitted_seconds":null,`) {
		t.Errorf("as JSON %s", said)
	}
}

func besideText(t *testing.T, r *beside.Result, f terminal.Format) string {
	t.Helper()
	var stdout bytes.Buffer
	b := newBench(strings.NewReader(""), &stdout, &stdout)
	b.format = f
	if err := b.show(explainBeside(r)); err != nil {
		t.Fatal(err)
	}
	return stdout.String()
}
