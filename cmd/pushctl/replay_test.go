package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// What was shed is found again in the lane's own topic, and handed over so that workers
// confirm it and do not shed it: to the smallest retry topic, a step above its row.
func TestReplay(t *testing.T) {
	f := startFleet(t, true)
	at := time.Now()
	for _, n := range []struct {
		id    string
		state push.State
	}{{"shed", push.StateShed}, {"delivered", push.StateDelivered}, {"new", 0}} {
		f.ok("send", "--app", "shop", "--user", "u1", "--id", n.id)
		if n.state == 0 {
			continue
		}
		row := push.Row{ID: n.id, State: n.state, At: at, UserHash: push.UserHash("u1"), Reason: "depth:class=low depth=300 threshold=200"}
		if err := f.status.Write(t.Context(), []push.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	replay := func(args ...string) (v dlq.Replayed) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.ok(append([]string{"replay", "--shed", "--since", "1h", "--lane", "transactional", "-o", "json"}, args...)...)), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	retry := kafka.RetryTopic(laneTopic, "30s")
	if v := replay("--dry-run"); !v.DryRun || v.Read != 3 || v.Replayed != 1 || len(v.Shed) != 1 || v.Shed[0].ID != "shed" || !strings.HasPrefix(v.Shed[0].Reason, "depth:") {
		t.Errorf("a dry run: %+v", v)
	}
	if sent := f.records(retry); len(sent) > 0 {
		t.Fatalf("a dry run sent %d", len(sent))
	}
	if v := replay("--yes", "--by", "ops"); v.DryRun || v.Replayed != 1 || v.Topics[0] != retry || v.Delay != 30 {
		t.Errorf("got %+v", v)
	}
	sent := f.records(retry)
	if len(sent) != 1 || !strings.Contains(string(sent[0].Value), `"shed"`) || sent[0].Headers["pf-hops"] != "1" || sent[0].Headers["pf-attempt"] != "0" || sent[0].Headers["pf-redrive"] != "1" {
		t.Errorf("sent %v", sent)
	}
	noted := f.records(kafka.AuditTopic(laneTopic))
	if len(noted) != 2 || string(noted[0].Key) != string(noted[1].Key) || !strings.Contains(string(noted[1].Value), `"by":"ops"`) || !strings.Contains(string(noted[1].Value), `"sent":1,"done":true`) {
		t.Errorf("noted %v", noted)
	}
	f.ok("dlq", "ls") // which reads the audit topic
	if out := f.ok("status", "shed"); !strings.Contains(out, "too much waited in its lane") {
		t.Errorf("status says %s", out)
	}
	for _, args := range [][]string{{"--since", "1h"}, {"--shed"}, {"--shed", "--since", "1h", "--yes", "--dry-run"}, {"--shed", "--since", "1h", "--until", "2h"},
		{"--shed", "--since", "1h", "--rate", "0"}, {"--shed", "--since", "1h", "--lane", "x"}} {
		if exit, _, stderr := f.run("", append([]string{"replay"}, args...)...); exit != exitUsage {
			t.Errorf("%v: exit status %d, %s", args, exit, stderr)
		}
	}
}

func TestLagOfALaneThatSheds(t *testing.T) {
	if got := thresholdsOf(configs.Shed{High: 1}); got != nil {
		t.Errorf("got thresholds %v of a lane that does not shed", got)
	}
	thresholds := thresholdsOf(configs.Shed{Enabled: true, High: 4000, Medium: 3000, Low: 2000, Bulk: 1000})
	depths := []int64{900, 2001, 0}
	rows := []lagRow{{Lane: "other", Topic: "o"}}
	for i := range depths {
		rows = append(rows, lagRow{Lane: "l", Topic: "t", Partition: int32(i), DepthAtMost: &depths[i], Thresholds: thresholds})
	}
	want := "lag: 0 records\ndepth of l: at most 2001, by partition 1; above its threshold a priority is shed: high 4000 medium 3000 low 2000 (may be shed) bulk 1000 (may be shed)"
	if got := explainLag(rows).After; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
