package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The id of a message to a device alone must not be the body's memory.
func TestTheIDOfADeviceIsACopy(t *testing.T) {
	w := newWorld(t)
	k := &check{caller: &Caller{Sender: "orders", apps: map[string]bool{"shop": true}}, now: clock()}
	body := []byte(`{"id":"device-only-1","app":"shop","service_type":"otp","device":{"platform":"fcm","token":"` + strings.Repeat("a", 40) + `"},"title":"x"}`)
	var m message
	if p := w.gateway.accept(k, body, &m); p != nil {
		t.Fatalf("%+v", p)
	}
	key, value := string(m.record.Key), string(m.record.Value)
	for i := range body {
		body[i] = 'Z'
	}
	if m.id != "device-only-1" {
		t.Errorf("id is %q", m.id)
	}
	if string(m.record.Key) != key || string(m.record.Value) != value || m.owner.key() != key {
		t.Error("key or value changed")
	}
}

// End to end: the answer of one names the id of another.
func TestTheIDOfADeviceThroughHTTP(t *testing.T) {
	w := newWorld(t)
	tok := strings.Repeat("a", 40)
	body := func(id string) string {
		return `{"id":"` + id + `","app":"shop","service_type":"otp","device":{"platform":"fcm","token":"` + tok + `"},"title":"x"}`
	}
	bad := 0
	for i := range 50 {
		first, second := fmt.Sprintf("mine-%03d", i), fmt.Sprintf("evil-%03d", i)
		nested := false
		w.set(func() {
			w.ack = func(r Record, done func(Place, error)) {
				if !nested {
					nested = true
					w.post(body(second))
				}
				done(w.keep(r), nil)
			}
		})
		a := w.post(body(first))
		if a.string("id") != first {
			bad++
			t.Logf("sent %s, answered %s", first, a.string("id"))
		}
	}
	if bad > 0 {
		t.Errorf("%d answers of 50 named another's id", bad)
	}
	_ = time.Now
}
