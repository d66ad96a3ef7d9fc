package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

const laneTopic = "push.transactional"

func TestSendFromFlags(t *testing.T) {
	f := startFleet(t, true)
	args := []string{"send", "--app", "shop", "--user", "u1", "--type", "otp", "--sender", "auth", "--priority", "high", "--title", "<Hello>", "--body", "b",
		"--data", "k=v=w", "--data", "empty=", "--collapse-key", "c1", "--expires-in", "5m"}
	record := f.ok(append(args, "--dry-run")...)
	if n := len(f.records(laneTopic)); n != 0 {
		t.Errorf("--dry-run produced %d records", n)
	}
	var m push.Message
	if d := decode.Message([]byte(record), &m); d != nil {
		t.Fatalf("%s: %v", record, d)
	}
	if m.App != "shop" || m.UserID != "u1" || m.Type != "otp" || m.SenderID != "auth" || m.Priority != push.High || m.Title != "<Hello>" || m.CollapseKey != "c1" ||
		!strings.Contains(string(m.Data), `"k":"v=w"`) || !strings.Contains(string(m.Data), `"empty":""`) || time.Until(m.ExpiresAt) > 5*time.Minute || time.Until(m.ExpiresAt) < 4*time.Minute {
		t.Errorf("made %s", record)
	}
	if id, err := uuid.Parse(m.ID); err != nil || id.Version() != 7 {
		t.Errorf("id %s is no UUIDv7", m.ID)
	}

	var sent sendAnswer
	if err := json.Unmarshal([]byte(f.ok(append(args, "-o", "json")...)), &sent); err != nil {
		t.Fatal(err)
	}
	records := f.records(laneTopic)
	if len(records) != 1 || string(records[0].Key) != "u1" || len(sent.Notifications) != 1 || !strings.Contains(string(records[0].Value), sent.Notifications[0].ID) {
		t.Errorf("said %+v, produced %d records", sent, len(records))
	}
	if out := f.ok("send", "--app", "shop", "--user", "u1", "--id", "n1", "--lane", "critical"); out != "ID  TOPIC\nn1  push.critical\n" {
		t.Errorf("printed %q", out)
	}
}

func TestSendLines(t *testing.T) {
	const lines = `{"id":"n1","app":"shop","user_id":"u1"}

{"id":"n2","app":"shop","user_id":"u1","badge":"SECRET"}
{"id":"n3","app":"shop","device":{"platform":"fcm","token":"SECRET"}}
{"app":"shop","user_id":"u1"}
{"id":"n5","app":
`
	f := startFleet(t, true)
	exit, stdout, stderr := f.run(lines, "send", "-", "-o", "json")
	if exit != exitFailed || !strings.Contains(stdout, `"stopped_at_line": 3`) || stderr != "line 3: wrong_type: badge\n" || len(f.records(laneTopic)) != 1 {
		t.Errorf("stop: exit status %d, %s %s", exit, stdout, stderr)
	}
	exit, stdout, stderr = f.run(lines, "send", "-", "-o", "json", "--on-error", "skip", "--lane", "promotional")
	var sent sendAnswer
	if err := json.Unmarshal([]byte(stdout), &sent); err != nil {
		t.Fatal(err)
	}
	if exit != exitFailed || sent.Produced != 2 || sent.Refused != 3 || sent.Rules["missing_field: id"] != 1 || strings.Contains(stdout+stderr, "SECRET") {
		t.Errorf("skip: exit status %d, %+v %s", exit, sent, stderr)
	}
	for _, line := range []string{"line 3: wrong_type: badge\n", "line 5: missing_field: id\n", "line 6: bad_json"} {
		if !strings.Contains(stderr, line) {
			t.Errorf("skip: told %q, want %q", stderr, line)
		}
	}
	keys := map[string]bool{}
	for _, r := range f.records("push.promotional") {
		keys[string(r.Key)] = true
	}
	if !keys["u1"] || !keys[push.DeviceHash(push.FCM, "SECRET")] || len(keys) != 2 {
		t.Errorf("keys %v", keys)
	}
}

func TestSendWaits(t *testing.T) {
	f := startFleet(t, true)
	row := func(id string, s push.State) push.Row {
		return push.Row{ID: id, Device: "d", State: s, At: time.Now()}
	}
	if err := f.status.Write(t.Context(), []push.Row{row("good", push.StateDelivered), row("bad", push.StateFailed), row("open", push.StateRetrying)}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		id, wait, outcome string
		exit              int
	}{
		{"good", "1m", "DELIVERED", exitDone},
		{"bad", "1m", "FAILED", exitFailed},
		{"open", "100ms", "OPEN", exitFailed},
		{"unseen", "100ms", "NONE", exitFailed},
	} {
		exit, stdout, stderr := f.run("", "send", "--app", "shop", "--user", "u1", "--id", tt.id, "--wait", tt.wait, "-o", "json")
		if exit != tt.exit || !strings.Contains(stdout, `"outcome": "`+tt.outcome+`"`) {
			t.Errorf("%s: exit status %d, %s %s", tt.id, exit, stdout, stderr)
		}
	}
	late := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		late <- f.status.Write(t.Context(), []push.Row{row("late", push.StateDelivered)})
	}()
	f.ok("send", "--app", "shop", "--user", "u1", "--id", "late", "--wait", "1m")
	if err := <-late; err != nil {
		t.Fatal(err)
	}
}

