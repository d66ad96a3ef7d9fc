package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// ended is one outcome that a worker reports.
type ended struct {
	id, app, lane, device string
	state                 push.State
	platform              push.Platform
	reason                string
}

// tell writes what a worker with this collector reports about them: the
// failures, and then the counts.
func (f *fleet) tell(e *events.Collector, list ...ended) {
	f.t.Helper()
	now := time.Now()
	var records []kafka.Record
	for _, d := range list {
		g := e.Group(d.lane)
		it := &pipeline.Item{}
		it.ID, it.App, it.Type, it.SenderID = d.id, d.app, "promo", "orders"
		g.Add(it, &push.Row{ID: d.id, Device: d.device, State: d.state, At: now, Platform: d.platform, Reason: d.reason})
		g.Count(now)
	}
	for _, value := range e.Take(now) {
		records = append(records, kafka.Record{Value: value})
	}
	f.append(kafka.EventsTopic, records...)
}

func (f *fleet) append(topic string, records ...kafka.Record) {
	f.t.Helper()
	w, err := kafka.NewWriter(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.WriterOptions{Topic: topic})
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(f.t.Context(), records); err != nil {
		f.t.Fatal(err)
	}
}

// told is an ordinary second of two workers.
func told(f *fleet) {
	a, b := events.New("worker-a", time.Now()), events.New("worker-b", time.Now())
	f.tell(a,
		ended{"n1", "shop", "transactional", "d1", push.StateDelivered, push.APNS, ""},
		ended{"n2", "shop", "transactional", "d2", push.StateDelivered, push.FCM, ""},
		ended{"n2", "shop", "transactional", "d3", push.StateRetrying, push.FCM, "UNAVAILABLE"},
		ended{"n3", "bank", "critical", "", push.StateDeadLettered, push.NoPlatform, "wrong_type:title"},
	)
	f.tell(b,
		ended{"n2", "shop", "transactional.retry", "d3", push.StateFailed, push.FCM, "UNREGISTERED"},
		ended{"n4", "shop", "transactional", "d4", push.StateDelivered, push.APNS, ""},
	)
}

func TestEventsStats(t *testing.T) {
	f := startFleet(t, true)
	told(f)
	var v eventStats
	f.decode(&v, "events", "stats")
	want := map[string]int64{
		"critical  DEAD_LETTERED wrong_type":     1,
		"transactional apns DELIVERED ":          2,
		"transactional fcm DELIVERED ":           1,
		"transactional fcm RETRYING UNAVAILABLE": 1,
		"transactional fcm FAILED UNREGISTERED":  1,
	}
	got := map[string]int64{}
	for _, c := range v.Counts {
		got[strings.Join([]string{c.Lane, c.Provider, c.State, c.Reason}, " ")] = c.N
	}
	if v.Total != 6 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("total %d, %v, want %v", v.Total, got, want)
	}
	v = eventStats{}
	f.decode(&v, "events", "stats", "--by", "state", "--app", "shop", "--lane", "transactional")
	if v.Total != 5 || len(v.Counts) != 3 || v.Counts[0].State != "DELIVERED" || v.Counts[0].N != 3 || v.Counts[0].Share != 0.6 || v.Counts[0].Lane != "" {
		t.Errorf("%+v", v)
	}
	if out := f.ok("events", "stats", "--by", "app", "--reason", "wrong_type"); !strings.Contains(out, "bank  1  100.00 %") || !strings.Contains(out, "1 counted since") {
		t.Errorf("printed %s", out)
	}
	if exit, _, stderr := f.run("", "events", "stats", "--by", "user"); exit != exitUsage || !strings.Contains(stderr, `"user" is not one of lane`) {
		t.Errorf("exit status %d, %s", exit, stderr)
	}
	// Nothing before --since, and a copy counts once.
	time.Sleep(5 * time.Millisecond)
	now := time.Now().UTC()
	event := fmt.Sprintf(`{"v":1,"source":"worker-c","n":1,"from":%q,"at":%q,"counts":[{"lane":"critical","state":"DUPLICATE","n":7}]}`, now.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
	f.append(kafka.EventsTopic, kafka.Record{Value: []byte(event)}, kafka.Record{Value: []byte(event)})
	v = eventStats{}
	f.decode(&v, "events", "stats", "--by", "state", "--since", now.Format(time.RFC3339Nano))
	if v.Total != 7 || len(v.Counts) != 1 || v.Counts[0].State != "DUPLICATE" {
		t.Errorf("since: %+v", v)
	}
}

