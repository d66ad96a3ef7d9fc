package feedback

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// traffic is a guard that is told of answers.
type traffic struct {
	t   *testing.T
	g   Guard
	now time.Time
}

func (tr *traffic) good(n int) {
	for range n {
		tr.g.Success(new(push.Message))
	}
}

// dead is what becomes of one message whose token is called dead.
func (tr *traffic) dead(m push.Message) push.Result {
	return tr.g.Dead(&m, push.Result{Class: push.Again, Reason: "BadDeviceToken"}, tr.now)
}

// until has dead tokens of a message until one is not believed dead, good ones between
// them, and returns how many were believed and what became of that one.
func (tr *traffic) until(m push.Message, good int) (believed int, r push.Result) {
	for range 2 * window {
		if r = tr.dead(m); r.Class != push.Gone {
			return believed, r
		}
		believed++
		tr.good(good)
	}
	tr.t.Fatal("all are believed dead")
	return 0, r
}

var (
	autumn = push.Message{Campaign: "autumn", SenderID: "marketing", Priority: push.Low}
	otp    = push.Message{SenderID: "auth", Priority: push.Critical}
)

func want(t *testing.T, r push.Result, scope push.Scope, origin string, length time.Duration) {
	t.Helper()
	if r.Class != push.Again || !r.Halt || r.Scope != scope || (r.Culprit == nil) != (origin == "") {
		t.Fatalf("%+v, want one that stops %q", r, origin)
	}
	if r.Culprit != nil && (r.Culprit.Origin.String() != origin || r.Culprit.For != length) {
		t.Fatalf("the fault of %+v, want %s for %v", r.Culprit, origin, length)
	}
}

func TestTheCampaignIsAtFault(t *testing.T) {
	tr := &traffic{t: t}
	tr.good(500)
	n, r := tr.until(autumn, 3)
	want(t, r, push.ScopeDevice, "campaign@marketing/autumn", 0)
	if n != most {
		t.Errorf("%d tokens were believed dead, want %d", n, most)
	}
	for range 3 * most { // what was under way
		want(t, tr.dead(autumn), push.ScopeDevice, "campaign@marketing/autumn", 0)
	}
	if r := tr.dead(otp); r.Class != push.Gone {
		t.Errorf("a dead token of another's: %+v, want that it is believed", r)
	}
	tr.now = tr.now.Add(underWay)
	if r := tr.dead(autumn); r.Class != push.Gone {
		t.Errorf("one of the campaign's long after: %+v", r)
	}
}

func TestTheSenderIsAtFault(t *testing.T) {
	tr := &traffic{t: t}
	tr.good(500)
	i := 0
	for ; ; i++ {
		r := tr.dead(push.Message{Campaign: fmt.Sprint("c", i), SenderID: "marketing", Priority: push.Low})
		if r.Class == push.Gone {
			tr.good(1)
			continue
		}
		want(t, r, push.ScopeDevice, "sender/marketing", 0)
		break
	}
}

// Where everybody's tokens look dead, the set-up is wrong.
func TestTheSetUpIsAtFault(t *testing.T) {
	winter := push.Message{Campaign: "winter", SenderID: "sales", Priority: push.Low}
	t.Run("two halves", func(t *testing.T) {
		tr := &traffic{t: t}
		tr.good(900)
		for i := range most {
			if r := tr.dead([]push.Message{autumn, winter}[i%2]); r.Class != push.Gone {
				t.Fatalf("dead token %d: %+v", i, r)
			}
		}
		want(t, tr.dead(autumn), push.ScopeRoute, "", 0)
	})
	t.Run("nothing is accepted any more", func(t *testing.T) {
		tr := &traffic{t: t}
		tr.good(900)
		_, r := tr.until(autumn, 0)
		want(t, r, push.ScopeDevice, "campaign@marketing/autumn", onTrial)
		for range doubtful {
			want(t, tr.dead(winter), push.ScopeDevice, "", 0)
		}
		want(t, tr.dead(winter), push.ScopeRoute, "", 0)
	})
	t.Run("critical ones have no origin", func(t *testing.T) {
		tr := &traffic{t: t}
		tr.good(500)
		_, r := tr.until(push.Message{Campaign: "otp", SenderID: "auth", Priority: push.Critical}, 3)
		want(t, r, push.ScopeRoute, "", 0)
	})
}

