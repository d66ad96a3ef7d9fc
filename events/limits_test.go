package events_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// How limits stand is told as it is, since the last time; nothing is told of nothing.
func TestLimitsAreTold(t *testing.T) {
	c := events.New("worker-a", startTime)
	now := startTime.Add(10 * time.Second)
	if r := c.Limits(events.Limits{}, now); r != nil {
		t.Errorf("told of nothing: %s", r)
	}
	want := events.SenderLimit{Rule: "hourly", Sender: "orders", Limit: 1000, Window: 3600, Fills: 360.00004, Share: 1.23456, Now: 0.98765, Limited: 12}
	given := events.Limits{Senders: []events.SenderLimit{want, {Rule: "hourly", Sender: "ads", Share: math.NaN(), Now: math.Inf(1)}}, Omitted: 3}
	e := readEvent(t, c.Limits(given, now.Add(10*time.Second)))
	if e.Version != 1 || e.Source != "worker-a" || e.Number != 1 || !e.From.Equal(now) || !e.At.Equal(now.Add(10*time.Second)) {
		t.Errorf("head %+v", e)
	}
	if given.Senders[0] != want {
		t.Error("the caller's list was changed")
	}
	want.Fills, want.Share, want.Now = 360, 1.2346, 0.9877
	if got := e.Limits; got == nil || got.Omitted != 3 || !reflect.DeepEqual(got.Senders, []events.SenderLimit{want, {Rule: "hourly", Sender: "ads"}}) {
		t.Errorf("told %+v", got)
	}
}

// Whatever names there are, the record fits, and what is left out is counted.
func TestLimitsFitInARecord(t *testing.T) {
	var l events.Limits
	for i := range 1000 {
		l.Senders = append(l.Senders, events.SenderLimit{Rule: "r", Sender: fmt.Sprint(i, strings.Repeat("\x01", 128)), Limited: math.MaxInt64})
	}
	e := readEvent(t, events.New("w", startTime).Limits(l, startTime))
	if n := len(e.Limits.Senders); n == 0 || n+e.Limits.Omitted != 1000 || e.Limits.Omitted == 0 || e.Limits.Senders[0].Sender != l.Senders[0].Sender {
		t.Errorf("%d told, %d omitted", n, e.Limits.Omitted)
	}
}
