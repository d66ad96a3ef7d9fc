//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/send"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func TestSendUsage(t *testing.T) {
	for why, tt := range map[string]struct {
		args []string
		exit int
		want string
	}{
		"an unknown measurement":     {[]string{"send", "--pushsim", "x", "--only", "telex"}, exitUsage, `"telex"`},
		"a negative duration":        {[]string{"send", "--pushsim", "x", "--minutes", "-1"}, exitUsage, "minutes"},
		"a missing simulator":        {[]string{"send", "--pushsim", "/does/not/exist", "--json"}, exitFailed, "/does/not/exist"},
		"empty settings of a client": {[]string{clientCommand}, exitFailed, "reading what to measure"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), tt.args, strings.NewReader(""), &stdout, &stderr)
		if exit != tt.exit || !strings.Contains(stderr.String(), tt.want) || stdout.Len() > 0 {
			t.Errorf("%s: status %d, %q, %q", why, exit, stderr.String(), stdout.String())
		}
	}
}

// JSON is on one line; in the table, unknown values are "-".
func TestSendAnswer(t *testing.T) {
	ratio, like := 12.3456, 11.5
	r := &send.Result{
		Ours:       &send.Figures{PushesPerSecond: 400_000.4, CPU: 1.255, RSS: 40, Memory: &send.Memory{Minute2: 40, Minute10: 41, Growth: 0.025}},
		OursAPNS:   &send.Figures{PushesPerSecond: 300_000, CPU: 1.85, RSS: 50},
		RatioAPNS2: &ratio, RatioOursAPNS: &like, Cores: 2, Go: "go1", Bars: []send.Bar{{Name: "one", Want: 1, Got: 2, Met: true}, {Name: "two", Want: 3, Got: 2.5}},
	}
	for f, want := range map[terminal.Format]string{
		terminal.FormatTable: "One push, on 2 cores with the simulator, go1:\n" +
			"CLIENT                     PUSHES/S  CPU US  ALLOCATIONS  P50 MS  P99 MS  MEMORY MIB  SIMULATOR CPU US  OTHER CORES\n" +
			"ours, prebuilt             400000    1.25    -            -       -       40          0.00              0.00\n" +
			"ours, with providers/apns  300000    1.85    -            -       -       50          0.00              0.00\n" +
			"ours with providers/apns to apns2 11.50; ours, prebuilt, to apns2 12.35, to net/http -, to h2load -; the simulator on one core: - answers/s, - us each\n" +
			"memory of ours: 40.0 MiB after 2 minutes, 41.0 after 10 (+2.5 %)\nmissed: two is 2.5, want 3\n",
		terminal.FormatJSON: `{"ours":{"pushes_per_second":400000.4,"cpu_us_per_push":1.255,"allocs_per_push":null,"p50_ms":null,"p99_ms":null,"rss_mb":40,"memory":{"minute_2_mb":40,"minute_10_mb":41,"growth":0.025},"server_cpu_us_per_push":0,"others_cores":0},` +
			`"ours_apns":{"pushes_per_second":300000,"cpu_us_per_push":1.85,"allocs_per_push":null,"p50_ms":null,"p99_ms":null,"rss_mb":50,"server_cpu_us_per_push":0,"others_cores":0},` +
			`"ours_50ms":null,"ours_one_connection_50ms":null,"ours_50ms_validated":null,"apns2":null,"apns2_prebuilt":null,"nethttp":null,"h2load":null,` +
			`"ratio_ours_apns_apns2":11.5,"ratio_apns2":12.3456,"ratio_nethttp":null,"ratio_h2load":null,"sim_raw_per_second":null,"sim_raw_cpu_us_per_answer":null,"bars":[{"name":"one","want":1,"got":2,"met":true},{"name":"two","want":3,"got":2.5,"met":false}],"cores":2,"go":"go1"}` + "\n",
	} {
		var stdout bytes.Buffer
		b := newBench(strings.NewReader(""), &stdout, &stdout)
		b.format = f
		if err := b.show(explainSend(r)); err != nil || stdout.String() != want {
			t.Errorf("%s:\n got %q\nwant %q (%v)", f, stdout.String(), want, err)
		}
	}
}
