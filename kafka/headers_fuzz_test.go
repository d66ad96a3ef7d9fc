package kafka

import (
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// retryNames are the headers that parseRetryHeaders reads.
var retryNames = []string{headerVersion, headerAttempt, headerHops, headerRedrive, headerNotBefore, headerFirstSeen, headerState, headerDevices}

// FuzzRetryHeaders parses arbitrary headers of retry records. Accepted headers are within
// the bounds that later steps rely on, occur once, and are the same after another
// hand-over: if two workers read a header in different ways, one sends to the wrong
// devices.
func FuzzRetryHeaders(f *testing.F) {
	f.Add("1", "2", "5", "1", "1790000030001", "1790000000123", "RETRYING", "d1,d2", "traceparent", "00-1", uint8(255))
	f.Add("1", "0", "0", "0", "", "0", "HELD", "", "pf-attempt", "1", uint8(1))
	f.Add("1", "0", "1", "0", "1790000030001", "0", "HELD", "d1", "pf-allowed", "1", uint8(255))
	f.Add("1", "0", "1", "0", "1790000030001", "0", "HELD", "d1", "pf-allowed", "", uint8(255))
	f.Add("1", "2", "5", "0", "1790000030001", "0", "HELD", "d1", "pf-attempt", "2", uint8(255))
	f.Add("1", "32767", "1", "0", "0", "0", "HELD", "d1", "x", "", uint8(255))
	f.Add("2", "32767", "1", "-1", "-5", "9007199254740993", "DELIVERED", "a,,b", "pf-v", "1", uint8(255))
	f.Add("01", "+1", "0x1", "1e1", "99999999999999999999", "-0", "held", ",", "pf-devices", "d", uint8(255))
	f.Fuzz(func(t *testing.T, v, attempt, hops, redrive, notBefore, firstSeen, state, devices, key, value string, there uint8) {
		hs := []kgo.RecordHeader{header(key, value)}
		count := map[string]int{key: 1}
		for i, said := range []string{v, attempt, hops, redrive, notBefore, firstSeen, state, devices} {
			if there>>i&1 == 1 {
				hs = append(hs, header(retryNames[i], said))
				count[retryNames[i]]++
			}
		}
		got, err := parseRetryHeaders(hs)
		if err != nil {
			return
		}
		for name, n := range count {
			if n > 1 {
				t.Errorf("%s is accepted although it is there %d times", name, n)
			}
		}
		if count[headerVersion] == 0 {
			t.Error("accepted without a version")
		}
		if got.attempt < 0 || got.hops < 0 || got.attempt+got.hops > maxStep || got.redrive < 0 || got.redrive > maxStep {
			t.Errorf("accepted %+v, which is no step of a row", got)
		}
		if count[headerDevices] == 1 && len(got.devices) == 0 {
			t.Error("a list without devices would mean all of them")
		}
		for _, at := range []time.Time{got.notBefore, got.firstSeen} {
			if !at.IsZero() && (at.UnixMilli() < 0 || at.UnixMilli() > 1<<53) {
				t.Errorf("accepted %v, which is no time in Unix milliseconds", at)
			}
		}
		if again := handedOver(t, got); !reflect.DeepEqual(got, again) {
			t.Errorf("read   %+v\nhanded over it is %+v", got, again)
		}
	})
}

// handedOver returns the headers that the next worker reads when this one hands over a
// record that it has read. A record without a first-seen time gets the current one, and one of
// the future no later one.
func handedOver(t *testing.T, h *retryHeaders) *retryHeaders {
	t.Helper()
	if !h.firstSeen.IsZero() {
		h.firstSeen = plausible(h.firstSeen, start.Local())
	}
	it := &pipeline.Item{FirstSeen: push.At(h.firstSeen), Redrive: h.redrive, Attempt: h.attempt, Allowed: h.allowed, Paid: h.paid}
	if h.firstSeen.IsZero() {
		it.FirstSeen = push.At(start)
	}
	written := retryHeadersOf(&pipeline.Handover{To: pipeline.ToRetry, Item: it, Devices: h.devices, Attempt: h.attempt, Hops: h.hops,
		NotBefore: h.notBefore, State: h.state})
	again, err := parseRetryHeaders(written)
	if err != nil {
		t.Fatalf("record made of %+v is refused: %v", h, err)
	}
	if h.firstSeen.IsZero() {
		again.firstSeen = time.Time{}
	}
	return again
}
