package invariants

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// quota is a run of a minute with a quota of 10 a second, of which the first half is
// for looking. Of the settled half, accepted and refused are how many calls there were,
// the first of them even.
func quota(accepted, refused int) *Ledgers {
	l := clean()
	l.Events = []Event{{Kind: "quota", Target: "fcm", Start: at(10_000), End: at(70_000),
		Quota: &Quota{Provider: "fcm", Count: 20, Per: 2 * time.Second, Settle: 30 * time.Second}}}
	call := func(i int, ms int, reply string) {
		l.Sends.Entries = append(l.Sends.Entries, Send{Pair: Pair{fmt.Sprint("q", i, ms), "1"}, At: at(ms), Provider: "fcm", Reply: reply, Accepted: reply == ""})
	}
	for i := range accepted {
		call(i, 40_000+30_000*i/accepted, "")
	}
	for i := range refused {
		call(i, 69_999, overQuota)
	}
	for i := range 100 { // while it looks, when it is over, and what is no refusal for the quota
		call(i, 39_999, overQuota)
		call(i, 70_000, overQuota)
		call(i, 50_000, "UNAVAILABLE")
	}
	return l
}

// burst adds so many accepted calls of one moment.
func burst(l *Ledgers, n int) *Ledgers {
	for i := range n {
		l.Sends.Entries = append(l.Sends.Entries, Send{Pair: Pair{fmt.Sprint("b", i), "1"}, At: at(50_001), Provider: "fcm", Accepted: true})
	}
	return l
}

func TestQuotas(t *testing.T) {
	for _, tt := range []struct {
		why    string
		l      *Ledgers
		broken bool
		says   string
	}{
		{"used and kept", quota(300, 23), false, ""},
		{"one refusal more", quota(300, 24), true, "24 of 324 calls of fcm were refused from 30s after its quota began to be 20 in 2s"},
		{"four fifths of it are used", quota(240, 0), false, ""},
		{"less is", quota(239, 0), true, "239 calls were accepted by fcm, whose quota had room for 300"},
		{"all of it at once, and then nothing", burst(quota(280, 0), 10), true, "12 calls were accepted by fcm within 200ms, of a quota of 20 in 2s"},
		{"nothing is", quota(0, 0), true, "0 calls were accepted"},
	} {
		r := Check(tt.l)
		if broken := r.Violations[Quotas] > 0; broken != tt.broken || !strings.Contains(strings.Join(r.Findings[Quotas], "\n"), tt.says) {
			t.Errorf("%s: found %q, want something with %q", tt.why, r.Findings[Quotas], tt.says)
		}
	}
	short := quota(300, 0)
	short.Events[0].End = at(40_000)
	if r := Check(short); !strings.Contains(strings.Join(r.Findings[Incomplete], "\n"), "too short to tell") {
		t.Errorf("a quota that nobody could find in time is taken for kept: %q", r.Findings)
	}
	other := quota(300, 0)
	other.Events[0].Quota.Provider = "apns"
	if r := Check(other); r.Violations[Quotas] == 0 {
		t.Error("another provider's calls count")
	}
}
