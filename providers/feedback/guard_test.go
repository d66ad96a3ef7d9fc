package feedback

import "testing"

func TestGuard(t *testing.T) {
	t.Run("one dead token among many", func(t *testing.T) {
		var g Guard
		for i := range 5000 {
			if i%50 == 7 { // 2 %
				if !g.Dead() {
					t.Fatalf("answer %d: not believed", i)
				}
				continue
			}
			g.Success()
		}
	})
	t.Run("every token dead from the start: wrong environment", func(t *testing.T) {
		var g Guard
		believed := 0
		for range 2000 {
			if g.Dead() {
				believed++
			}
		}
		if believed != unproven {
			t.Errorf("%d tokens would be removed, want %d", believed, unproven)
		}
	})
	t.Run("the set-up breaks in the middle", func(t *testing.T) {
		var g Guard
		for range 3000 {
			g.Success()
		}
		believed := 0
		for range 800 {
			if g.Dead() {
				believed++
			}
		}
		if believed != most {
			t.Errorf("%d tokens would be removed, want %d", believed, most)
		}
		for range window {
			g.Success()
		}
		if !g.Dead() {
			t.Error("mended, but a dead token is still not believed")
		}
	})
	t.Run("other errors prove nothing", func(t *testing.T) {
		var g Guard
		for range 500 {
			g.Other()
		}
		for i := range 20 {
			if got := g.Dead(); got != (i < unproven) {
				t.Errorf("dead token %d: believed %v", i, got)
			}
		}
	})
}