func TestEventsTail(t *testing.T) {
	f := startFleet(t, true)
	told(f)
	lines := func(args ...string) (list []map[string]any) {
		t.Helper()
		out := f.ok(append([]string{"events", "tail", "--since", "1h", "--stop", "--json"}, args...)...)
		for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
			var v map[string]any
			if line == "" {
				continue
			}
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			list = append(list, v)
		}
		return list
	}
	if n := len(lines()); n != 4+1+2+1 {
		t.Errorf("%d lines, want 6 counts and 2 failures", n)
	}
	got := lines("--only", "failures", "--lane", "transactional")
	if len(got) != 1 || got[0]["event"] != "failure" || got[0]["id"] != "n2" || got[0]["device"] != "d3" || got[0]["state"] != "FAILED" || got[0]["reason"] != "UNREGISTERED" || got[0]["source"] != "worker-b" || got[0]["lane"] != "transactional.retry" {
		t.Errorf("failures of a lane: %v", got)
	}
	if got = lines("--state", "DELIVERED", "--provider", "apns"); len(got) != 2 || got[0]["event"] != "count" || got[0]["n"] != 1.0 || got[0]["app"] != "shop" {
		t.Errorf("deliveries to Apple: %v", got)
	}
	if got = lines("--id", "n3"); len(got) != 1 || got[0]["reason"] != "wrong_type:title" {
		t.Errorf("an id: %v", got)
	}
	if got = lines("--reason", "wrong_type"); len(got) != 2 {
		t.Errorf("a reason: %v", got)
	}
	out := f.ok("events", "tail", "--since", "1h", "--stop")
	for _, want := range []string{"failed  DEAD_LETTERED n3 critical bank promo wrong_type:title (a field does not have the type that the message contract gives it: title)",
		"failed  FAILED        n2 device d3 transactional.retry shop promo fcm UNREGISTERED (Google: the app is no longer on the device; its token is removed)",
		"1  RETRYING      transactional shop promo fcm UNAVAILABLE"} {
		if !strings.Contains(out, want) {
			t.Errorf("printed\n%s\nwant %q in it", out, want)
		}
	}
	if exit, _, stderr := f.run("", "events", "tail", "--only", "errors"); exit != exitUsage || !strings.Contains(stderr, "--only") {
		t.Errorf("exit status %d, %s", exit, stderr)
	}
}

// A record that is not an event does not stop the reader: it is reported,
// counted and skipped, and makes the exit status 1.
func TestEventsPassOverWhatIsNone(t *testing.T) {
	f := startFleet(t, false)
	f.create(kafka.EventsTopic)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	for n, bad := range []string{`{"v":2}`, `x`, ``, `{"v":1,"n":"one"}`} {
		event := fmt.Sprintf(`{"v":1,"source":"w","n":%d,"at":%q,"counts":[{"lane":"critical","state":"DELIVERED","n":1}]}`, n, at)
		f.append(kafka.EventsTopic, kafka.Record{Value: []byte(bad)}, kafka.Record{Value: []byte(event)})
	}
	exit, stdout, stderr := f.run("", "events", "tail", "--since", "1h", "--stop", "--json")
	if lines := strings.Count(stdout, `"event":"count"`); exit != exitFailed || lines != 4 {
		t.Errorf("tail: exit status %d, %d of 4 events\n%s%s", exit, lines, stdout, stderr)
	}
	for _, want := range []string{"push.events/0/0: version 2; this program knows version 1", "push.events/0/2: not an event", "push.events/0/4: ", "push.events/0/6: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("tail tells\n%s\nwant %q", stderr, want)
		}
	}
	exit, stdout, stderr = f.run("", "events", "stats", "-o", "json")
	var v eventStats
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || exit != exitFailed || v.Total != 4 {
		t.Errorf("stats: exit status %d, %+v, %v", exit, v, err)
	}
	if !strings.Contains(stderr, "skipped 4 records") {
		t.Errorf("stats tells\n%s", stderr)
	}
	for range 2 * mostTold {
		f.append(kafka.EventsTopic, kafka.Record{Value: []byte("x")})
	}
	if _, _, stderr = f.run("", "events", "tail", "--since", "1h", "--stop"); strings.Count(stderr, "push.events/0/") != mostTold || !strings.Contains(stderr, "only counted") {
		t.Errorf("a flood is told as\n%s", stderr)
	}
}

