package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// dead is a dead letter to make; empty fields get an ordinary value.
type dead struct {
	id, app, sender, value string
	reason                 push.Reason
	detail                 string
	platform               push.Platform
	age                    time.Duration // since it was first seen
	redrive                int
	lane                   string // its topic
}

// secretText and secretToken must only be printed with --reveal.
const (
	secretText  = "Your code is 4711"
	secretToken = "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd"
)

// deadLetter produces them to their DLQs as a worker does, each in a
// millisecond of its own.
func (f *fleet) deadLetter(list ...dead) {
	f.t.Helper()
	for _, d := range list {
		if d.lane == "" {
			d.lane = laneTopic
		}
		if d.app == "" {
			d.app = "shop"
		}
		if d.value == "" {
			d.value = fmt.Sprintf(`{"id":%q,"app":%q,"user_id":"u1","sender_id":%q,"title":%q,"body":"b","data":{"otp":"4711"}}`, d.id, d.app, d.sender, secretText)
		}
		if d.reason == "" {
			d.reason = push.RetriesUsed
		}
		it := &pipeline.Item{Partition: push.Partition{Topic: d.lane, ID: 1}, Offset: 17, FirstSeen: push.At(time.Now().Add(-d.age)), Redrive: d.redrive,
			Key: []byte("u1"), Value: []byte(d.value), Trace: []pipeline.RecordHeader{{Key: "traceparent", Value: []byte("00-ab")}, {Key: "x-own", Value: []byte(secretText)}}}
		if d.value == "nil" {
			it.Value = nil
		}
		h := pipeline.Handover{To: pipeline.ToDLQ, Item: it, Reason: d.reason, Detail: d.detail}
		if d.reason == push.RetriesUsed {
			h.Attempt, h.Devices = 3, []string{"hash-of-a-token1"}
		}
		if d.platform != push.NoPlatform {
			h.Providers = []push.Platform{d.platform}
		}
		p, err := kafka.NewProducer(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.ProducerOptions{Topic: d.lane, Tiers: []kafka.Tier{{Name: "30s", Delay: 30 * time.Second}}})
		if err != nil {
			f.t.Fatal(err)
		}
		err = p.Produce(f.t.Context(), []pipeline.Handover{h})
		p.Close()
		if err != nil {
			f.t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// ls are the dead letters that dlq ls shows with these flags.
func (f *fleet) ls(args ...string) (rows []dlq.Letter) {
	f.t.Helper()
	f.decode(&rows, append([]string{"dlq", "ls"}, args...)...)
	return rows
}

// decode runs a command that must succeed, and decodes its JSON.
func (f *fleet) decode(into any, args ...string) {
	f.t.Helper()
	out := f.ok(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		f.t.Fatalf("pushctl %v: %v: %s", args, err, out)
	}
}

func idsOf(rows []dlq.Letter) string {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return strings.Join(ids, " ")
}

func TestDLQLsPicks(t *testing.T) {
	f := startFleet(t, true)
	if out := f.ok("dlq", "ls"); !strings.Contains(out, "no dead letters") {
		t.Errorf("an empty DLQ: %s", out)
	}
	f.deadLetter(
		dead{id: "n1", platform: push.FCM, detail: "UNAVAILABLE"},
		dead{id: "n2", platform: push.APNS, detail: "ServiceUnavailable", sender: "orders"},
		dead{id: "n3", app: "bank", reason: push.UnknownApp},
		dead{id: "n4", lane: "push.critical", reason: push.BadValue, detail: "title", value: `{"id":"n4","app":"shop","device":{"platform":"apns","token":"` + secretToken + `"},"title":"` + secretText + `","priority":"x"}`},
	)
	between := time.Now()
	time.Sleep(2 * time.Millisecond)
	f.deadLetter(dead{id: "n5", age: 25 * time.Hour})
	for _, tt := range []struct {
		why, ids string
		args     []string
	}{
		{"everything, in the order of time", "n1 n2 n3 n4 n5", nil},
		{"a lane by its name", "n4", []string{"--lane", "critical"}},
		{"a lane by its topic, another by its DLQ", "n1 n2 n3 n4 n5", []string{"--lane", "push.transactional", "--lane", "push.critical.dlq"}},
		{"a reason", "n3", []string{"--reason", "unknown_app"}},
		{"a provider's last word", "n1", []string{"--reason", "UNAVAILABLE"}},
		{"a field at fault is no reason", "", []string{"--reason", "title"}},
		{"an app", "n3", []string{"--app", "bank"}},
		{"a sender", "n2", []string{"--sender", "orders"}},
		{"a provider, by header or by the message's own device", "n2 n4", []string{"--provider", "apns"}},
		{"either provider", "n1 n2 n4", []string{"--provider", "apns,fcm"}},
		{"an id", "n3", []string{"--id", "n3"}},
		{"until", "n1 n2 n3 n4", []string{"--until", between.Add(time.Millisecond).Format(time.RFC3339Nano)}},
		{"since", "n5", []string{"--since", between.Add(time.Millisecond).Format(time.RFC3339Nano)}},
		{"since a duration", "n1 n2 n3 n4 n5", []string{"--since", "1h"}},
		{"until a day that is over", "", []string{"--until", "2026-01-01"}},
		{"all that is asked for at once", "n2", []string{"--provider", "apns", "--sender", "orders", "--app", "shop"}},
		{"the newest", "n4 n5", []string{"--limit", "2"}},
	} {
		if got := idsOf(f.ls(tt.args...)); got != tt.ids {
			t.Errorf("%s: %q, want %q", tt.why, got, tt.ids)
		}
	}
	rows := f.ls()
	if r := rows[0]; r.Lane != "transactional" || r.Reason != "retries_used_up" || r.Detail != "UNAVAILABLE" || r.Attempts != 3 || r.Origin != "push.transactional/1/17" ||
		!strings.HasPrefix(r.Place, "push.transactional.dlq/") || !slices.Equal(r.Devices, []string{"hash-of-a-token1"}) || r.Expired || r.ExpiresAt.Sub(*r.FirstSeen) != 24*time.Hour || r.Mark != nil {
		t.Errorf("n1: %+v", r)
	}
	if r := rows[4]; !r.Expired {
		t.Errorf("n5 is 25 hours old and has not expired: %+v", r)
	}
	out := f.ok("dlq", "ls", "--limit", "3")
	if !strings.Contains(out, "3 dead letters, and 2 older ones") || !strings.Contains(out, "yes") || !strings.Contains(out, "unknown_app") {
		t.Errorf("table: %s", out)
	}
	for _, tt := range []struct {
		why, stderr string
		args        []string
	}{
		{"no such lane", `no lane or topic "x"`, []string{"--lane", "x"}},
		{"no such provider", "neither apns nor fcm", []string{"--provider", "sms"}},
		{"no time", "want a time", []string{"--since", "yesterday"}},
		{"a duration ahead", "without a sign", []string{"--since", "-1h"}},
		{"nothing between", "must be before --until", []string{"--since", "1h", "--until", "2h"}},
	} {
		if exit, _, stderr := f.run("", append([]string{"dlq", "ls"}, tt.args...)...); exit != exitUsage || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit status %d, %s", tt.why, exit, stderr)
		}
	}
}

// Whatever a dead letter contains, text and tokens are only printed with
// --reveal, and then standard error has a warning.
func TestDLQMasks(t *testing.T) {
	f := startFleet(t, true)
	f.deadLetter(
		dead{id: "n1"},
		dead{id: "n2", value: `{"id":"n2","app":"shop","device":{"platform":"apns","environment":"sandbox","token":"` + secretToken + `"},"title":"` + secretText + `","apns":{"payload":{"x":"` + secretText + `"}},"unknown":"` + secretText + `","badge":3}`},
		dead{id: "n3", reason: push.BadJSON, value: `{"id":"n3","title":"` + secretText + `","device":{"token":"` + secretToken + `"`},
		dead{id: "n4", reason: push.WrongType, value: `{"id":{"x":"` + secretText + `"},"app":["` + secretText + `"],"type":"` + strings.Repeat(secretText, 10) + `"}`},
	)
	places := []string{}
	for _, r := range f.ls() {
		places = append(places, r.Place)
	}
	if len(places) != 4 {
		t.Fatalf("places: %v", places)
	}
	cases := [][]string{{"dlq", "ls"}, {"dlq", "ls", "-o", "json"}, {"dlq", "stats"}, {"dlq", "redrive"}, {"dlq", "redrive", "-o", "json"}}
	for _, p := range places {
		cases = append(cases, []string{"dlq", "show", p}, []string{"dlq", "show", p, "-o", "json"})
	}
	for _, args := range cases {
		exit, stdout, stderr := f.run("", args...)
		if exit != exitDone || stderr != "" {
			t.Errorf("%v: exit status %d, %s", args, exit, stderr)
		}
		for _, secret := range []string{"4711", "Your code", "abcdef"} {
			if strings.Contains(stdout, secret) {
				t.Errorf("%v shows %q:\n%s", args, secret, stdout)
			}
		}
		if !slices.Contains([]string{"ls", "show"}, args[1]) {
			continue
		}
		exit, stdout, stderr = f.run("", append(slices.Clone(args), "--reveal")...)
		if exit != exitDone || !strings.Contains(stderr, "contains message text") || !strings.Contains(stdout, "Your code is 4711") {
			t.Errorf("%v --reveal: exit status %d, %s\n%s", args, exit, stderr, stdout)
		}
	}
	out := f.ok("dlq", "show", "n2")
	for _, want := range []string{"apns sandbox " + push.DeviceHash(push.APNS, secretToken), "<17 characters>", "<object of 37 bytes>", "badge", "place         push.transactional.dlq/",
		"key           <2 bytes>", "header        pf-origin: push.transactional/1/17", "header        x-own: <17 bytes>", "header        traceparent: 00-ab", "all retries were used", "attempts      3", "status        pushctl status n2"} {
		if !strings.Contains(out, want) {
			t.Errorf("dlq show n2 has not %q:\n%s", want, out)
		}
	}
	out = f.ok("dlq", "show", places[2], "--reveal")
	if !strings.Contains(out, `"{\"id\":\"n3\"`) {
		t.Errorf("what is no JSON is not quoted:\n%s", out)
	}
	// A record without a readable id is identified by its first place.
	if out = f.ok("dlq", "show", push.PlaceID(laneTopic, 1, 17)); !strings.Contains(out, places[2]) || !strings.Contains(out, "<123 bytes that are not a JSON object>") {
		t.Errorf("by the id of its place:\n%s", out)
	}
	for _, word := range []string{"n9", "push.transactional.dlq/0/999", "push.critical.dlq/7/0"} {
		if exit, stdout, _ := f.run("", "dlq", "show", word); exit != exitFailed || !strings.Contains(stdout, "no dead letter "+word) {
			t.Errorf("show %s: exit status %d, %s", word, exit, stdout)
		}
	}
}

func TestDLQStats(t *testing.T) {
	f := startFleet(t, true)
	f.deadLetter(
		dead{id: "n1", platform: push.FCM, detail: "UNAVAILABLE"},
		dead{id: "n2", platform: push.FCM, detail: "UNAVAILABLE", age: 48 * time.Hour},
		dead{id: "n3", platform: push.APNS, detail: "Shutdown"},
		dead{id: "n4", app: "bank", reason: push.UnknownApp, lane: "push.critical"},
	)
	f.ok("dlq", "dismiss", "--id", "n3", "--yes")
	var s dlq.Stats
	f.decode(&s, "dlq", "stats")
	if s.Records != 4 || s.Open != 3 || s.Expired != 1 {
		t.Errorf("%+v", s)
	}
	day := time.Now().UTC().Format(time.DateOnly)
	for kind, want := range map[string]string{
		"lane":        "[{transactional 3 2 1} {critical 1 1 0}]",
		"reason":      "[{retries_used_up 3 2 1} {unknown_app 1 1 0}]",
		"last_answer": "[{UNAVAILABLE 2 2 1} { 1 1 0} {Shutdown 1 0 0}]",
		"app":         "[{shop 3 2 1} {bank 1 1 0}]",
		"provider":    "[{fcm 2 2 1} { 1 1 0} {apns 1 0 0}]",
		"day":         "[{" + day + " 4 3 1}]",
	} {
		if got := fmt.Sprint(s.By[kind]); got != want {
			t.Errorf("by %s: %s, want %s", kind, got, want)
		}
	}
	f.decode(&s, "dlq", "stats", "--top", "1", "--app", "shop")
	if s.Records != 3 || len(s.By["provider"]) != 1 || s.By["provider"][0].Value != "fcm" {
		t.Errorf("the most frequent: %+v", s)
	}
	if out := f.ok("dlq", "stats"); !strings.Contains(out, "4 dead letters, 3 of them open, 1 of those expired") {
		t.Errorf("table: %s", out)
	}
}

func TestDLQRedriveSaysAndDoes(t *testing.T) {
	f := startFleet(t, true)
	f.deadLetter(
		dead{id: "n1", platform: push.FCM, redrive: 1},
		dead{id: "n2", platform: push.APNS},
		dead{id: "n3", age: 25 * time.Hour},                        // over the lane's greatest age
		dead{id: "n4", age: 24*time.Hour - 10*time.Second},         // not yet, but before the retry tier's delay is over
		dead{id: "n5", redrive: 3},                                 // a fourth redrive
		dead{id: "n6", reason: push.BadJSON, value: `{"id":"n6",`}, // never usable
		dead{id: "n7", reason: push.TooLarge, value: "nil"},        // kept without its value
		dead{id: "n8", age: 3 * time.Hour},                         // over --max-age
		dead{id: "n9", value: `{"id":"n9","app":"shop","user_id":"u1","title":"t","expires_at":"2020-01-01T00:00:00Z"}`},
		dead{id: "n0", app: "elsewhere"}, // the filter leaves it out
	)
	args := []string{"dlq", "redrive", "--max-age", "2h", "--app", "shop,", "--by", "me"}
	args[5] = "shop"
	var v dlq.Redriven
	f.decode(&v, args...)
	wantSkipped := map[string]int{dlq.SkipExpired: 3, dlq.SkipRedriven: 1, dlq.SkipOld: 1}
	check := func(v dlq.Redriven, dry bool) {
		t.Helper()
		if v.DryRun != dry || v.Matched != 7 || v.Redriven != 2 || idsOf(v.Letters) != "n1 n2" && idsOf(v.Letters) != "n2 n1" || fmt.Sprint(v.Skipped) != fmt.Sprint(wantSkipped) {
			t.Errorf("dry %v: %+v", dry, v)
		}
	}
	check(v, true)
	if n := len(f.records(kafka.RetryTopic(laneTopic, "30s"))); n != 0 {
		t.Fatalf("a dry run sent %d records", n)
	}
	if left := f.ls(); len(left) != 10 {
		t.Errorf("a dry run left %d", len(left))
	}
	f.decode(&v, append(args, "--yes")...)
	check(v, false)
	sent := f.records(kafka.RetryTopic(laneTopic, "30s"))
	if len(sent) != 2 {
		t.Fatalf("%d records were sent, want 2", len(sent))
	}
	for _, r := range sent {
		redrive := "1"
		if strings.Contains(string(r.Value), `"n1"`) {
			redrive = "2"
		}
		if h := r.Headers; h["pf-attempt"] != "0" || h["pf-hops"] != "4" || h["pf-redrive"] != redrive || h["pf-devices"] != "hash-of-a-token1" || h["traceparent"] != "00-ab" {
			t.Errorf("headers %v", h)
		}
	}
	if left := idsOf(f.ls()); strings.Contains(left, "n1") || strings.Contains(left, "n2") || !strings.Contains(left, "n3") {
		t.Errorf("left: %s", left)
	}
	marked := 0
	for _, r := range f.ls("--all") {
		if r.Mark != nil {
			marked++
			if r.Mark.What != kafka.Redriven || r.Mark.By != "me" || time.Since(r.Mark.At).Abs() > time.Minute {
				t.Errorf("%+v", r.Mark)
			}
		}
	}
	if marked != 2 {
		t.Errorf("%d are marked, want 2", marked)
	}
	// Repeated: they are marked, so nothing is sent without --all.
	f.decode(&v, append(args, "--yes")...)
	if v.Redriven != 0 {
		t.Errorf("redriven again: %+v", v)
	}
	f.decode(&v, append(args, "--yes", "--all", "--limit", "1")...)
	if v.Redriven != 1 || len(f.records(kafka.RetryTopic(laneTopic, "30s"))) != 3 {
		t.Errorf("with --all --limit 1: %+v", v)
	}
	// The whole answer, as people see it.
	out := f.ok("dlq", "redrive", "--max-age", "2h")
	for _, want := range []string{"3 left out: expired", "1 left out: does not decode", "1 left out: no value", "1 left out: max redrives", "dry run: 1 of 8 would be redriven; --yes does it"} {
		if !strings.Contains(out, want) {
			t.Errorf("printed %q, want %q in it", out, want)
		}
	}
	for _, bad := range [][]string{{"--rate", "0"}, {"--max-redrives", "0"}, {"--limit", "-1"}, {"--max-age", "-1s"}} {
		if exit, _, stderr := f.run("", append([]string{"dlq", "redrive"}, bad...)...); exit != exitUsage || !strings.Contains(stderr, bad[0]) {
			t.Errorf("%v: exit status %d, %s", bad, exit, stderr)
		}
	}
}

func TestDLQDismissAndPurge(t *testing.T) {
	f := startFleet(t, true)
	f.deadLetter(dead{id: "n1"}, dead{id: "n2", age: 25 * time.Hour}, dead{id: "n3", reason: push.BadValue, detail: "title"})
	var d dlq.Dismissed
	f.decode(&d, "dlq", "dismiss", "--expired")
	if !d.DryRun || d.Dismissed != 1 || len(f.ls()) != 3 {
		t.Errorf("dry run: %+v, %d left", d, len(f.ls()))
	}
	f.decode(&d, "dlq", "dismiss", "--expired", "--yes")
	if d.Dismissed != 1 || idsOf(f.ls()) != "n1 n3" {
		t.Errorf("%+v, left %s", d, idsOf(f.ls()))
	}
	f.decode(&d, "dlq", "dismiss", "--reason", "bad_value", "--by", "me", "--yes")
	if rows := f.ls("--all", "--id", "n3"); d.Dismissed != 1 || len(rows) != 1 || rows[0].Mark.What != kafka.Dismissed || rows[0].Mark.By != "me" {
		t.Errorf("%+v, %+v", d, rows)
	}

	between := time.Now().Add(time.Millisecond)
	time.Sleep(3 * time.Millisecond)
	f.deadLetter(dead{id: "n4"})
	before := []string{"dlq", "purge", "--before", between.Format(time.RFC3339Nano)}
	var p dlq.Purged
	f.decode(&p, before...)
	if !p.DryRun || p.Records != 3 || p.Open != 1 || len(f.ls("--all")) != 4 {
		t.Errorf("dry run: %+v", p)
	}
	if out := f.ok(before...); !strings.Contains(out, "3 dead letters would be deleted, 1 of them open; --yes does it") {
		t.Errorf("printed %s", out)
	}
	f.decode(&p, append(before, "--yes")...)
	if left := f.ls("--all"); p.DryRun || p.Records != 3 || idsOf(left) != "n4" {
		t.Errorf("%+v, left %s", p, idsOf(left))
	}
	f.decode(&p, "dlq", "purge", "--all", "--lane", "critical", "--yes")
	if p.Records != 0 || len(p.Partitions) != 0 || len(f.ls()) != 1 {
		t.Errorf("another lane: %+v", p)
	}
	f.decode(&p, "dlq", "purge", "--all", "--yes")
	if p.Records != 1 || p.Open != 1 || len(f.ls("--all")) != 0 {
		t.Errorf("all: %+v", p)
	}
	for _, bad := range [][]string{nil, {"--all", "--before", "1h"}, {"--before", "2999-01-01"}} {
		if exit, _, stderr := f.run("", append([]string{"dlq", "purge"}, bad...)...); exit != exitUsage || !strings.Contains(stderr, "--before") {
			t.Errorf("purge %v: exit status %d, %s", bad, exit, stderr)
		}
	}
}

// What a purge has deleted is gone for good, so it is reported even if the rest
// of the purge fails, for other lanes or other partitions.
func TestDLQPurgeTellsWhatItDeletedBefore(t *testing.T) {
	f := startFleet(t, true)
	f.deadLetter(dead{id: "c1", lane: "push.critical"}, dead{id: "t1"}, dead{id: "t2"})
	for i := range 4 { // a second partition
		f.append(kafka.DLQTopic(laneTopic), kafka.Record{Key: fmt.Append(nil, i), Value: []byte("x")})
	}
	var all dlq.Purged
	f.decode(&all, "dlq", "purge", "--all")
	if all.Records != 7 || len(all.Partitions) < 3 {
		t.Fatalf("to be deleted: %+v", all)
	}
	stays := all.Partitions[len(all.Partitions)-1]
	f.kafka.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DeleteRecords}, Topic: stays.Topic, Partitions: []int32{stays.Partition}, Err: kerr.PolicyViolation, Count: -1})
	exit, stdout, stderr := f.run("", "dlq", "purge", "--all", "--yes", "-o", "json")
	var told dlq.Purged
	if err := json.Unmarshal([]byte(stdout), &told); err != nil {
		t.Fatalf("exit status %d, %q, %s: %v", exit, stdout, stderr, err)
	}
	if exit != exitFailed || !strings.Contains(stderr, "POLICY_VIOLATION") || told.DryRun || told.Records != all.Records-stays.Records ||
		!slices.Equal(told.Partitions, all.Partitions[:len(all.Partitions)-1]) {
		t.Errorf("exit status %d, %s\ntold %+v\nof   %+v", exit, stderr, told, all)
	}
	var left dlq.Purged
	f.decode(&left, "dlq", "purge", "--all")
	if !slices.Equal(left.Partitions, []dlq.PurgedPartition{stays}) {
		t.Errorf("left is %+v, want %+v", left.Partitions, stays)
	}
	// If nothing is deleted, nothing is reported.
	if exit, stdout, _ = f.run("", "dlq", "purge", "--all", "--yes"); exit != exitFailed || stdout != "" {
		t.Errorf("exit status %d, %q", exit, stdout)
	}
}

// Reading works without an audit topic. Redriving and dismissing do not,
// because there would be no record of them.
func TestDLQWithoutAudit(t *testing.T) {
	f := startFleet(t, false)
	for _, topic := range []string{laneTopic, "push.critical", "push.promotional"} {
		f.create(kafka.DLQTopic(topic), kafka.RetryTopic(topic, "30s"))
	}
	f.deadLetter(dead{id: "n1"})
	if got := idsOf(f.ls()); got != "n1" {
		t.Errorf("ls: %s", got)
	}
	f.ok("dlq", "redrive")
	for _, args := range [][]string{{"redrive", "--yes"}, {"dismiss", "--yes"}, {"purge", "--all", "--yes"}} {
		exit, _, stderr := f.run("", append([]string{"dlq"}, args...)...)
		if exit != exitFailed || !strings.Contains(stderr, "dlq.audit (`pushctl topics ensure` creates them)") {
			t.Errorf("%v: exit status %d, %s", args, exit, stderr)
		}
	}
	if n := len(f.records(kafka.RetryTopic(laneTopic, "30s"))); n != 0 || len(f.ls()) != 1 {
		t.Errorf("%d were sent without a note", n)
	}
}
