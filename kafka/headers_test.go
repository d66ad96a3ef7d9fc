package kafka

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

func TestRetryHeadersComeBackAsWritten(t *testing.T) {
	first := time.UnixMilli(1_790_000_000_123)
	due := time.UnixMilli(1_790_000_030_000).Add(400 * time.Microsecond)
	it := &pipeline.Item{Partition: push.Partition{Topic: "push", ID: 3}, Offset: 77, FirstSeen: push.At(first), Redrive: 1, Attempt: 2, Allowed: true, Paid: true,
		Trace: []pipeline.RecordHeader{{Key: "traceparent", Value: []byte("00-1-2-01")}}}
	h := &pipeline.Handover{To: pipeline.ToRetry, Item: it, Devices: []string{"d1", "d2"}, Attempt: 2, Hops: 5, NotBefore: due, Reason: "TooManyRequests"}

	written := retryHeadersOf(h)
	got, err := parseRetryHeaders(written)
	if err != nil {
		t.Fatal(err)
	}
	want := &retryHeaders{attempt: 2, hops: 5, redrive: 1, firstSeen: first, devices: []string{"d1", "d2"}, allowed: true, paid: true,
		notBefore: time.UnixMilli(1_790_000_030_001)} // rounded up, so never early
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	// The next retry of the same notification has the same origin.
	second := &pipeline.Item{Partition: push.Partition{Topic: "push.retry.30s", ID: 0}, Offset: 1, Trace: appendTrace(nil, written, &topic{SourceTopic: SourceTopic{Kind: Retry}})}
	if got := origin(second); got != "push/3/77" {
		t.Errorf("got origin %q for the second retry, want push/3/77", got)
	}
	again := retryHeadersOf(&pipeline.Handover{Item: second})
	count := make(map[string]int)
	for _, h := range again {
		count[h.Key]++
	}
	if count["traceparent"] != 1 || count[headerOrigin] != 1 {
		t.Errorf("headers of the second retry: got %v, want one traceparent and one origin", count)
	}
}

func TestRetryHeadersInDoubtAreErrors(t *testing.T) {
	ok := []kgo.RecordHeader{header("pf-v", "1"), header("pf-attempt", "1")}
	tests := []struct {
		reason string
		more   []kgo.RecordHeader
		want   string // part of the error; empty = none
	}{
		{"headers of others do not matter", []kgo.RecordHeader{header("x", "\x00"), header("x", "2")}, ""},
		{"unknown pf headers are for a reader who knows them", []kgo.RecordHeader{header("pf-later", "x")}, ""},
		{"twice the same: which one counts?", []kgo.RecordHeader{header("pf-attempt", "2")}, "twice"},
		{"not a number", []kgo.RecordHeader{header("pf-hops", "many")}, "pf-hops"},
		{"negative", []kgo.RecordHeader{header("pf-redrive", "-1")}, "pf-redrive"},
		{"more than a step can hold", []kgo.RecordHeader{header("pf-hops", "32767")}, "add up"},
		{"too large", []kgo.RecordHeader{header("pf-hops", "32768")}, "pf-hops"},
		{"not a time", []kgo.RecordHeader{header("pf-not-before", "soon")}, "pf-not-before"},
		{"negative time", []kgo.RecordHeader{header("pf-first-seen", "-5")}, "pf-first-seen"},
		{"devices present but empty would mean all", []kgo.RecordHeader{header("pf-devices", "")}, "pf-devices"},
		{"no state of a hand-over", []kgo.RecordHeader{header("pf-state", "DELIVERED")}, "pf-state"},
		{"no state at all", []kgo.RecordHeader{header("pf-state", "")}, "pf-state"},
		{"a state", []kgo.RecordHeader{header("pf-state", "HELD")}, ""},
		{"allowed is said or not said", []kgo.RecordHeader{header("pf-allowed", "0")}, "pf-allowed"},
		{"paid is said or not said", []kgo.RecordHeader{header("pf-paid", "yes")}, "pf-paid"},
		{"a hole in the list", []kgo.RecordHeader{header("pf-devices", "a,,b")}, "pf-devices"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			_, err := parseRetryHeaders(append(ok[:2:2], test.more...))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	for _, hs := range [][]kgo.RecordHeader{nil, {header("pf-v", "2")}, {header("pf-v", "")}} {
		if _, err := parseRetryHeaders(hs); err == nil || !strings.Contains(err.Error(), "pf-v") {
			t.Errorf("headers %v: got %v, want an error about pf-v", hs, err)
		}
	}
}

func TestProducersHeadersAreIgnoredOnMainTopics(t *testing.T) {
	hs := []kgo.RecordHeader{header("pf-attempt", "9"), header("pf-origin", "x"), header("pf-admitted", "1"), header("traceparent", "t")}
	got := appendTrace(nil, hs, new(topic))
	if len(got) != 1 || got[0].Key != "traceparent" {
		t.Errorf("got %v, want only the traceparent", got)
	}
}

// The reader of a record learns the state of the row that its hand-over wrote.
func TestTheStateOfAHandOverIsHandedOver(t *testing.T) {
	for _, state := range []push.State{0, push.StateRetrying, push.StateHeld} {
		hs := retryHeadersOf(&pipeline.Handover{Item: &pipeline.Item{FirstSeen: push.At(start)}, State: state})
		parsed, err := parseRetryHeaders(hs)
		if err != nil {
			t.Fatalf("%v: %v", state, err)
		}
		o := options(func(o *SourceOptions) { o.Topics = tier("push", time.Second) })
		if got := part(o, 0).topic.items([]polledRecord{{headers: parsed}})[0].HandedAs; got != state {
			t.Errorf("handed over as %v, but read as %v", state, got)
		}
	}
}

// A token of the sender's limits is good for one attempt: it goes along with what is held
// or put off, and not with a retry or a dead letter.
func TestTokensGoAlongUntilAnAttempt(t *testing.T) {
	it := &pipeline.Item{Attempt: 1, Paid: true, FirstSeen: push.At(time.UnixMilli(1_790_000_000_123))}
	for _, tt := range []struct {
		why  string
		h    pipeline.Handover
		goes bool
	}{
		{"put off", pipeline.Handover{To: pipeline.ToRetry, Attempt: 1, Hops: 1}, true},
		{"held", pipeline.Handover{To: pipeline.ToHold, Attempt: 1, Hops: 1}, true},
		{"tried", pipeline.Handover{To: pipeline.ToRetry, Attempt: 2}, false},
		{"dead", pipeline.Handover{To: pipeline.ToDLQ, Attempt: 1}, false},
	} {
		tt.h.Item = it
		got, err := parseRetryHeaders(retryHeadersOf(&tt.h))
		if err != nil || got.paid != tt.goes {
			t.Errorf("%s: paid %t, %v, want %t", tt.why, got.paid, err, tt.goes)
		}
	}
}
