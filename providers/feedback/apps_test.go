package feedback

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// of are so many messages of a campaign; none has a sender.
func of(campaign string, n int) []*push.Message {
	ms := make([]*push.Message, n)
	for i := range ms {
		ms[i] = &push.Message{Campaign: campaign}
	}
	return ms
}

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
				if got, _ := g.Believe(s.app, s.answers, of("", s.dead), start.Add(s.at)); got != s.want {
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

// A storm that one campaign brings about is that campaign's: what it brought about counts
// no more, and the others' tokens are believed dead as before.
func TestAppGuardFindsTheCampaign(t *testing.T) {
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name                string
		answers             int
		autumn, other, rest int
		want                string
	}{
		{"nearly all are its own", 1200, 450, 10, 20, "autumn"},
		{"a fifth is somebody else's", 1200, 400, 0, 100, ""},
		{"two campaigns", 1200, 240, 240, 0, ""},
		{"nothing is accepted", 1200, 1200, 0, 0, ""},
		{"the others' are too many without it", 4000, 40, 0, 1000, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newAppGuard(t)
			dead := append(append(of("autumn", tt.autumn), of("winter", tt.other)...), of("", tt.rest)...)
			believe, fault := g.Believe("shop", tt.answers, dead, start)
			if believe {
				t.Fatal("a storm was believed")
			}
			got := ""
			if fault != nil {
				got = fault.Origin.Name
			}
			if got != tt.want {
				t.Fatalf("the fault of %q, want %q", got, tt.want)
			}
			if again, _ := g.Believe("shop", 1, of("", 1), start); again != (tt.want != "") {
				t.Errorf("the next dead token: believed %v", again)
			}
		})
	}
}

// What an app guard remembers of origins is bounded.
func TestAppGuardIsBounded(t *testing.T) {
	g := newAppGuard(t)
	for i := range 10 * mostOrigins {
		g.Believe("shop", 1, of(fmt.Sprint(i), 1), time.Unix(1, 0))
	}
	for _, by := range g.apps["shop"].origins {
		if len(by) > mostOrigins {
			t.Errorf("%d origins in one slot", len(by))
		}
	}
}

// A campaign whose tokens are bad is found although more others than are told apart have had
// one just before, as those of a sender that gives each of its messages one of its own.
func TestAppGuardFindsTheCampaignBehindManyOthers(t *testing.T) {
	g, now := newAppGuard(t), time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	const others = 3 * mostOrigins / 2
	for i := range others {
		g.Believe("shop", 20, of(fmt.Sprint("once ", i), 1), now)
	}
	believe, fault := g.Believe("shop", 2000, of("autumn", 1900), now)
	if believe || fault == nil || fault.Origin.Name != "autumn" {
		t.Fatalf("believed %v, the fault of %+v, want that of autumn", believe, fault)
	}
	for _, by := range g.apps["shop"].origins {
		if len(by) > mostOrigins {
			t.Errorf("%d origins in one slot", len(by))
		}
	}
}
