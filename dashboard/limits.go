package dashboard

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// Limits is what limits have stopped or put off. It is counted in devices, and in
// notifications that ended before their devices, as all that push.events counts; how many
// users that were is estimated.
type Limits struct {
	// Share is the part of what was counted in the last 10 minutes, 0 to 1.
	Share float64 `json:"share"`
	// Line is the share above which the alert PushManyLimited fires. That one counts what
	// limits were asked about, of workers alone, so it may differ a little.
	Line float64 `json:"line"`
	// Minutes are the shares of the last hour by minute, the oldest first. The present
	// minute is the last.
	Minutes []float64 `json:"minutes"`
	Rules   []Rule    `json:"rules"` // of the last hour, the most frequent first
	// Senders are those under limits of senders, of all lanes and apps, the fullest first.
	Senders []Sender `json:"senders"`
}

// Rule is what one rule did.
type Rule struct {
	Rule    string `json:"rule"`
	Reason  string `json:"reason"` // as outcomes have it: of what was stopped, if anything was
	Stopped int64  `json:"stopped"`
	PutOff  int64  `json:"put_off"` // to be asked about again
	// Users5m and Users1h are about how many users it limited in the last 5 minutes and in
	// the hour; 0 = none, nobody tells, or the filter has words of which they know nothing.
	Users5m int64 `json:"users_5m,omitempty"`
	Users1h int64 `json:"users_1h,omitempty"`
}

const (
	// limitLine is that of deploy/alerts/rules.yaml, PushManyLimited.
	limitLine = 0.05
	// limitSpan is the minutes that the alert looks at.
	limitSpan = 10
)

// limitedBy is the rule that a reason names, of what was stopped or put off; other where
// an earlier worker told that something was put off and not by which.
func limitedBy(reason string) (rule string, is bool) {
	code, rule, named := strings.Cut(reason, ":")
	switch push.Reason(code) {
	case push.Limited:
		return rule, named
	case push.LimitWaits:
		if !named {
			rule = other
		}
		return rule, true
	}
	return "", false
}

// showLimits adds up the last hour. A copy and another attempt are nothing that limits are
// asked about.
func (f *Feed) showLimits(s *Snapshot, limit int) {
	s.Limits = Limits{Line: limitLine, Minutes: make([]float64, hour)}
	var all, over [hour]int64
	rules := map[string]*Rule{}
	for k, c := range f.totals.cells {
		if !s.Filter.admits(k) || k.State == push.StateRetrying.String() || k.State == duplicate {
			continue
		}
		name, is := limitedBy(k.Reason)
		for i := range all {
			n := c.minutes[(f.totals.minute-hour+1+int64(i)+hour)%hour]
			all[i] += n
			if is {
				over[i] += n
			}
		}
		if !is {
			continue
		}
		r := rules[name]
		if r == nil {
			r = &Rule{Rule: name, Reason: k.Reason}
			rules[name] = r
		}
		if k.State == push.StateHeld.String() {
			r.PutOff += c.sum
		} else {
			r.Stopped += c.sum
			r.Reason = k.Reason
		}
	}
	var of, n int64
	for i := range all {
		if all[i] > 0 {
			s.Limits.Minutes[i] = round(float64(over[i]) / float64(all[i]))
		}
		if i >= hour-limitSpan {
			of, n = of+all[i], n+over[i]
		}
	}
	if of > 0 {
		s.Limits.Share = float64(n) / float64(of)
	}
	list := make([]Rule, 0, len(rules))
	for _, r := range rules {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(x, y Rule) int {
		return cmp.Or(cmp.Compare(y.Stopped+y.PutOff, x.Stopped+x.PutOff), strings.Compare(x.Rule, y.Rule))
	})
	s.Limits.Rules = bound(s, "rules", list, limit/5)
	if s.Filter == (Kind{Reason: s.Filter.Reason}) {
		for i := range s.Limits.Rules {
			r := &s.Limits.Rules[i]
			r.Users5m, r.Users1h = f.limiters.users(r.Rule)
		}
	}
	f.showSenders(s, limit)
}
