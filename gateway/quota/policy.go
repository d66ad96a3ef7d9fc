package quota

import (
	"fmt"
	"time"
)

// Limits are how many messages a sender may send in each second, minute, hour and day of
// UTC. 0 = no limit.
type Limits struct{ Second, Minute, Hour, Day int }

// MaxLimit is the highest limit.
const MaxLimit = 1_000_000_000

// Policy is one limit. Its name is that of the window: second, minute, hour or day.
type Policy struct {
	Name   string
	Limit  int // 1 to MaxLimit
	Window time.Duration
}

// maxPolicies is how many a sender has at the most.
const maxPolicies = 4

// Policies are the limits that there are, the shortest window first.
func (l Limits) Policies() []Policy {
	var ps []Policy
	for _, p := range []Policy{{"second", l.Second, time.Second}, {"minute", l.Minute, time.Minute}, {"hour", l.Hour, time.Hour}, {"day", l.Day, 24 * time.Hour}} {
		if p.Limit != 0 {
			ps = append(ps, p)
		}
	}
	return ps
}

// check says what is wrong with the limits.
func (l Limits) check() error {
	ps := l.Policies()
	for i, p := range ps {
		if p.Limit < 0 || p.Limit > MaxLimit {
			return fmt.Errorf("%d per %s, want 0 to %d", p.Limit, p.Name, MaxLimit)
		}
		if i > 0 && p.Limit < ps[i-1].Limit {
			return fmt.Errorf("%d per %s, and %d per %s, which can never be used up", p.Limit, p.Name, ps[i-1].Limit, ps[i-1].Name)
		}
	}
	return nil
}

// Standing is how far a sender has come in the window of a policy, as this gateway knows it:
// what others have used since they last told is not in it.
type Standing struct {
	Policy
	Used      int           // at most Limit
	Remaining int           // not negative; Used + Remaining = Limit
	Reset     time.Duration // until the window ends
	// Part says that Redis is away: the gateway has a part of the limit, and Remaining is
	// what is left of that, so that Used + Remaining is less than Limit.
	Part bool
}

// Nearest is the standing that will stop a sender first: with the least remaining, and of
// these the one that lasts longest. There must be one.
func Nearest(of []Standing) *Standing {
	n := &of[0]
	for i := range of {
		if s := &of[i]; s.Remaining < n.Remaining || s.Remaining == n.Remaining && s.Reset > n.Reset {
			n = s
		}
	}
	return n
}
