package exchange

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// brittle panics on messages whose id says so, as often as it says.
type brittle struct {
	*tongue
	encoded map[string]int
}

func (c *brittle) Encode(d *pipeline.Delivery, r *Draft) (push.Result, bool) {
	result, ok := c.tongue.Encode(d, r)
	c.encoded[d.Item.ID]++
	if strings.HasPrefix(d.Item.ID, "encode") || d.Item.ID == "twice" && c.encoded["twice"] < 3 {
		panic("content")
	}
	return result, ok
}

func (c *brittle) Read(d *pipeline.Delivery, r *Draft) (push.Result, Next) {
	if strings.HasPrefix(d.Item.ID, "read") {
		panic("content")
	}
	return c.tongue.Read(d, r)
}

// A message on which the codec panics ends alone: refused for ever when it was
// not sent, of unknown outcome when its answer could not be read. All others
// of its group are sent.
func TestPanicsOfTheCodecEndOneMessage(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {}, h2.Options{Connections: 1, StreamsPerConnection: 100})
	c := &brittle{tongue: r.codec, encoded: map[string]int{}}
	r.Sender.codec = c
	ds, _ := deliveries(t, append(numbered(20), "encode", "refused", "read", "twice")...)
	all := newBook(t, len(ds))
	if n, err := r.Lane(0).Submit(t.Context(), ds, all.done); n != len(ds) || err != nil {
		t.Fatal(n, err)
	}
	all.wait("everything")
	for _, d := range ds {
		got := d.Result
		switch d.Item.ID {
		case "encode":
			if got.Class != push.Refused || got.Panic == nil || got.Panic.Stage != "encode" || c.encoded["encode"] != pipeline.PoisonTries {
				t.Errorf("encode panicked: %+v after %d tries", got, c.encoded["encode"])
			}
		case "read":
			if got.Class != push.Again || got.Certainty != push.Ambiguous || got.Panic == nil || got.Panic.Stage != "read" {
				t.Errorf("read panicked: %+v", got)
			}
		case "refused":
			if got.Panic != nil || got.Reason != "ours" {
				t.Errorf("refused: %+v", got)
			}
		default:
			if got.Class != push.Delivered {
				t.Errorf("%s: %+v", d.Item.ID, got)
			}
		}
	}
}

// A codec that panics on most messages is broken: its route is halted, and they
// are held.
func TestABrokenCodecHaltsItsRoute(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {}, h2.Options{Connections: 1, StreamsPerConnection: 100})
	r.Sender.codec = &brittle{tongue: r.codec, encoded: map[string]int{}}
	ids := numbered(100)
	for i := range 11 {
		ids[i] = "encode" + ids[i]
	}
	ds, _ := deliveries(t, ids...)
	all := newBook(t, len(ds))
	if n, err := r.Lane(0).Submit(t.Context(), ds, all.done); n != len(ds) || err != nil {
		t.Fatal(n, err)
	}
	all.wait("everything")
	for i, d := range ds {
		if halted := d.Result.Class == push.Again && d.Result.Scope == push.ScopeRoute && d.Result.Halt && d.Result.Panic != nil; halted != (i < 11) {
			t.Errorf("%s: %+v", d.Item.ID, d.Result)
		}
	}
}
