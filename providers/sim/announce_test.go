package sim

import (
	"strconv"
	"testing"
	"time"
)

// What is left of the quota is said with every answer, and is of all connections together.
func TestAQuotaIsAnnounced(t *testing.T) {
	const count = 5
	for _, tt := range []struct {
		headers  QuotaHeaders
		expected func(s *stand, left int) map[string]string
	}{
		{NoQuotaHeaders, func(*stand, int) map[string]string { return nil }},
		{RateLimitHeaders, func(_ *stand, left int) map[string]string {
			return map[string]string{"ratelimit": `"project";r=` + strconv.Itoa(left) + `;t=30`, "ratelimit-policy": `"project";q=5;w=60`}
		}},
		{OlderQuotaHeaders, func(_ *stand, left int) map[string]string {
			return map[string]string{"ratelimit-limit": "5", "ratelimit-remaining": strconv.Itoa(left), "ratelimit-reset": "30"}
		}},
		{XRateLimitHeaders, func(s *stand, left int) map[string]string {
			return map[string]string{"x-ratelimit-limit": "5", "x-ratelimit-remaining": strconv.Itoa(left), "x-ratelimit-reset": strconv.FormatInt(s.clock.Add(31*time.Second-1).Unix(), 10)}
		}},
	} {
		t.Run(string(tt.headers), func(t *testing.T) {
			s := newStand(t, func(o *Options) {
				o.Rules.ProjectQuota, o.Rules.QuotaHeaders = Limit{count, time.Minute}, tt.headers
			})
			s.clock = windowEnd(time.Minute, s.clock, s.policy.offset).Add(30 * time.Second)
			s.bearer = "Bearer " + s.accessToken(s.shop)
			for i := range count + 2 {
				ans := s.do(s.send())
				want := tt.expected(s, max(count-1-i, 0))
				for _, name := range []string{"ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"} {
					if got := ans.value(name); got != want[name] {
						t.Errorf("answer %d, %d: %s is %q, want %q", i+1, ans.Status, name, got, want[name])
					}
				}
				if over := ans.Status == 429; over != (i >= count) {
					t.Errorf("answer %d of a quota of %d: %d", i+1, count, ans.Status)
				}
			}
		})
	}
	if err := (&Rules{QuotaHeaders: "x"}).Validate(); err == nil {
		t.Error("headers that nobody knows are taken")
	}
}
