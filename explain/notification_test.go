package explain

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// What the rows mean, for each state that a notification can be in.
func TestNotification(t *testing.T) {
	at := time.Date(2026, 11, 21, 7, 30, 0, 0, time.UTC)
	row := func(device string, step int16, s push.State, reason string) push.Row {
		r := push.Row{ID: "n1", Device: device, Step: step, State: s, At: at.Add(time.Duration(step) * time.Second), Reason: reason}
		if device != "" {
			r.Platform = push.APNS
		}
		return r
	}
	for _, tt := range []struct {
		why   string
		rows  []push.Row
		later time.Duration
		says  []string
		not   string
	}{
		{"suppressed before its devices", []push.Row{row("", 0, push.StateSuppressed, "opted_out_type")}, 0,
			[]string{"SUPPRESSED: it was not meant to be sent", "the whole notification: SUPPRESSED: opted_out_type, the user has opted out of this message type"}, ""},
		{"suppressed by a limit", []push.Row{row("", 0, push.StateSuppressed, "limited:per-day")}, 0, []string{"exceeded a limit of the user: per-day"}, ""},
		{"kept in the inbox", []push.Row{row("", 0, push.StateInbox, "inactive")}, 0,
			[]string{"INBOX: kept in the user's inbox", "the whole notification: INBOX: in the user's inbox since 2026-11-21 07:30:00 (inactive, the user has not used the app"}, ""},
		{"shed", []push.Row{row("", 0, push.StateShed, "depth:class=low depth=31200 threshold=20000")}, 0,
			[]string{"SHED: ", "too much waited in its lane", "class=low depth=31200 threshold=20000", "pushctl replay --shed"}, ""},
		{"expired", []push.Row{row("", 0, push.StateExpired, "past_expires_at")}, 0, []string{"it expired before", "its expires_at passed before"}, ""},
		{"retrying", []push.Row{row("a", 0, push.StateRetrying, "ServiceUnavailable")}, time.Minute,
			[]string{"OPEN: not finished", "tried at 2026-11-21 07:30:00 (ServiceUnavailable, Apple: the service was not available)", "after that topic's delay"}, "longest delay"},
		{"retrying for longer than any delay", []push.Row{row("a", 0, push.StateRetrying, "timeout")}, 3 * time.Hour,
			[]string{"it may have been delivered", "longer ago than the longest delay: do workers read the retry topics (pushctl lag)?"}, ""},
		{"held", []push.Row{row("a", 0, push.StateHeld, "auth_failed")}, 0, []string{"OPEN", "without an attempt (auth_failed, "}, ""},
		{"an intent without result", []push.Row{row("a", 0, push.StateSending, "")}, 0, []string{"OPEN", "began to send it", "has not recorded a result"}, ""},
		{"unknown", []push.Row{row("a", 0, push.StateSending, ""), row("a", 0, push.StateUnknown, "")}, 0,
			[]string{"UNKNOWN: an attempt has no result", "it may or may not have been delivered\n"}, ""},
		{"failed", []push.Row{row("a", 0, push.StateFailed, "BadDeviceToken")}, 0, []string{"it cannot be delivered to any device", "no such token in this environment"}, ""},
		{"dead-lettered", []push.Row{row("a", 3, push.StateDeadLettered, "retries_used_up")}, 0,
			[]string{"it is in the DLQ and can be redriven: pushctl dlq show n1", "all retries were used"}, ""},
		{"dead-lettered, with the field at fault", []push.Row{row("", 0, push.StateDeadLettered, "wrong_type:title")}, 0, []string{"the type that the message contract gives it: title"}, ""},
		{"delivered by a redrive after all", []push.Row{row("a", 3, push.StateDeadLettered, "retries_used_up"), row("a", 4, push.StateDelivered, "")}, 0,
			[]string{"DELIVERED: accepted by the provider for 1 of 1 devices", "after 4 hand-overs"}, "device a (apns): DEAD"},
		{"rows without a device no longer count", []push.Row{row("", 0, push.StateDeadLettered, "unknown_app"), row("a", 1, push.StateDelivered, "")}, 0,
			[]string{"1 of 1 devices"}, "the whole notification"},
		{"of two devices one has failed, and one is open", []push.Row{row("a", 0, push.StateFailed, "Unregistered"), row("b", 0, push.StateRetrying, "timeout")}, 0,
			[]string{"OPEN: ", "device a (apns): FAILED", "device b (apns): RETRYING"}, ""},
	} {
		n := Of("n1", tt.rows, Times{24 * time.Hour, 2 * time.Hour}, at.Add(tt.later))
		said := n.Outcome + ": " + n.Meaning + "\n"
		for _, d := range n.Devices {
			said += d.String() + "\n"
		}
		for _, want := range tt.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: said\n%s\nwant %q in it", tt.why, said, want)
			}
		}
		if tt.not != "" && strings.Contains(said, tt.not) {
			t.Errorf("%s: said\n%s\nwant no %q in it", tt.why, said, tt.not)
		}
	}
}

