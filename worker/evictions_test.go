package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A policy that may evict is said once and makes unready for as long as it holds; keys
// that were evicted are said each time that a master has more, or has evicted any since it
// was started again. Redis that is away changes nothing.
func TestEvictionsAreSaid(t *testing.T) {
	evicts := errors.New("maxmemory-policy is allkeys-lru")
	of := func(a, b int64) map[string]int64 { return map[string]int64{"a": a, "b": b} }
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHealth()
		steps := []struct {
			why        string
			evicted    map[string]int64
			unfit, err error
			ready      bool
			says       []string // a line each
		}{
			{"all is well", of(0, 0), nil, nil, true, nil},
			{"it is away", nil, nil, errors.New("refused"), true, nil},
			{"another policy", of(0, 0), evicts, nil, false, []string{"allkeys-lru"}},
			{"still", of(0, 0), evicts, nil, false, nil},
			{"away meanwhile", nil, nil, errors.New("refused"), false, nil},
			{"and evicts", of(7, 0), evicts, nil, false, []string{"server=a keys=7"}},
			{"no more", of(7, 0), nil, nil, true, nil},
			{"more than before", of(9, 0), nil, nil, true, []string{"server=a keys=9"}},
			{"started again", of(0, 0), nil, nil, true, nil},
			{"and evicts again, less than before", of(5, 0), nil, nil, true, []string{"server=a keys=5"}},
			{"started again between two looks", of(3, 0), nil, nil, true, []string{"server=a keys=3"}},
			{"another one evicts as many as that one had when it was started again", of(0, 3), nil, nil, true, []string{"server=b keys=3"}},
			{"both", of(1, 4), nil, nil, true, []string{"server=a keys=1", "server=b keys=4"}},
			{"one is not asked", map[string]int64{"b": 4}, nil, nil, true, nil},
			{"it is asked again", of(1, 4), nil, nil, true, nil},
			{"the policy is back", of(1, 4), evicts, nil, false, []string{"allkeys-lru"}},
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(len(steps))*evictionsRound-time.Second)
		defer stop()
		at := -1
		check := func() {
			if at < 0 {
				return
			}
			tt := &steps[at]
			if ready, _ := h.report(); ready != tt.ready {
				t.Errorf("%s: ready is %t", tt.why, ready)
			}
			lines := slices.Collect(strings.Lines(log.String()))
			if !slices.EqualFunc(lines, tt.says, strings.Contains) {
				t.Errorf("%s: says %q, want %q", tt.why, lines, tt.says)
			}
			log.Reset()
		}
		watchEvictions(ctx, h, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) (map[string]int64, error, error) {
			check()
			at++
			return steps[at].evicted, steps[at].unfit, steps[at].err
		})
		check()
		if at != len(steps)-1 {
			t.Errorf("asked %d times, want %d", at+1, len(steps))
		}
	})
}
