package kafka

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// A record that makes the decoder panic is dead, and its partition goes on. A decoder
// that panics on most records is broken: then the partition stops, and nothing goes to
// the DLQ.
func TestRecordsThatMakeTheDecoderPanic(t *testing.T) {
	for _, tt := range []struct {
		why     string
		records int
		bad     func(offset int) bool
		dead    []int64
	}{
		{"none", 100, func(int) bool { return false }, nil},
		{"one", 100, func(o int) bool { return o == 37 }, []int64{37}},
		{"all of a few: still the records", 3, func(int) bool { return true }, []int64{0, 1, 2}},
		{"all of many: the decoder", 100, func(int) bool { return true }, nil},
	} {
		t.Run(tt.why, func(t *testing.T) {
			broken := tt.records > 3 && tt.bad(0)
			var stopped stops
			s := newSource(*options(func(o *SourceOptions) {
				o.Health = stopped.health
			}), slog.New(slog.DiscardHandler))
			s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
			a := s.parts[push.Partition{Topic: "push"}]
			rs := sized(tt.records, 1, start)
			for i, r := range rs {
				r.Value = []byte{byte(i)}
			}
			s.decode = func(value []byte, m *push.Message) *push.Defect {
				m.ID = "half of an id"
				if tt.bad(int(value[0])) {
					panic("content")
				}
				*m = push.Message{ID: string('a' + rune(value[0])), UserID: "u"}
				return nil
			}
			a.take(rs, time.Now())
			b := s.cut(a)
			if broken {
				if b != nil || len(stopped.list()) != 1 || stopped.list()[0].Offset != 0 || a.stopped == nil || a.tracker.Open() > 0 {
					t.Fatalf("batch %v, stopped %v, %d open; want a stop before offset 0", b, stopped.list(), a.tracker.Open())
				}
				if ok, _ := a.ready(time.Now().Add(time.Hour)); ok {
					t.Error("the partition continues")
				}
				return
			}
			if b == nil || len(b.Items) != tt.records || len(stopped.list()) > 0 {
				t.Fatalf("batch %v, stopped %v", b, stopped.list())
			}
			var dead []int64
			for i := range b.Items {
				switch it := &b.Items[i]; {
				case it.Verdict == push.Undecided:
				case it.Reason != push.Panicked || it.Detail != "decode" || it.ID != "":
					t.Errorf("item %d: got %v of %s:%s, id %q", i, it.Verdict, it.Reason, it.Detail, it.ID)
				default:
					dead = append(dead, it.Offset)
				}
			}
			if !slices.Equal(dead, tt.dead) || (b.Poisoned != nil) != (tt.dead != nil) {
				t.Errorf("got dead items %v, want %v; report %v", dead, tt.dead, b.Poisoned)
			}
		})
	}
}

// A partition that stops while its batch is cut does not delay another partition.
func TestAStopKeepsNobodyWaiting(t *testing.T) {
	for range 10 { // whichever is picked first
		synctest.Test(t, func(t *testing.T) {
			s := newSource(*options(nil), slog.New(slog.DiscardHandler))
			s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0, 1}})
			s.decode = func(value []byte, m *push.Message) *push.Defect {
				if value[0] == 0 {
					panic("content")
				}
				*m = push.Message{ID: "a", UserID: "u"}
				return nil
			}
			for p, a := range s.parts {
				rs := sized(100, 1, time.Now())
				for _, r := range rs {
					r.Value = []byte{byte(p.ID)}
				}
				a.take(rs, time.Now())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			b, err := s.Next(ctx)
			if err != nil || b.Partition.ID != 1 {
				t.Errorf("got %v, %v; want partition 1's batch", b, err)
			}
		})
	}
}

// Items that have the same names share them, and no item gets another's: neither what
// differs, nor anything of a record that could not be decoded.
func TestItemsShareTheSameNames(t *testing.T) {
	type names struct{ app, kind, sender, campaign, pushType, locale string }
	all := []names{
		{"shop", "promo", "a", "", "alert", "de"},
		{"shop", "promo", "a", "", "alert", "de"},
		{"shop", "order", "a", "summer", "alert", "en"},
		{"bank", "order", "", "summer", "background", ""},
		{"spoilt", "promo", "a", "", "alert", "de"}, // a defect
		{"bank", "order", "", "summer", "background", ""},
	}
	b := &pipeline.Batch{Items: make([]pipeline.Item, len(all))}
	for i := range b.Items {
		b.Items[i].Value = []byte{byte(i)}
	}
	decode := decoder(func(value []byte, m *push.Message) *push.Defect {
		n := all[value[0]]
		*m = push.Message{App: strings.Clone(n.app), Type: strings.Clone(n.kind), SenderID: strings.Clone(n.sender),
			Campaign: strings.Clone(n.campaign), PushType: strings.Clone(n.pushType), Locale: strings.Clone(n.locale)}
		if n.app == "spoilt" {
			return &push.Defect{Reason: push.InvalidMessage}
		}
		return nil
	})
	if err := decode.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for i := range b.Items {
		m := &b.Items[i].Message
		if got := (names{m.App, m.Type, m.SenderID, m.Campaign, m.PushType, m.Locale}); got != all[i] {
			t.Errorf("item %d has the names %v, want %v", i, got, all[i])
		}
	}
	for name, of := range map[string]func(m *push.Message) string{
		"app": func(m *push.Message) string { return m.App }, "type": func(m *push.Message) string { return m.Type },
		"sender": func(m *push.Message) string { return m.SenderID }, "campaign": func(m *push.Message) string { return m.Campaign },
		"push type": func(m *push.Message) string { return m.PushType }, "locale": func(m *push.Message) string { return m.Locale },
	} {
		for _, pair := range [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 5}} {
			a, b := of(&b.Items[pair[0]].Message), of(&b.Items[pair[1]].Message)
			if a != "" && (a == b) != (unsafe.StringData(a) == unsafe.StringData(b)) {
				t.Errorf("%s: items %v have %q and %q, and the same text or not", name, pair, a, b)
			}
		}
	}
}
