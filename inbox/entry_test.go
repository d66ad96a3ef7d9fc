package inbox

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/push"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An entry's place is that of its id where the id's time can be believed, else when it was
// first seen: the same at every repeat.
func TestPositionOf(t *testing.T) {
	const id = "0199f3c2-8a00-7b11-8c22-6d3344e55f66"
	minted := time.UnixMilli(0x0199f3c28a00).UTC()
	for _, tt := range []struct {
		why  string
		id   string
		seen time.Time
		want time.Time
	}{
		{"a UUIDv7", id, minted.Add(time.Minute), minted},
		{"of a fan-out, 18 minutes ago", id, minted.Add(18 * time.Minute), minted},
		{"ahead by less than a minute", id, minted.Add(-59 * time.Second), minted},
		{"from the future", id, minted.Add(-time.Minute), minted.Add(-time.Minute)},
		{"of long ago", id, minted.Add(time.Hour), minted.Add(time.Hour)},
		{"no UUIDv7", "0199f3c2-8a00-4b11-8c22-6d3344e55f66", minted, minted},
		{"in braces", "{" + id + "}", minted.Add(time.Second), minted.Add(time.Second)},
		{"a name", "order-4711", minted.Add(999 * time.Microsecond), minted},
	} {
		if got := PositionOf(tt.id, tt.seen); !got.At.Equal(tt.want) || got.At.Location() != time.UTC || got.ID != tt.id {
			t.Errorf("%s: %v, want %v", tt.why, got.At, tt.want)
		}
	}
}

// Nothing that is only for devices, or secret, is in what is shown.
func TestContentOf(t *testing.T) {
	m := push.Message{Title: "T", Body: "<b>", Image: "i", Video: "v", Category: "c", ThreadID: "t", Locale: "de", Data: []byte(`{"k":"v"}`),
		Sound: "bell", APNSPayload: []byte(`{"x":1}`), FCM: []byte(`{"y":1}`), CollapseKey: "k", Device: push.Target{Token: "secret"}}
	got, ok := ContentOf(&m)
	const want = `{"title":"T","body":"\u003cb\u003e","image":"i","video":"v","category":"c","thread_id":"t","locale":"de","data":{"k":"v"}}`
	if !ok || string(got) != want {
		t.Errorf("%s, %v", got, ok)
	}
	if _, ok := ContentOf(&push.Message{Data: []byte(`{"k":"v"}`)}); ok {
		t.Error("a background push can be read")
	}
}
