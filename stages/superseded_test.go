package stages_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// newest reports fixed ids as superseded.
type newest struct {
	ids   []string
	asked []string
	err   error
}

func (n *newest) Superseded(_ context.Context, items []*pipeline.Item, out []bool) error {
	for i, it := range items {
		n.asked = append(n.asked, it.ID)
		out[i] = slices.Contains(n.ids, it.ID)
	}
	return n.err
}

func TestSuperseded(t *testing.T) {
	key := func(it *pipeline.Item) { it.CollapseKey, it.Attempt = "order-17", 1 }
	for _, tt := range []struct {
		why   string
		edit  func(*pipeline.Item)
		retry bool
		old   bool // a newer one was accepted
		asks  bool
		want  push.Verdict
	}{
		{why: "a newer one was accepted", edit: key, retry: true, old: true, asks: true, want: push.Suppressed},
		{why: "none is newer", edit: key, retry: true, asks: true},
		{why: "critical is no exception", retry: true, old: true, asks: true, want: push.Suppressed,
			edit: func(it *pipeline.Item) { key(it); it.Priority = push.Critical }},
		{why: "first attempts are not asked about", edit: key, old: true},
		{why: "without a collapse key nothing replaces it", retry: true, old: true},
		{why: "a verdict stays", retry: true, old: true, want: push.Duplicate,
			edit: func(it *pipeline.Item) { key(it); it.Decide(push.Duplicate, "", "") }},
	} {
		n := &newest{}
		if tt.old {
			n.ids = []string{"n"}
		}
		b := &pipeline.Batch{Retry: tt.retry, Items: []pipeline.Item{item("n", tt.edit), item("other", key)}}
		s := &stages.Superseded{Newest: n}
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		it := &b.Items[0]
		if it.Verdict != tt.want || it.Verdict == push.Suppressed && it.Reason != push.Superseded {
			t.Errorf("%s: got %v %q, want %v", tt.why, it.Verdict, it.Reason, tt.want)
		}
		if got := slices.Contains(n.asked, "n"); got != tt.asks {
			t.Errorf("%s: got a request: %v", tt.why, got)
		}
		if v := b.Items[1].Verdict; v != push.Undecided {
			t.Errorf("%s: got %v for its neighbour", tt.why, v)
		}
	}
}

// A store that cannot be read means neither "nothing is newer" nor a verdict.
func TestSupersededWaitsForItsStore(t *testing.T) {
	away := errors.New("redis is away")
	b := &pipeline.Batch{Retry: true, Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.CollapseKey = "k" })}}
	s := &stages.Superseded{Newest: &newest{ids: []string{"n"}, err: away}}
	if err := s.Apply(t.Context(), b); !errors.Is(err, away) {
		t.Errorf("got error %v, want the store's", err)
	}
	if v := b.Items[0].Verdict; v != push.Undecided {
		t.Errorf("got verdict %v", v)
	}
}