// awayStatus is a status store that cannot be read; interrupt, if set, is
// called during the read.
type awayStatus struct{ interrupt func() }

func (s awayStatus) Read(context.Context, []string) ([][]push.Row, error) {
	if s.interrupt != nil {
		s.interrupt()
		return nil, context.Canceled
	}
	return nil, errors.New("no host answers")
}

// Once a notification is made, its id is always printed. A repetition without
// the id is another notification, and the user sees two.
func TestSendTellsTheIDItMade(t *testing.T) {
	f := startFleet(t, false)
	if err := f.kafka.Create(embedded.Topic{Name: laneTopic, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if err := f.kafka.Cluster.CreateTopic("push.critical", 1, map[string]string{"max.message.bytes": "1"}); err != nil {
		t.Fatal(err)
	}
	send := []string{"send", "--app", "shop", "--user", "u1", "--wait", "1m"}
	produced := func(n int) string {
		t.Helper()
		records := f.records(laneTopic)
		if len(records) != n {
			t.Fatalf("%d records, want %d", len(records), n)
		}
		var m push.Message
		if d := decode.Message(records[n-1].Value, &m); d != nil {
			t.Fatal(d)
		}
		return m.ID
	}

	f.reader = awayStatus{}
	exit, stdout, stderr := f.run("", append(send, "-o", "json")...)
	var sent sendAnswer
	if err := json.Unmarshal([]byte(stdout), &sent); err != nil {
		t.Fatalf("exit status %d, %q, %s: %v", exit, stdout, stderr, err)
	}
	id := produced(1)
	if exit != exitFailed || sent.Produced != 1 || len(sent.Notifications) != 1 || sent.Notifications[0].ID != id ||
		!strings.Contains(stderr, "no host answers") || !strings.Contains(stderr, "--id "+id) || !strings.Contains(stderr, "pushctl status "+id) {
		t.Errorf("store away: exit status %d, %s %s", exit, stdout, stderr)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	f.reader = awayStatus{interrupt}
	exit, stdout, stderr = f.runUntil(ctx, "", send...)
	if id := produced(2); exit != exitInterrupted || !strings.Contains(stdout, id) || !strings.Contains(stderr, "--id "+id) {
		t.Errorf("interrupted: exit status %d, %s %s", exit, stdout, stderr)
	}

	exit, _, stderr = f.run("", append(send, "--lane", "critical")...)
	if made := regexp.MustCompile(`--id ([0-9a-f-]{36})`).FindStringSubmatch(stderr); exit != exitFailed || made == nil {
		t.Errorf("not produced: exit status %d, %s", exit, stderr)
	}
	// A file contains its ids, so the advice is to repeat it unchanged.
	exit, _, stderr = f.run(`{"id":"n1","app":"shop","user_id":"u1"}`, "send", "-", "--lane", "critical")
	if exit != exitFailed || strings.Contains(stderr, "--id") || !strings.Contains(stderr, "can be repeated") {
		t.Errorf("a file: exit status %d, %s", exit, stderr)
	}
}

func TestWrongUsageOfSend(t *testing.T) {
	f := startFleet(t, true)
	for _, tt := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"send"}, "needs a notification"},
		{[]string{"send", "-", "--user", "u1"}, "not both"},
		{[]string{"send", "--user", "u1"}, "missing_field: app"},
		{[]string{"send", "--app", "shop"}, "missing_field: user_id"},
		{[]string{"send", "--app", "shop", "--user", "u1", "--priority", "urgent"}, "bad_value: priority"},
		{[]string{"send", "--app", "shop", "--user", "u1", "--data", "x"}, "--data: want key=value"},
		{[]string{"send", "--app", "shop", "--user", "\xff", "--title", "x"}, "--user: not UTF-8"},
		{[]string{"send", "--app", "shop", "--user", "u1", "--title", "\xff"}, "--title: not UTF-8"},
		{[]string{"send", "--app", "shop", "--user", "u1", "--data", "a=\xc3", "--data", "\xa9=b"}, "--data: not UTF-8"},
		{[]string{"send", "--app", "shop", "--user", "u1", "--expires-in", "-1s"}, "--expires-in"},
		{[]string{"send", "--app", "shop", "--user", "u1", "--lane", "fast"}, "critical, transactional, promotional"},
		{[]string{"load", "--count", "0"}, "--count"},
		{[]string{"load", "--rate", "0"}, "--rate"},
		{[]string{"load", "--app", "shop", "--users", "3"}, "--users"},
		{[]string{"load"}, "--app"},
	} {
		if exit, _, stderr := f.run("", tt.args...); exit != exitUsage || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%v: exit status %d, %q, want 2 and %q", tt.args, exit, stderr, tt.stderr)
		}
	}
	if n := len(f.records(laneTopic)); n != 0 {
		t.Errorf("%d records were produced", n)
	}
}
