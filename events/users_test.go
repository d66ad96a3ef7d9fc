package events_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// limitedRow is a row of a user, by a number.
func limitedRow(user int, s push.State, reason string) *push.Row {
	return &push.Row{ID: "id", State: s, Reason: reason, UserHash: push.UserHash(fmt.Sprint("secret-user-", user))}
}

// estimates are what a record tells of users, by rule.
func estimates(t *testing.T, record []byte) map[string]int64 {
	t.Helper()
	users := map[string]int64{}
	if record == nil {
		return users
	}
	if strings.Contains(string(record), "secret") {
		t.Errorf("a record names a user: %s", record)
	}
	for _, u := range readEvent(t, record).Limits.Users {
		users[u.Rule] = u.Sketch.Estimate()
	}
	return users
}

// Users whose notifications a limit suppressed or put off are told by rule, each once,
// from when their rows are durable on, and once.
func TestLimitedUsersAreTold(t *testing.T) {
	e := events.New("w", startTime)
	it := eventItem("id", "shop", "promo")
	g, other := e.Group("promotional"), e.Group("transactional")
	for range 3 {
		g.Add(it, limitedRow(1, push.StateSuppressed, "limited:a-day"))
	}
	g.Add(it, limitedRow(2, push.StateHeld, "limit_waits:a-day"))
	g.Add(it, limitedRow(2, push.StateHeld, "limit_waits:sender-an-hour"))
	for i, r := range []*push.Row{
		limitedRow(3, push.StateDelivered, ""), limitedRow(4, push.StateSuppressed, "opted_out_type"), limitedRow(5, push.StateHeld, "quiet_hours"),
		limitedRow(6, push.StateSuppressed, "limited_edition"), limitedRow(7, push.StateHeld, "limit_waits"), limitedRow(8, push.StateRetrying, "limited:a-day"), limitedRow(9, push.StateFailed, "limited:a-day"),
	} {
		r.ID = fmt.Sprint(i)
		g.Add(it, r)
	}
	other.Add(it, limitedRow(2, push.StateSuppressed, "limited:a-day"))
	other.Add(it, limitedRow(10, push.StateSuppressed, "limited:a-day"))
	if r := e.Limits(events.Limits{}, startTime); r != nil {
		t.Errorf("told before the rows are durable: %s", r)
	}
	g.Count(startTime)
	other.Count(startTime)
	got := estimates(t, e.Limits(events.Limits{Senders: []events.SenderLimit{{Rule: "sender-an-hour", Sender: "ads", Limited: 1}}}, startTime.Add(10*time.Second)))
	if len(got) != 2 || got["a-day"] != 3 || got["sender-an-hour"] != 1 {
		t.Errorf("told %v, want 3 of a-day and 1 of sender-an-hour", got)
	}
	if r := e.Limits(events.Limits{}, startTime.Add(20*time.Second)); r != nil {
		t.Errorf("told once more: %s", r)
	}
}

// However many rules rows name, a bound is told, and the record fits.
func TestLimitedUsersFitInARecord(t *testing.T) {
	e := events.New("w", startTime)
	it := eventItem("id", "shop", "promo")
	for part := range 4 {
		g := e.Group("a")
		for i := range 150 {
			g.Add(it, limitedRow(i, push.StateSuppressed, fmt.Sprint("limited:", 100*part+i, strings.Repeat("\x01", 300))))
		}
		g.Count(startTime)
	}
	var l events.Limits
	for i := range 200 {
		l.Senders = append(l.Senders, events.SenderLimit{Rule: "r", Sender: fmt.Sprint(i, strings.Repeat("\x01", 128))})
	}
	record := readEvent(t, e.Limits(l, startTime))
	if n := len(record.Limits.Users); n == 0 || n+len(record.Limits.Senders)+record.Limits.Omitted != 400 {
		t.Errorf("%d rules and %d senders told, %d omitted, want 400 in all", n, len(record.Limits.Senders), record.Limits.Omitted)
	}
	g := e.Group("a")
	for i := range 500 {
		g.Add(it, limitedRow(i, push.StateSuppressed, fmt.Sprint("limited:", i)))
	}
	g.Count(startTime)
	if n := len(readEvent(t, e.Limits(events.Limits{}, startTime)).Limits.Users); n != 200 {
		t.Errorf("%d rules of one group, want 200", n)
	}
}

// Limited users cost a group some memory as its lists grow, and no row any of its own.
func BenchmarkLimitedUsers(b *testing.B) {
	e := events.New("w", startTime)
	items := make([]*pipeline.Item, 2000)
	rows := make([]*push.Row, len(items))
	for i := range items {
		items[i], rows[i] = eventItem(fmt.Sprint(i), "shop", "news"), limitedRow(i, push.StateSuppressed, fmt.Sprint("limited:rule-", i%3))
	}
	b.ReportAllocs()
	for b.Loop() {
		g := e.Group("a")
		for i := range items {
			g.Add(items[i], rows[i])
		}
		g.Count(startTime)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(items)), "ns/row")
}