// Control characters from producers and providers do not reach the terminal,
// whatever the field. In JSON the value is the same, escaped.
func TestEventsAreCleaned(t *testing.T) {
	f := startFleet(t, false)
	f.create(kafka.EventsTopic)
	const hostile = "\x1b[2J\u009b31m\u202eevil\u2066\r\n\x7f"
	word, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().UTC().Format(time.RFC3339Nano)
	f.append(kafka.EventsTopic, kafka.Record{Value: fmt.Appendf(nil, `{"v":1,"source":%[1]s,"n":1,"at":%[2]q,
		"counts":[{"lane":%[1]s,"app":%[1]s,"type":%[1]s,"provider":%[1]s,"state":%[1]s,"reason":%[1]s,"n":1}],
		"failures":[{"id":%[1]s,"lane":%[1]s,"app":%[1]s,"device":%[1]s,"sender":%[1]s,"state":%[1]s,"reason":%[1]s,"at":%[2]q}]}`, word, at)},
		kafka.Record{Value: []byte("\x1b[2J\u202e")})
	for _, args := range [][]string{{"tail", "--since", "1h", "--stop"}, {"stats"}} {
		for _, format := range []string{"table", "json"} {
			_, stdout, stderr := f.run("", append([]string{"events", "-o", format}, args...)...)
			if i := strings.IndexFunc(stdout+stderr, func(r rune) bool {
				return r != '\n' && r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
			}); i >= 0 {
				t.Errorf("events %v -o %s prints %q", args, format, (stdout + stderr)[i:])
			}
			if !strings.Contains(stdout, "evil") {
				t.Errorf("events %v -o %s does not tell the event: %q", args, format, stdout)
			}
			if lines := strings.Count(stdout, "\n"); args[0] == "tail" && lines != 2 {
				t.Errorf("events tail -o %s prints %d lines, want a count and a failure: %q", format, lines, stdout)
			}
			if format == "table" {
				continue
			}
			var v struct {
				State  string     `json:"state"`
				Counts []eventSum `json:"counts"`
			}
			if err := json.NewDecoder(strings.NewReader(stdout)).Decode(&v); err != nil {
				t.Fatal(err)
			}
			if len(v.Counts) > 0 {
				v.State = v.Counts[0].State
			}
			if v.State != hostile {
				t.Errorf("events %v: the state reads as %q, want %q", args, v.State, hostile)
			}
		}
	}
}

// signalled signals when a text has been written.
type signalled struct {
	io.Writer
	text string
	seen bytes.Buffer
	ends context.CancelFunc
}

func (s *signalled) Write(p []byte) (int, error) {
	if s.seen.Write(p); strings.Contains(s.seen.String(), s.text) {
		s.ends()
	}
	return s.Writer.Write(p)
}

// tail prints what is written after it began, and nothing from before, until it
// is interrupted.
func TestEventsTailFollows(t *testing.T) {
	f := startFleet(t, true)
	told(f)
	time.Sleep(5 * time.Millisecond)
	ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
	defer interrupt()
	out := &signalled{Writer: io.Discard, text: "late1", ends: interrupt}
	a := newApp(strings.NewReader(""), out, io.Discard)
	defer a.close()
	a.environ, a.connectTime = nil, f.patience
	writing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w, err := kafka.NewWriter(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.WriterOptions{Topic: kafka.EventsTopic})
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		// Again and again, because the test cannot see when tail begins.
		for n := 1; writing.Err() == nil; n++ {
			at := time.Now().UTC().Format(time.RFC3339Nano)
			value := fmt.Sprintf(`{"v":1,"source":"late","n":%d,"at":%q,"failures":[{"id":"late%d","lane":"l","state":"FAILED","step":0,"at":%q}]}`, n, at, n, at)
			if err := w.Append(writing, []kafka.Record{{Value: []byte(value)}}); err != nil && writing.Err() == nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	err := a.execute(ctx, []string{"events", "tail", "--config", f.config})
	stop()
	<-done
	if status := exitStatus(ctx, err); status != exitInterrupted {
		t.Errorf("exit status %d: %v", status, err)
	}
	if seen := out.seen.String(); !strings.Contains(seen, "late1") || strings.Contains(seen, "n3") {
		t.Errorf("printed %s", seen)
	}
}
