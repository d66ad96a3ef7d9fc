package collapse

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push/yieldtest"
)

// What is kept for the next call keeps no item and no user of this one in memory.
func TestScratchKeepsNothingOfTheCaller(t *testing.T) {
	l := &Latest{}
	l.scratch.New = func() any { return new(scratch) }
	sc := l.begin()
	sc.items, sc.asked = append(sc.items, &pipeline.Item{}), append(sc.asked, 1)
	sc.args, sc.values = append(sc.args, "ada"), append(sc.values, "ada")
	sc.cmds = append(sc.cmds, *redis.NewIntCmd(t.Context(), "PING"))
	l.end(sc)
	if n := len(sc.items) + len(sc.asked) + len(sc.args) + len(sc.values) + len(sc.cmds); n != 0 {
		t.Errorf("the next call begins with %d entries of this one", n)
	}
	if sc.items[:1][0] != nil || sc.args[:1][0] != nil || sc.values[:1][0] != "" || sc.cmds[:1][0].Args() != nil {
		t.Errorf("kept: %v, %v, %q, %v", sc.items[:1][0], sc.args[:1][0], sc.values[:1][0], sc.cmds[:1][0].Args())
	}
}

// Working memory is used again. Not each time: a pool promises nothing.
func TestScratchIsUsedAgain(t *testing.T) {
	const calls = 100
	for name, call := range map[string]func(*Latest) error{
		"Accepted":   func(l *Latest) error { return l.Accepted(t.Context(), nil) },
		"Superseded": func(l *Latest) error { return l.Superseded(t.Context(), nil, nil) },
	} {
		l, err := New(nil, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		made := 0
		l.scratch.New = func() any { made++; return new(scratch) }
		for range calls {
			if err := call(l); err != nil {
				t.Fatal(err)
			}
		}
		if made >= calls {
			t.Errorf("%s: %d calls made their working memory %d times", name, calls, made)
		}
	}
}

// A one-time password does not wait until all of a batch are written down.
func TestPlacesYield(t *testing.T) {
	const n = 10_000
	sc := new(scratch)
	for range n {
		sc.items = append(sc.items, &pipeline.Item{})
	}
	yieldtest.Often(t, n, sc.places)
}
