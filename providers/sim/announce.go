package sim

import (
	"fmt"
	"strconv"
	"time"
)

// QuotaHeaders are the headers with which a provider says what is left of its quota, in
// answers that are accepted too.
type QuotaHeaders string

// The ways of saying it.
const (
	NoQuotaHeaders    QuotaHeaders = ""
	RateLimitHeaders  QuotaHeaders = "ratelimit"   // RateLimit and RateLimit-Policy, as the IETF's draft has them now
	OlderQuotaHeaders QuotaHeaders = "older"       // RateLimit-Limit, -Remaining and -Reset, as it had them before
	XRateLimitHeaders QuotaHeaders = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset, which is the time of the window's end
)

func (h QuotaHeaders) validate() error {
	switch h {
	case NoQuotaHeaders, RateLimitHeaders, OlderQuotaHeaders, XRateLimitHeaders:
		return nil
	}
	return fmt.Errorf("rule quota headers: %q is not one of ratelimit, older and x-ratelimit", string(h))
}

// announce says what is left of a project's quota, if that is the rule. Google says nothing of
// the kind today.
func (g *google) announce(project string, now time.Time, ans *Answer) {
	rules := g.fate.rules.Load()
	if rules.QuotaHeaders == NoQuotaHeaders || rules.ProjectQuota.Count == 0 {
		return
	}
	quota := rules.ProjectQuota
	ends := windowEnd(quota.Per, now, g.fate.offset)
	left := strconv.Itoa(max(quota.Count-g.fate.rates.counted(projectKey(project), now), 0))
	limit, wait := strconv.Itoa(quota.Count), strconv.FormatInt(seconds(ends.Sub(now)), 10)
	switch rules.QuotaHeaders {
	case RateLimitHeaders:
		ans.field("ratelimit-policy", `"project";q=`+limit+`;w=`+strconv.FormatInt(seconds(quota.Per), 10))
		ans.field("ratelimit", `"project";r=`+left+`;t=`+wait)
	case OlderQuotaHeaders:
		ans.field("ratelimit-limit", limit)
		ans.field("ratelimit-remaining", left)
		ans.field("ratelimit-reset", wait)
	case XRateLimitHeaders:
		ans.field("x-ratelimit-limit", limit)
		ans.field("x-ratelimit-remaining", left)
		ans.field("x-ratelimit-reset", strconv.FormatInt(ends.Add(time.Second-1).Unix(), 10))
	}
}

// seconds is a time in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// counted is how many a window has counted that is not over.
func (r *rates) counted(key uint64, now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.windows[key]; now.Before(w.ends) {
		return w.count
	}
	return 0
}
