package invariants

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// comeback is a run of a minute with a provider that is down for half of it, and gets so
// many calls accepted at a time.
func comeback(falls, accepted, ms int) *Ledgers {
	l := clean()
	l.Events = []Event{{Kind: "comeback", Target: "fcm", Start: at(10_000), End: at(70_000),
		Recovery: &Recovery{Provider: "fcm", Down: 30 * time.Second, Falls: falls}}}
	for i := range accepted {
		l.Sends.Entries = append(l.Sends.Entries, Send{Pair: Pair{fmt.Sprint("c", i), "1"}, At: at(ms), Provider: "fcm", Accepted: true})
	}
	return l
}

func TestRecoveries(t *testing.T) {
	for _, tt := range []struct {
		why    string
		l      *Ledgers
		broken bool
		says   string
	}{
		{"it comes back", comeback(0, 10, 40_000), false, ""},
		{"it is pushed over", comeback(1, 10, 40_000), true, "fcm, which came back slowly, was pushed over 1 times"},
		{"nobody calls it when it is back", comeback(0, 0, 0), true, "not one call was accepted by fcm in the 30s after it was back"},
		{"calls before and after say nothing", comeback(0, 10, 70_000), true, "not one call was accepted"},
	} {
		r := Check(tt.l)
		if broken := r.Violations[Recoveries] > 0; broken != tt.broken || !strings.Contains(strings.Join(r.Findings[Recoveries], "\n"), tt.says) {
			t.Errorf("%s: found %q, want something with %q", tt.why, r.Findings[Recoveries], tt.says)
		}
	}
	short := comeback(0, 10, 30_000)
	short.Events[0].End = at(40_000)
	if r := Check(short); !strings.Contains(strings.Join(r.Findings[Incomplete], "\n"), "too short to tell") {
		t.Errorf("a provider that was never back is taken for one that was: %q", r.Findings)
	}
}
