package events_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// What a sender is told of a notification: for each device the final state that counts.
func TestEnds(t *testing.T) {
	at := startTime.Add(1500 * time.Microsecond)
	row := func(device string, step int16, s push.State, reason string, after time.Duration) push.Row {
		return push.Row{ID: "n1", Device: device, Step: step, State: s, At: at.Add(after), Platform: push.APNS, Reason: reason}
	}
	whole := row("", 0, push.StateSuppressed, "opted_out_all", 0)
	whole.Platform = push.NoPlatform
	for _, tt := range []struct {
		what string
		rows []push.Row
		want string // of data, behind the sender; empty = nothing is told
	}{
		{"nothing is known", nil, ""},
		{"nothing has ended", []push.Row{row("a", 0, push.StateRetrying, "UNAVAILABLE", 0), row("b", 0, push.StateSending, "", 0)}, ""},
		{"suppressed as a whole", []push.Row{whole},
			`"outcome":"SUPPRESSED","open":0,"ends":[{"state":"SUPPRESSED","reason":"opted_out_all","step":0,"at":"2026-11-21T10:00:00.001Z"}]`},
		{"one of two has ended", []push.Row{row("b", 0, push.StateRetrying, "", 0), row("a", 0, push.StateFailed, "Unregistered", 0)},
			`"outcome":"OPEN","open":1,"ends":[{"device":"a","provider":"apns","state":"FAILED","reason":"Unregistered","step":0,"at":"2026-11-21T10:00:00.001Z"}]`},
		{"later steps count, and the whole does not where there are devices", []push.Row{whole, row("a", 1, push.StateDelivered, "", time.Second), row("a", 0, push.StateRetrying, "", 0)},
			`"outcome":"DELIVERED","open":0,"ends":[{"device":"a","provider":"apns","state":"DELIVERED","step":1,"at":"2026-11-21T10:00:01.001Z"}]`},
		{"a dead letter that was redriven", []push.Row{row("a", 0, push.StateDeadLettered, "retries_used_up", 0), row("a", 1, push.StateExpired, "", time.Second)},
			`"outcome":"EXPIRED","open":0,"ends":[{"device":"a","provider":"apns","state":"EXPIRED","step":1,"at":"2026-11-21T10:00:01.001Z"}]`},
	} {
		it := eventItem("n1", "shop", "order_update")
		var first []byte
		for range 10 {
			rand.Shuffle(len(tt.rows), func(i, j int) { tt.rows[i], tt.rows[j] = tt.rows[j], tt.rows[i] })
			got := events.NewEnds("transactional", []string{"orders"}).Record(it, append([]push.Row(nil), tt.rows...))
			if first == nil {
				first = got
			}
			if string(got) != string(first) {
				t.Fatalf("%s: the order of rows matters:\n%s\n%s", tt.what, got, first)
			}
		}
		if tt.want == "" {
			if first != nil {
				t.Errorf("%s: told %s", tt.what, first)
			}
			continue
		}
		var e events.Ended
		if err := json.Unmarshal(first, &e); err != nil {
			t.Fatal(err)
		}
		if newest := e.Data.Ends[0].At; !e.Timestamp.Equal(newest) || !strings.HasPrefix(string(first), `{"type":"notification.ended",`) {
			t.Errorf("%s: %s", tt.what, first)
		}
		if want := `"data":{"id":"n1","lane":"transactional","app":"shop","type":"order_update","sender":"orders",` + tt.want + "}}"; !strings.HasSuffix(string(first), want) {
			t.Errorf("%s: told\n%s\nwant\n%s", tt.what, first, want)
		}
		if strings.Contains(string(first), "secret") {
			t.Errorf("%s: told %s", tt.what, first)
		}
	}
}

// A record whose id belongs to another one is told by its place, as its row is.
func TestEndsOfAReusedID(t *testing.T) {
	it := eventItem("n1", "shop", "")
	it.Partition, it.Offset, it.Verdict, it.Reason = push.Partition{Topic: "push.x", ID: 1}, 7, push.Dead, push.IDReused
	rows := []push.Row{{ID: it.RowID(), State: push.StateDeadLettered, At: startTime}}
	var e events.Ended
	if err := json.Unmarshal(events.NewEnds("x", []string{"orders"}).Record(it, rows), &e); err != nil {
		t.Fatal(err)
	}
	if e.Data.ID != it.RowID() || e.Data.ID == "n1" {
		t.Errorf("told of %q", e.Data.ID)
	}
}

var _ pipeline.Ends = (*events.Ends)(nil)