func TestNothing(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ why, id, says string }{
		{"minted long ago", "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", "keeps only 30 days: its outcome is no longer known"},
		{"minted just now", uuidAt(now.Add(-3 * time.Second)), "3s ago: most likely not read by a worker yet"},
		{"minted by a clock that is ahead a little", uuidAt(now.Add(3 * time.Second)), "0s ago: most likely not read by a worker yet"},
		{"minted an hour ago", uuidAt(now.Add(-time.Hour)), "and the status store would still have its states: never produced"},
		{"minted tomorrow", uuidAt(now.Add(24 * time.Hour)), "which is in the future"},
		{"another kind of id", "order-17", "never produced to a lane's topic, or produced under another id, or not read by a worker yet (pushctl lag), or older than the 30 days"},
		{"another kind of UUID", "8f14e45f-ceea-467f-a8d2-8f5d5a0b5d1c", "or older than the 30 days"},
	} {
		n := Of(tt.id, nil, Times{30 * 24 * time.Hour, 2 * time.Hour}, now)
		if n.Outcome != "NONE" || !strings.Contains(n.Meaning, tt.says) {
			t.Errorf("%s: %+v, want %q in its meaning", tt.why, n, tt.says)
		}
	}
}

// uuidAt is a UUIDv7 minted at t.
func uuidAt(t time.Time) string {
	ms := t.UnixMilli()
	const hex = "0123456789abcdef"
	var b strings.Builder
	for shift := 44; shift >= 0; shift -= 4 {
		if shift == 12 {
			b.WriteByte('-')
		}
		b.WriteByte(hex[ms>>shift&15])
	}
	return b.String() + "-7000-8000-000000000000"
}

// Every reason that can occur in a row has its words: our codes, and those of
// Apple and Google that the providers know.
func TestEveryReasonHasWords(t *testing.T) {
	for path, pattern := range map[string]string{
		"../docs/reasons.md":        "(?m)^\\| `([a-z_0-9]+)",
		"../providers/apns/read.go": `(?m)^\t"([A-Z][A-Za-z]+)": `,
		"../providers/fcm/read.go":  `(?m)^\t\t"([A-Za-z_]+)": `,
		"../push/reason.go":         `(?m)^\t[A-Za-z]+ +Reason = "([a-z_0-9]+)"`,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		codes := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(codes) < 15 {
			t.Errorf("%s: found only %d reasons", path, len(codes))
		}
		for _, m := range codes {
			if reasons[m[1]] == "" {
				t.Errorf("%s: %s has no words in reasons.go", path, m[1])
			}
		}
	}
}

func TestReason(t *testing.T) {
	for _, tt := range []struct{ reason, detail, says string }{
		{"limited:per-day", "", "exceeded a limit of the user: per-day"},
		{"wrong_type", "data.x", "that the message contract gives it: data.x"},
		{"retries_used_up", "UNAVAILABLE", "the last answer was UNAVAILABLE (Google: the service was not available)"},
		{"retries_used_up", "SomethingNew", "the last answer was SomethingNew"},
		{"SomethingNew", "", ""},
	} {
		if got := Reason(tt.reason, tt.detail); !strings.HasSuffix(got, tt.says) || tt.says == "" && got != "" {
			t.Errorf("%s, %s: %q", tt.reason, tt.detail, got)
		}
	}
}
