package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
)

// interrupting reads the first text, calls f, and then reads the second text.
type interrupting struct {
	first, second io.Reader
	f             func()
}

func (r *interrupting) Read(p []byte) (int, error) {
	if n, err := r.first.Read(p); err == nil {
		return n, nil
	}
	if r.f != nil {
		r.f()
		r.f = nil
	}
	return r.second.Read(p)
}

// Ctrl-C in the middle of a file: the command reports what it has done.
func TestFilesAreInterrupted(t *testing.T) {
	f := startFleet(t, true)
	for _, tt := range []struct {
		args  []string
		line  string
		topic string
		done  string
	}{
		{[]string{"devices", "import", "--format", "jsonl", "--registered-at", when, "-"}, `{"user_id":"u1","platform":"fcm","token":"t-%d","app":"shop"}`,
			kafka.UsersTopic, "at least 1000 devices were registered"},
		{[]string{"send", "-"}, `{"id":"n-%d","app":"shop","user_id":"u1"}`, laneTopic, "at least 1000 notifications are in " + laneTopic},
	} {
		var lines [2]strings.Builder
		for i := range 1500 {
			_, _ = fmt.Fprintf(&lines[min(i/1000, 1)], tt.line+"\n", i)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		exit, stdout, stderr := f.runFrom(ctx, &interrupting{strings.NewReader(lines[0].String()), strings.NewReader(lines[1].String()), interrupt}, tt.args...)
		if exit != exitInterrupted || !strings.Contains(stderr, "interrupted") || !strings.Contains(stderr, tt.done) {
			t.Errorf("%v: exit status %d, %s %s; want %q told", tt.args, exit, stdout, stderr, tt.done)
		}
		if n := len(f.records(tt.topic)); n != 1000 {
			t.Errorf("%v: %d records", tt.args, n)
		}
	}
}

// at calls do when the broker gets its nth request of this kind, before the
// request is answered.
func (f *fleet) at(key kmsg.Key, nth int, do func()) {
	n := 0
	f.kafka.Cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.kafka.Cluster.KeepControl()
		if n++; n == nth {
			do()
		}
		return nil, nil, false
	})
}

// Ctrl-C between two records.
func TestRemovalsAreInterrupted(t *testing.T) {
	f := startFleet(t, true)
	ctx, interrupt := context.WithCancel(t.Context())
	f.at(kmsg.Produce, 2, interrupt)
	hashes := []string{"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc"}
	exit, stdout, stderr := f.runUntil(ctx, "", append([]string{"devices", "rm", "u1"}, hashes...)...)
	if done := len(f.records(kafka.UsersTopic)); exit != exitInterrupted || done == 0 || done == 3 || !strings.Contains(stderr, fmt.Sprintf("%d of 3 devices were removed", done)) {
		t.Errorf("exit status %d, %s %s; %d records", exit, stdout, stderr, done)
	}
}

// Ctrl-C while the broker deletes: what it has deleted is gone for good, and is
// reported.
func TestPurgeIsInterrupted(t *testing.T) {
	f := startFleet(t, true)
	for i := range 10 {
		f.deadLetter(dead{id: fmt.Sprint("n", i)})
	}
	ctx, interrupt := context.WithCancel(t.Context())
	f.at(kmsg.DeleteRecords, 1, interrupt)
	exit, stdout, stderr := f.runUntil(ctx, "", "dlq", "purge", "--all", "--lane", "transactional", "--yes", "-o", "json")
	var told dlq.Purged
	if err := json.Unmarshal([]byte(stdout), &told); err != nil {
		t.Fatalf("exit status %d, %q, %s: %v", exit, stdout, stderr, err)
	}
	if left := len(f.ls()); told.Records+left != 10 || left != 0 {
		t.Errorf("exit status %d, told of %d, %d left of 10", exit, told.Records, left)
	}
}

// Ctrl-C between two lanes.
func TestDismissIsInterrupted(t *testing.T) {
	f := startFleet(t, true)
	f.deadLetter(dead{id: "n1", lane: "push.critical"})
	f.deadLetter(dead{id: "n2"})
	ctx, interrupt := context.WithCancel(t.Context())
	f.at(kmsg.Produce, 1, interrupt)
	exit, stdout, stderr := f.runUntil(ctx, "", "dlq", "dismiss", "--yes")
	if left := len(f.ls()); exit != exitInterrupted || left != 1 || !strings.Contains(stderr, "at least 1 dead letters were dismissed") {
		t.Errorf("exit status %d, %s %s; %d left", exit, stdout, stderr, left)
	}
}

// What may have been done beyond what is counted is said also where a signal ended it, and
// what is counted is shown.
func TestInterruptedWithinAGroup(t *testing.T) {
	var out bytes.Buffer
	a := newApp(nil, &out, io.Discard)
	a.format = terminal.FormatJSON
	err := interrupted(a.showDone(explainRedelivered(dlq.Redelivered{Redelivered: 3}), &dlq.UncountedError{Err: context.Canceled, Letters: 7, Sent: true}))
	if !strings.Contains(err.Error(), "interrupted (7 more were sent") || !strings.Contains(out.String(), `"redelivered": 3`) {
		t.Errorf("got %q, and shown was %s", err, &out)
	}
}