// On a route without a success the first origin is stopped for a moment: then others show
// whether the set-up works.
func TestAnOriginOnTrial(t *testing.T) {
	begin := func(t *testing.T) *traffic {
		tr := &traffic{t: t}
		n, r := tr.until(autumn, 0)
		want(t, r, push.ScopeDevice, "campaign@marketing/autumn", onTrial)
		if n != unproven {
			t.Errorf("%d tokens were believed dead, want %d", n, unproven)
		}
		return tr
	}
	t.Run("the others are well", func(t *testing.T) {
		tr := begin(t)
		want(t, tr.dead(otp), push.ScopeDevice, "", 0) // kept, and nothing is stopped
		for i := range witnesses {
			fault := tr.g.Success(new(push.Message))
			if proven := i == witnesses-1; (fault != nil) != proven || proven && (fault.Origin.Name != "autumn" || fault.For != 0) {
				t.Errorf("after %d that were accepted: %+v", i+1, fault)
			}
		}
		want(t, tr.dead(autumn), push.ScopeDevice, "campaign@marketing/autumn", 0)
		if r := tr.dead(otp); r.Class != push.Gone {
			t.Errorf("a dead token after some that were accepted: %+v", r)
		}
	})
	t.Run("the others are as bad", func(t *testing.T) {
		tr := begin(t)
		for range doubtful {
			want(t, tr.dead(otp), push.ScopeDevice, "", 0)
		}
		want(t, tr.dead(otp), push.ScopeRoute, "", 0)
	})
	t.Run("it is alone and begins again", func(t *testing.T) {
		tr := begin(t)
		tr.now = tr.now.Add(onTrial)
		for range doubtful {
			want(t, tr.dead(autumn), push.ScopeDevice, "", 0)
		}
		want(t, tr.dead(autumn), push.ScopeRoute, "", 0)
	})
}

// Who names another sender's campaign stops nothing of that sender: what is stopped is the
// campaign as the one who sends the bad tokens has it.
func TestAnothersCampaignIsNotAtFault(t *testing.T) {
	tr := &traffic{t: t}
	tr.good(500)
	stranger := autumn
	stranger.SenderID = "stranger"
	_, r := tr.until(stranger, 3)
	want(t, r, push.ScopeDevice, "campaign@stranger/autumn", 0)
	if r := tr.dead(autumn); r.Class != push.Gone {
		t.Errorf("a dead token of the campaign's own sender: %+v, want that it is believed", r)
	}
}

// What is accepted of the origin itself is no witness of others: it is stopped for a moment, and
// for longer each time that nobody else sends; the route is not halted while its own are
// accepted.
func TestAnOriginIsNoWitnessOfItsOwn(t *testing.T) {
	tr := &traffic{t: t}
	tr.good(200)
	own := func(n int) {
		for range n {
			if fault := tr.g.Success(&autumn); fault != nil {
				t.Fatalf("its own prove %+v", fault)
			}
		}
	}
	stopped := func(length time.Duration) {
		t.Helper()
		for range window {
			own(3)
			if r := tr.dead(autumn); r.Class != push.Gone {
				want(t, r, push.ScopeDevice, "campaign@marketing/autumn", length)
				return
			}
		}
		t.Fatal("all are believed dead")
	}
	stopped(onTrial)
	own(witnesses) // what was under way
	tr.now = tr.now.Add(onTrial)
	stopped(2 * onTrial)
	for range mostDoubled + 2 {
		own(witnesses)
		tr.now = tr.now.Add(onTrial << mostDoubled)
		for range window {
			if own(3); tr.dead(autumn).Class != push.Gone {
				break
			}
		}
	}
	if r := tr.g.fault; r.For != onTrial<<mostDoubled {
		t.Errorf("after many trials it is stopped for %v, want %v", r.For, onTrial<<mostDoubled)
	}
	others := otp
	for i := range witnesses {
		if fault := tr.g.Success(&others); (fault != nil) != (i == witnesses-1) {
			t.Errorf("after %d of others: %+v", i+1, fault)
		}
	}
}
