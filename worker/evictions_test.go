package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A policy that may evict is said once and makes unready for as long as it holds; keys
// that were evicted are said each time that there are more. Redis that is away changes
// nothing.
func TestEvictionsAreSaid(t *testing.T) {
	evicts := errors.New("maxmemory-policy is allkeys-lru")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHealth()
		steps := []struct {
			why        string
			evicted    int64
			unfit, err error
			ready      bool
			says       string // empty = nothing
		}{
			{"all is well", 0, nil, nil, true, ""},
			{"it is away", 0, nil, errors.New("refused"), true, ""},
			{"another policy", 0, evicts, nil, false, "allkeys-lru"},
			{"still", 0, evicts, nil, false, ""},
			{"away meanwhile", 0, nil, errors.New("refused"), false, ""},
			{"and evicts", 7, evicts, nil, false, "keys=7"},
			{"no more", 7, nil, nil, true, ""},
			{"more than before", 9, nil, nil, true, "keys=9"},
			{"started again", 0, nil, nil, true, ""},
			{"and evicts again, less than before", 5, nil, nil, true, "keys=5"},
			{"the policy is back", 0, evicts, nil, false, "allkeys-lru"},
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
			if got := log.String(); !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") {
				t.Errorf("%s: says %q, want %q", tt.why, got, tt.says)
			}
			log.Reset()
		}
		watchEvictions(ctx, h, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) (int64, error, error) {
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
