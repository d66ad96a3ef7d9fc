//go:build linux

package stress

import "github.com/pushfleet/pushfleet/bench/send"

// What has to be reached.
const (
	mostRateCPU       = 0.1  // us a send
	mostLimitCPU      = 0.1  // us a send, likewise
	mostCommands      = 1    // for a worker, a rate and 100 ms
	mostSlowdown      = 1500 // ms, p99
	mostPasswordRatio = 2    // to the p99 of one-time passwords with nothing beside them
)

// bars says which of them were reached.
func bars(r *Result) []send.Bar {
	most := func(name string, want, got float64) send.Bar {
		return send.Bar{Name: name, Want: want, Got: got, Met: got <= want}
	}
	list := []send.Bar{
		most("rate_cpu_us", mostRateCPU, r.RateCPU),
		most("limit_cpu_us", mostLimitCPU, r.LimitCPU),
		most("redis_commands_per_100_ms", mostCommands, r.Commands),
		most("slowdown_p99_ms", mostSlowdown, r.SlowdownP99),
	}
	if r.PasswordRatio != nil {
		list = append(list, most("password_ratio_p99", mostPasswordRatio, *r.PasswordRatio))
	}
	return list
}
