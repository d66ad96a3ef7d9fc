package sim

import (
	"net/http"
	"testing"
	"time"
)

// Every answer has the simulated time in its Date, set off if that is wanted;
// tokens are judged by the clock itself.
func TestDate(t *testing.T) {
	for _, tt := range []struct {
		why  string
		o    func(*Options)
		want time.Duration // ahead of the clock
		none bool
	}{
		{"as the clock has it", func(*Options) {}, 0, false},
		{"two hours ahead", func(o *Options) { o.DateSkew = 2 * time.Hour }, 2 * time.Hour, false},
		{"two hours behind", func(o *Options) { o.DateSkew = -2 * time.Hour }, -2 * time.Hour, false},
		{"none", func(o *Options) { o.NoDate = true }, 0, true},
		{"raw mode has no ornaments", func(o *Options) { o.Raw = true }, 0, true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := newStand(t, tt.o)
			for _, later := range []time.Duration{0, 999 * time.Millisecond, time.Second, 36 * time.Hour} {
				s.clock = time.Unix(1_800_000_000, 0).Add(later)
				good, bad := s.push(), s.push()
				set("authorization", s.providerToken(s.shop, s.clock))(s, good)
				set("authorization", s.providerToken(s.shop, s.clock.Add(-2*time.Hour)))(s, bad)
				for _, ans := range []*Answer{s.do(good), s.do(bad), s.do(&Request{Path: "/elsewhere", Conn: NewConn()})} {
					got := ans.value("date")
					if tt.none {
						if got != "" {
							t.Errorf("%s: date %q", ans.Reply, got)
						}
						continue
					}
					if want := s.clock.Add(tt.want).UTC().Format(http.TimeFormat); got != want {
						t.Errorf("%s after %v: date %q, want %q", ans.Reply, later, got, want)
					}
				}
				if ans := s.do(bad); !tt.none && ans.Reply != APNSExpiredProviderToken {
					t.Errorf("a token of two hours ago: %s", ans.Reply)
				}
			}
		})
	}
}
