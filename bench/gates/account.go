//go:build linux

package gates

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/usage"
)

// spent is what some batches took.
type spent struct {
	notifications int
	took          time.Duration
	own, redis    time.Duration // processor time of this process and of Redis
	machine       time.Duration // of everything that runs here
}

func (s *spent) add(o spent) {
	s.notifications += o.notifications
	s.took += o.took
	s.own += o.own
	s.redis += o.redis
	s.machine += o.machine
}

func (s *spent) rate() float64 { return float64(s.notifications) / s.took.Seconds() }

// each is the part of one notification, in us.
func (s *spent) each(d time.Duration) float64 {
	return float64(d) / float64(time.Microsecond) / float64(s.notifications)
}

func (s *spent) redisEach() float64 { return s.each(s.redis) }

// others is how many processors something else kept busy.
func (s *spent) others() float64 { return usage.Others(s.took, s.machine, s.own, s.redis) }

// ownWithout is what this process took for one notification, without the making
// of it.
func (s *spent) ownWithout(making *spent) float64 { return s.each(s.own) - making.each(making.own) }

// watch does n batches, tells each when the first began, and says what all took.
func (s *session) watch(ctx context.Context, n int, do func(ctx context.Context, l *load, k int, start time.Time) error) (spent, error) {
	before, err := s.now(ctx)
	if err != nil {
		return spent{}, err
	}
	start := time.Now()
	err = s.inFlight(ctx, n, func(ctx context.Context, l *load, k int) error { return do(ctx, l, k, start) })
	if err != nil {
		return spent{}, err
	}
	took := time.Since(start)
	after, err := s.now(ctx)
	if err != nil {
		return spent{}, err
	}
	return spent{notifications: n * batchSize, took: took,
		own: after.own - before.own, redis: after.redis - before.redis, machine: after.machine - before.machine}, nil
}

// now is the processor time that was used so far.
func (s *session) now(ctx context.Context) (spent, error) {
	info, err := s.client.Info(ctx, "cpu").Result()
	if err != nil {
		return spent{}, fmt.Errorf("asking Redis for its processor time: %w", err)
	}
	redis, err := processorTime(info)
	if err != nil {
		return spent{}, err
	}
	machine, err := usage.Machine()
	if err != nil {
		return spent{}, err
	}
	own, err := usage.OwnCPU()
	if err != nil {
		return spent{}, err
	}
	return spent{own: own, redis: redis, machine: machine}, nil
}

// processorTime is the user and system time of all threads of a Redis, by its
// INFO cpu.
func processorTime(info string) (all time.Duration, err error) {
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(field(info, name), 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of Redis: %s: %w", name, err)
		}
		all += time.Duration(seconds * float64(time.Second))
	}
	return all, nil
}

// version is that of Redis.
func (s *session) version(ctx context.Context) (string, error) {
	info, err := s.client.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("asking Redis for its version: %w", err)
	}
	return field(info, "redis_version"), nil
}

// field is a value of an INFO; empty if it is not there.
func field(info, name string) string {
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			return value
		}
	}
	return ""
}
