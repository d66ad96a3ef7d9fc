//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/gates"
	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func TestGatesUsage(t *testing.T) {
	for why, tt := range map[string]struct {
		args []string
		want string
	}{
		"a part of a batch":       {[]string{"--users", "15000"}, "multiple of 10000"},
		"nobody":                  {[]string{"--users", "0"}, "0 users"},
		"nothing to measure":      {[]string{"--passes", "0"}, "pass"},
		"more than the caps take": {[]string{"--users", "200000", "--passes", "30"}, "fewer passes"},
		"a negative rate":         {[]string{"--usual", "-1"}, "usual rate"},
		"an argument":             {[]string{"all"}, "all"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), append([]string{"gates"}, tt.args...), strings.NewReader(""), &stdout, &stderr)
		if exit != exitUsage || !strings.Contains(stderr.String(), tt.want) || stdout.Len() > 0 {
			t.Errorf("%s: status %d, %q, %q", why, exit, stderr.String(), stdout.String())
		}
	}
}

// JSON is on one line, and its keys are what scripts read.
func TestGatesAnswer(t *testing.T) {
	r := &gates.Result{Rate: 150_000.4, WorkerCPU: 1.5, RedisCPU: 4.5, OneCall: 50_000, RatioOneCall: 3, OneCallWorker: 4, OneCallRedis: 15,
		RecordCPU: 0.5, RecordRedis: 0.4, Segment: 12.5, Users: 20_000, Notifications: 40_000, Workers: 4, Cores: 2, Go: "go1", Redis: "7.0", Others: 0.25,
		Spike: gates.Spike{HotUsers: 100, UsualRate: 15_000, Rate: 150_000, Reached: 140_000, UsualP99: 50, P99: 100, RatioP99: 2, Allowed: 995, Offered: 1_000},
		Bars:  []send.Bar{{Name: "one", Want: 1, Got: 2, Met: true}, {Name: "two", Want: 3, Got: 2.5}}}
	for f, want := range map[terminal.Format]string{
		terminal.FormatTable: "40000 notifications each way to 20000 users, 4 batches in flight, on 2 cores with Redis 7.0, go1, 0.25 cores busy with other work:\n" +
			"WHAT                           NOTIFICATIONS/S  WORKER CPU US  REDIS CPU US\n" +
			"record, device and three caps  150000           1.50           4.50\n" +
			"three caps, one call each      50000            4.00           15.00\n" +
			"record alone                   -                0.50           0.40\n" +
			"ratio of the rates 3.00; a segment looked up in 12.5 ns with 0 allocations\n" +
			"spike of 150000/s after 15000/s, 140000/s reached: p99 of a batch 100.0 ms after 50.0 ms (x 2.00); 100 hot users got 995 of 1000, 0 decisions wrong\n" +
			"missed: two is 2.5, want 3\n",
		terminal.FormatJSON: `{"notifications_per_second":150000.4,"worker_cpu_us":1.5,"redis_cpu_us":4.5,"one_call_per_user_per_second":50000,` +
			`"ratio_one_call_per_user":3,"one_call_per_user_worker_cpu_us":4,"one_call_per_user_redis_cpu_us":15,"user_record_cpu_us":0.5,` +
			`"user_record_redis_cpu_us":0.4,"segment_lookup_ns":12.5,"segment_lookup_allocs":0,"spike":{"hot_users":100,"usual_per_second":15000,` +
			`"per_second":150000,"reached_per_second":140000,"usual_p99_ms":50,"p99_ms":100,"ratio_p99":2,"worker_cpu_us":0,"redis_cpu_us":0,"hot_allowed":995,"hot_offered":1000,"wrong_decisions":0},` +
			`"bars":[{"name":"one","want":1,"got":2,"met":true},{"name":"two","want":3,"got":2.5,"met":false}],` +
			`"others_cores":0.25,"users":20000,"notifications":40000,"stage_workers":4,"cores":2,"go":"go1","redis":"7.0"}` + "\n",
	} {
		var stdout bytes.Buffer
		b := newBench(strings.NewReader(""), &stdout, &stdout)
		b.format = f
		if err := b.show(explainGates(r)); err != nil || stdout.String() != want {
			t.Errorf("%s:\n got %q\nwant %q (%v)", f, stdout.String(), want, err)
		}
	}
}
