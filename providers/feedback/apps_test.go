package feedback

import (
	"testing"
	"time"
)

func newAppGuard(t *testing.T) *AppGuard {
	t.Helper()
	g, err := NewAppGuard(AppOptions{Share: 0.2, Window: 5 * time.Minute, Answers: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAppGuard(t *testing.T) {
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	type step struct {
		at            time.Duration
		app           string
		answers, dead int
		want          bool
		why           string
	}
	for name, steps := range map[string][]step{
		"few answers prove nothing": {
			{0, "shop", 999, 999, true, "one below the least"},
			{0, "shop", 1, 0, false, "now there are enough"},
		},
		"up to the share": {
			{0, "shop", 1000, 200, true, "exactly the share"},
			{0, "shop", 1, 1, false, "one more"},
		},
		"the share jumps": {
			{0, "shop", 5000, 5, true, "as usual"},
			{time.Minute, "shop", 1000, 1000, true, "a sixth of all"},
			{2 * time.Minute, "shop", 500, 500, false, "1,505 of 6,500"},
			{3 * time.Minute, "shop", 100, 0, false, "what comes with it is kept too"},
			{4 * time.Minute, "shop", 2000, 0, true, "accepted again: 1,505 of 8,600"},
		},
		"answers grow old": {
			{0, "shop", 1000, 1000, false, "all dead"},
			{4 * time.Minute, "shop", 1000, 0, false, "half of the window's"},
			{4*time.Minute + 30*time.Second, "shop", 0, 0, false, "still in it"},
			{5 * time.Minute, "shop", 1, 1, true, "the window has only the later ones"},
			{time.Hour, "shop", 1000, 1000, false, "nothing is left of them"},
			{2 * time.Hour, "shop", 1, 1, true, "one answer proves nothing"},
		},
		"apps by themselves": {
			{0, "shop", 1000, 1000, false, "all dead"},
			{0, "news", 1000, 1, true, "another app"},
		},
		"a clock that is set back": {
			{time.Hour, "shop", 1000, 1000, false, "all dead"},
			{0, "shop", 0, 0, false, "they still count"},
			{0, "shop", 5000, 0, true, "and so do these"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newAppGuard(t)
			for _, s := range steps {
				if got := g.Believe(s.app, s.answers, s.dead, start.Add(s.at)); got != s.want {
					t.Errorf("%v, %d of %d: believed %v, want %v: %s", s.at, s.dead, s.answers, got, s.want, s.why)
				}
			}
		})
	}
}

func TestAppGuardRefusesWhatCannotWork(t *testing.T) {
	for why, o := range map[string]AppOptions{
		"no share":      {Window: time.Minute, Answers: 1},
		"more than all": {Share: 1.1, Window: time.Minute, Answers: 1},
		"short window":  {Share: 1, Window: time.Second - 1, Answers: 1},
		"no answers":    {Share: 1, Window: time.Minute},
	} {
		if _, err := NewAppGuard(o); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
	if _, err := NewAppGuard(AppOptions{Share: 1, Window: time.Second, Answers: 1}); err != nil {
		t.Error(err)
	}
}
