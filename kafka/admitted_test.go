package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// What a gateway has counted is paid for: on the lane's own topic and on those of retries,
// at every attempt, but not when it is redriven; and only where gateways limit senders.
func TestAdmittedByAGateway(t *testing.T) {
	for _, tt := range []struct {
		why             string
		admitted, retry bool
		headers         []kgo.RecordHeader
		paid            bool
	}{
		{"it says so", true, false, []kgo.RecordHeader{header("a", "b"), header("pf-admitted", "1")}, true},
		{"twice", true, false, []kgo.RecordHeader{header("pf-admitted", "1"), header("pf-admitted", "1")}, true},
		{"it says something else", true, false, []kgo.RecordHeader{header("pf-admitted", "true")}, false},
		{"it says nothing", true, false, []kgo.RecordHeader{header("pf-paid", "1"), header("a", "1")}, false},
		{"no gateway limits senders", false, false, []kgo.RecordHeader{header("pf-admitted", "1")}, false},
		{"a retry", true, true, []kgo.RecordHeader{header("pf-v", "1"), header("pf-attempt", "2"), header("pf-admitted", "1")}, true},
		{"a retry, and no gateway limits senders any more", false, true, []kgo.RecordHeader{header("pf-v", "1"), header("pf-admitted", "1")}, false},
		{"a retry that says nothing", true, true, []kgo.RecordHeader{header("pf-v", "1")}, false},
	} {
		o := options(func(o *SourceOptions) {
			if tt.retry {
				o.Topics = tier("push", time.Second)
			}
		})
		a := part(o, 0)
		a.topic.admitted = tt.admitted
		h, err := a.keep(&kgo.Record{Value: []byte("{}"), Headers: tt.headers, Timestamp: start}, start)
		if err != nil {
			t.Fatalf("%s: %v", tt.why, err)
		}
		it := &a.topic.items([]polledRecord{h})[0]
		if it.Paid != tt.paid {
			t.Errorf("%s: paid is %v", tt.why, it.Paid)
		}
		it.Paid = false // a try has used its token
		for to, goes := range map[pipeline.Destination]bool{pipeline.ToRetry: tt.paid, pipeline.ToHold: tt.paid, pipeline.ToDLQ: false} {
			n := 0
			for _, w := range retryHeadersOf(&pipeline.Handover{Item: it, To: to, Attempt: it.Attempt + 1}) {
				if w.Key == "pf-admitted" && string(w.Value) == "1" {
					n++
				}
			}
			if n != map[bool]int{true: 1}[goes] {
				t.Errorf("%s: handed to %v it says so %d times", tt.why, to, n)
			}
		}
	}
	if _, err := parseRetryHeaders([]kgo.RecordHeader{header("pf-v", "1"), header("pf-admitted", "0")}); err == nil || !strings.Contains(err.Error(), "pf-admitted") {
		t.Errorf("of a retry that says something else: %v", err)
	}
}
