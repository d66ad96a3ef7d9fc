package collapse

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/yieldtest"
	"github.com/pushfleet/pushfleet/shards"
)

// What is kept for the next call keeps no item and no user of this one in memory.
func TestScratchKeepsNothingOfTheCaller(t *testing.T) {
	l := &Latest{}
	l.scratch.New = func() any { return new(scratch) }
	sc := l.begin()
	lists := []*[]*pipeline.Item{&sc.items, &sc.alone, &sc.sorted}
	for _, list := range lists {
		*list = append(*list, &pipeline.Item{})
	}
	sc.asked, sc.questions, sc.scores = append(sc.asked, 1), append(sc.questions, 1), append(sc.scores, 1)
	sc.args, sc.values = append(sc.args, "ada"), append(sc.values, "ada")
	sc.cmds = append(sc.cmds, *redis.NewIntCmd(t.Context(), "PING"))
	l.end(sc)
	if n := len(sc.asked) + len(sc.questions) + len(sc.scores) + len(sc.args) + len(sc.values) + len(sc.cmds); n != 0 {
		t.Errorf("the next call begins with %d entries of this one", n)
	}
	for i, list := range lists {
		if len(*list) != 0 || (*list)[:1][0] != nil {
			t.Errorf("list %d of items is kept: %v", i, (*list)[:1])
		}
	}
	if sc.args[:1][0] != nil || sc.values[:1][0] != "" || sc.cmds[:1][0].Args() != nil {
		t.Errorf("kept: %v, %q, %v", sc.args[:1][0], sc.values[:1][0], sc.cmds[:1][0].Args())
	}
}

// Working memory is used again. Not each time: a pool promises nothing.
func TestScratchIsUsedAgain(t *testing.T) {
	const calls = 100
	for name, call := range map[string]func(*Latest) error{
		"Accepted":   func(l *Latest) error { return l.Accepted(t.Context(), nil) },
		"HandedOver": func(l *Latest) error { return l.HandedOver(t.Context(), nil) },
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

// Each key that is added decides for itself whether its user's set is looked through.
func TestEachKeyTrimsByItsOwnScore(t *testing.T) {
	sc, want := new(scratch), 0
	for i := range 200 {
		it := &pipeline.Item{Message: push.Message{ID: fmt.Sprint("id-", i), UserID: fmt.Sprint("user-", i), App: "shop", CollapseKey: "k"}}
		if score(it)%trimEvery == 0 {
			want++
		}
		sc.items = append(sc.items, it)
	}
	sc.opens(t.Context(), time.Now(), time.Hour)
	got := 0
	for i := range sc.cmds {
		if sc.cmds[i].Name() == "zremrangebyrank" {
			got++
		}
	}
	if got != want || want == 0 || want == len(sc.items) {
		t.Errorf("%d of %d keys look through their sets, want %d", got, len(sc.items), want)
	}
}

// A question has so many keys at most, and of a cluster those of one shard; together they ask
// for each item once, in the order of the keys.
func TestQuestions(t *testing.T) {
	for _, tt := range []struct {
		n, users int
		cluster  bool
	}{{0, 1, false}, {1, 1, false}, {mostAsked, 1, false}, {mostAsked + 1, 1, true}, {1000, 1000, false}, {1000, 1000, true}, {1000, 3, true}} {
		sc := new(scratch)
		for i := range tt.n {
			sc.alone = append(sc.alone, &pipeline.Item{Message: push.Message{ID: fmt.Sprint(i), UserID: fmt.Sprint("user-", i%tt.users)}})
		}
		keys, at, known := sc.asks(t.Context(), tt.cluster), 0, map[string]bool{}
		for q := range sc.cmds {
			args := sc.cmds[q].Args()
			if args[0] != "EXISTS" || len(args) < 2 || len(args) > 1+mostAsked || at+len(args)-1 != sc.questions[q] {
				t.Fatalf("%+v: question %d is %v to %d", tt, q, args, sc.questions[q])
			}
			for _, arg := range args[1:] {
				owner := sc.sorted[at].UserID
				shard := shards.UserShard(owner)
				if key := *arg.(*string); key != keys[at] || key != shards.CollapseKey(shard, owner) {
					t.Fatalf("%+v: asked for %q in place %d, want %q", tt, key, at, owner)
				}
				if first := sc.sorted[sc.questions[q]-len(args)+1].UserID; tt.cluster && shards.UserShard(first) != shard {
					t.Fatalf("%+v: a question of two shards", tt)
				}
				known[sc.sorted[at].ID] = true
				at++
			}
		}
		if at != tt.n || len(known) != tt.n {
			t.Errorf("%+v: asked for %d items, %d different ones", tt, at, len(known))
		}
		if !tt.cluster && len(sc.cmds) != (tt.n+mostAsked-1)/mostAsked {
			t.Errorf("%+v: %d questions", tt, len(sc.cmds))
		}
	}
}
