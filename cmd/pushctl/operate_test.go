package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
)

func (f *fleet) topicStates(exit int, args ...string) (states map[string]string, stdout string) {
	f.t.Helper()
	got, stdout, stderr := f.run("", append([]string{"topics", "ensure", "-o", "json"}, args...)...)
	if got != exit {
		f.t.Fatalf("%v: exit status %d, want %d: %s", args, got, exit, stderr)
	}
	var rows []topicRow
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil {
		f.t.Fatal(err)
	}
	states = make(map[string]string)
	for _, r := range rows {
		states[r.Topic] = r.State
	}
	return states, stdout
}

func TestTopicsEnsure(t *testing.T) {
	f := startFleet(t, false)
	if exit, _, stderr := f.run("", "send", "--app", "shop", "--user", "u1"); exit != exitFailed || !strings.Contains(stderr, "topics are missing: push.transactional (`pushctl topics ensure`") {
		t.Errorf("without topics: exit status %d, %s", exit, stderr)
	}
	for _, topic := range []embedded.Topic{{Name: kafka.UsersTopic, Partitions: 2, Compacted: true}, {Name: "push.critical", Partitions: 2, Retention: 168 * time.Hour}} {
		if err := f.kafka.Create(topic); err != nil {
			t.Fatal(err)
		}
	}
	states, _ := f.topicStates(exitFailed, "--dry-run")
	if lanes := 3; len(states) != lanes*(1+4+5+2+2)+4 || states["push.transactional"] != kafka.TopicWouldCreate || states["push.critical"] != kafka.TopicDiffers {
		t.Errorf("dry run: %v", states)
	}
	states, stdout := f.topicStates(exitFailed)
	if states["push.transactional.retry.30s"] != kafka.TopicCreated || states["push.critical"] != kafka.TopicDiffers || !strings.Contains(stdout, "would add partitions: 2 to 3") {
		t.Errorf("first: %s", stdout)
	}
	if exit, stdout, _ := f.run("", "topics", "ensure"); exit != exitFailed || !strings.Contains(stdout, "--add-partitions adds them. "+partitionsMove) {
		t.Errorf("table: exit status %d, %s", exit, stdout)
	}
	states, stdout = f.topicStates(exitDone, "--add-partitions")
	if states["push.critical"] != kafka.TopicPartitionsAdded || states[kafka.UsersTopic] != kafka.TopicExists || !strings.Contains(stdout, "keeps its 2 partitions, not 3") {
		t.Errorf("adding: %s", stdout)
	}
	if states, _ = f.topicStates(exitDone); states["push.critical"] != kafka.TopicExists {
		t.Errorf("at last: %v", states)
	}
}

// Without fan-outs there are no topics of theirs.
func TestTopicsOfFanouts(t *testing.T) {
	f := startFleet(t, true)
	f.config = configFile(t, fmt.Sprintf("kafka: {brokers: [%q], topics: {partitions: 3}}\ngateway: {topics: true, fanout: {enabled: true}}\n", f.kafka.Addrs()[0]))
	states, _ := f.topicStates(exitFailed, "--dry-run")
	if lanes := 3; len(states) != lanes*(1+4+5+2+2)+4+2+lanes*2 || states["push.fanout"] != kafka.TopicWouldCreate || states["push.fanout.hold.critical"] != kafka.TopicWouldCreate {
		t.Errorf("%d topics: %v", len(states), states)
	}
}

