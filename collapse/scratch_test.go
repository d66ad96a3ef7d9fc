package collapse

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
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

// Each note decides for itself whether its user's set is looked through.
func TestEachNoteTrimsByItsOwnScore(t *testing.T) {
	sc, want := new(scratch), 0
	for i := range 200 {
		it := &pipeline.Item{Message: push.Message{ID: fmt.Sprint("id-", i), UserID: fmt.Sprint("user-", i), App: "shop", CollapseKey: "k"}}
		if score(it)%trimEvery == 0 {
			want++
		}
		sc.items = append(sc.items, it)
	}
	sc.notes(t.Context(), boundsAt(time.Now(), time.Hour))
	got := 0
	for i := range sc.cmds {
		if sc.cmds[i].Name() == "zremrangebyrank" {
			got++
		}
	}
	if got != want || want == 0 || want == len(sc.items) {
		t.Errorf("%d of %d notes look through their sets, want %d", got, len(sc.items), want)
	}
}
