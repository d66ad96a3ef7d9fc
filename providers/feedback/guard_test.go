package feedback

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// believed is what a guard says of a token to which a message of nobody was sent.
func believed(g *Guard) bool {
	return g.Dead(new(push.Message), push.Result{Class: push.Again}, time.Time{}).Class == push.Gone
}

func TestGuard(t *testing.T) {
	t.Run("one dead token among many", func(t *testing.T) {
		var g Guard
		for i := range 5000 {
			if i%50 == 7 { // 2 %
				if !believed(&g) {
					t.Fatalf("answer %d: not believed", i)
				}
				continue
			}
			g.Success(new(push.Message))
		}
	})
	t.Run("every token dead from the start: wrong environment", func(t *testing.T) {
		var g Guard
		n := 0
		for range 2000 {
			if believed(&g) {
				n++
			}
		}
		if n != unproven {
			t.Errorf("%d tokens would be removed, want %d", n, unproven)
		}
	})
	t.Run("the set-up breaks in the middle", func(t *testing.T) {
		var g Guard
		for range 3000 {
			g.Success(new(push.Message))
		}
		n := 0
		for range 800 {
			if believed(&g) {
				n++
			}
		}
		if n != most {
			t.Errorf("%d tokens would be removed, want %d", n, most)
		}
		for range window {
			g.Success(new(push.Message))
		}
		if !believed(&g) {
			t.Error("mended, but a dead token is still not believed")
		}
	})
	t.Run("other errors prove nothing", func(t *testing.T) {
		var g Guard
		for range 500 {
			g.Other()
		}
		for i := range 20 {
			if got := believed(&g); got != (i < unproven) {
				t.Errorf("dead token %d: believed %v", i, got)
			}
		}
	})
}