func TestLag(t *testing.T) {
	f := startFleet(t, true)
	for range 3 {
		f.ok("send", "--app", "shop", "--user", "u1")
	}
	c, err := kafka.NewConsumer(kafka.Options{Brokers: f.kafka.Addrs()}, laneTopic, "pushfleet.transactional")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Poll(t.Context(), 1); err != nil || len(got) != 1 {
		t.Fatalf("%d records: %v", len(got), err)
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows []lagRow
	if err := json.Unmarshal([]byte(f.ok("lag", "-o", "json")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3*(1+4+5+2)*3 {
		t.Fatalf("%d rows, want 3 lanes x (its own, 4 retry, 5 deferral and 2 hold topics) x 3 partitions", len(rows))
	}
	found := false
	for _, r := range rows {
		switch {
		case r.Committed == nil && r.Lag == nil:
		case r.Topic != laneTopic || *r.Lag != r.End-*r.Committed:
			t.Errorf("%+v", r)
		case *r.Committed == 1:
			found = true
			if r.End != 3 || *r.Lag != 2 || r.Lane != "transactional" || r.Group != "pushfleet.transactional" {
				t.Errorf("%+v", r)
			}
		}
	}
	if out := f.ok("lag"); !found || !strings.Contains(out, "lag: 2 records") {
		t.Errorf("printed %s", out)
	}
}

// Before a group's first commit every record counts as lag. Otherwise an alarm
// on lag would never fire for a fleet that never started.
func TestLagBeforeTheFirstCommit(t *testing.T) {
	f := startFleet(t, true)
	for range 3 {
		f.ok("send", "--app", "shop", "--user", "u1")
	}
	f.ok("send", "--app", "shop", "--user", "u2", "--lane", "critical")
	var rows []lagRow
	f.decode(&rows, "lag")
	total := int64(0)
	for _, r := range rows {
		if r.Committed != nil || (r.Lag == nil) != (r.End == 0) {
			t.Errorf("%s/%d: committed %v, lag %v of %d records", r.Topic, r.Partition, r.Committed, r.Lag, r.End)
		}
		if r.Lag != nil {
			total += *r.Lag
		}
	}
	if out := f.ok("lag"); total != 4 || !strings.Contains(out, "lag: 4 records") {
		t.Errorf("%d in all, printed %s", total, out)
	}
}

func TestDedupe(t *testing.T) {
	f := startFleet(t, true)
	if exit, _, stderr := f.run("", "dedupe", "declare-new"); exit != exitUsage || !strings.Contains(stderr, "Never run it because Redis lost its data") {
		t.Errorf("without --yes: exit status %d, %s", exit, stderr)
	}
	if len(f.redis.Mini.Keys()) != 0 {
		t.Errorf("without --yes filters were made")
	}
	f.ok("dedupe", "declare-new", "--yes")
	var fill struct{ Windows []fillRow }
	if err := json.Unmarshal([]byte(f.ok("dedupe", "fill", "-o", "json")), &fill); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if w := fill.Windows[0]; w.IDs != 64 || w.Capacity < 20000 || w.From.After(now) || w.To.Before(now) || w.To.Sub(w.From) != 6*time.Hour || w.Bytes < 30000 {
		t.Errorf("after the declaration (64 sentinels): %+v", w)
	}
}

func TestExplainFill(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC)
	ans := explainFill(dedupe.Fill{IDs: 17_000_000, Capacity: 20_200_000, Ratio: 0.85, Needed: 68_000_000}, dedupe.DefaultOptions(), now)
	var b strings.Builder
	if err := ans.Write(&b, terminal.FormatTable, indent); err != nil {
		t.Fatal(err)
	}
	want := `FROM                  TO                    IDS       CAPACITY  FILL    NEEDED    MIB
2026-11-21T06:00:00Z  2026-11-21T12:00:00Z  17000000  20200000  85.0 %  68000000  34.7
too full: set dedupe.capacity to 68000000
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}

// The error for a server that is down names its key in the configuration.
func TestServersAway(t *testing.T) {
	f := startFleet(t, false)
	f.config = configFile(t, "kafka: {brokers: ['127.0.0.1:1']}\nredis: {addresses: ['127.0.0.1:1']}\n")
	f.patience = 300 * time.Millisecond
	for _, tt := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"lag"}, "kafka.brokers 127.0.0.1:1"},
		{[]string{"topics", "ensure"}, "kafka.brokers 127.0.0.1:1"},
		{[]string{"send", "--app", "shop", "--user", "u1"}, "kafka.brokers 127.0.0.1:1"},
		{[]string{"prefs", "set", "u1", "--clear"}, "kafka.brokers 127.0.0.1:1"},
		{[]string{"prefs", "get", "u1"}, "redis.addresses 127.0.0.1:1"},
		{[]string{"dedupe", "fill"}, "redis.addresses 127.0.0.1:1"},
	} {
		if exit, _, stderr := f.run("", tt.args...); exit != exitFailed || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%v: exit status %d, %q, want 1 and %q", tt.args, exit, stderr, tt.stderr)
		}
	}
}
