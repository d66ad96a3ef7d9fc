//go:build linux

package gates

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/limits"
)

// The caps. A user of the usual traffic reaches none of them.
const (
	userMax    = 15 // an hour
	typeMax    = 5  // a day, of each type
	newMax     = 10 // a day, who is new
	activeMax  = 40 // a day, who is active
	userWindow = time.Hour
	dayWindow  = 24 * time.Hour
)

// rules are three that hold for everybody. All are sliding logs: what the
// published way can do, and what costs most to count.
func rules() []limits.Rule {
	return []limits.Rule{
		{Name: "user", Per: limits.PerUser, Max: userMax, Window: userWindow},
		{Name: "type", Per: limits.PerUserType, Max: typeMax, Window: dayWindow},
		{Name: "segment", Per: limits.PerSegment, Max: activeMax, Window: dayWindow,
			Segments:   []string{groupName + "/" + newSegment, groupName + "/" + activeSegment},
			SegmentMax: map[string]int{groupName + "/" + newSegment: newMax}},
	}
}

// cap is what the rules leave a hot user who is offered more.
func (k kindOfHot) cap() int { return [...]int{typeMax, newMax, userMax}[k] }

// slidingLog is the published script: one rule of one user. KEYS[1] is a sorted
// set of ids by time; ARGV is now and the window in ms, the limit and the id.
const slidingLog = `redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, ARGV[1] - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`

// askEach decides a batch the published way: a call for each user and rule, in
// one pipeline for each rule.
func (s *session) askEach(ctx context.Context, l *load) error {
	now := time.Now().UnixMilli()
	for _, rule := range []struct {
		window time.Duration
		most   func(user int) int
		key    func(owner, kind string) string
	}{
		{userWindow, func(int) int { return userMax }, func(owner, _ string) string { return "rate:user:" + owner }},
		{dayWindow, func(int) int { return typeMax }, func(owner, kind string) string { return "rate:type:" + owner + ":" + kind }},
		{dayWindow, s.segmentMax, func(owner, _ string) string { return "rate:segment:" + owner }},
	} {
		pipe := s.client.Pipeline()
		window := rule.window.Milliseconds()
		for i := range l.Items {
			it := &l.Items[i]
			pipe.EvalSha(ctx, s.published, []string{rule.key(it.UserID, it.Type)}, now, window, rule.most(int(l.users[i])), it.ID)
		}
		answers, err := pipe.Exec(ctx)
		if err != nil {
			return fmt.Errorf("asking for each user: %w", err)
		}
		for _, a := range answers {
			if allowed, err := a.(interface{ Int() (int, error) }).Int(); err != nil || allowed != 1 {
				return fmt.Errorf("this is no measurement: a script answered %s (%w)", strconv.Itoa(allowed), err)
			}
		}
	}
	return nil
}

func (s *session) segmentMax(user int) int {
	if name, _ := s.people.segments.Of(uint32(user)); name == newSegment {
		return newMax
	}
	return activeMax
}
