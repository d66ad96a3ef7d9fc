package quota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// partly is a cluster of which the node with some keys is away.
type partly struct{ keys string }

func (p partly) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p partly) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p partly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var there []redis.Cmder
		for _, c := range cmds {
			if strings.Contains(fmt.Sprint(c.Args()...), p.keys) {
				c.SetErr(errors.New("CLUSTERDOWN The cluster is down"))
			} else {
				there = append(there, c)
			}
		}
		if len(there) == 0 {
			return cmds[0].Err()
		}
		return next(ctx, there)
	}
}

// Redis is away for one sender and there for another: that is said once, and not twice a second.
func TestPartOfRedisIsAway(t *testing.T) {
	var away, back atomic.Int64
	o := Options{Default: Limits{Minute: 100_000}, Tell: func(err error) {
		if err != nil {
			away.Add(1)
		} else {
			back.Add(1)
		}
	}}
	inFleet(t, o, func(f *fleet) {
		g := f.join()
		defer g.close()
		time.Sleep(time.Second)
		g.store.client.AddHook(partly{":far}"})
		for range 1000 {
			g.Of("near").Take(context.Background(), 1)
			g.Of("far").Take(context.Background(), 1)
			time.Sleep(10 * time.Millisecond)
		}
		if a, b := away.Load(), back.Load(); a != 1 || b != 0 {
			t.Errorf("in ten seconds it was away %d times and back %d times", a, b)
		}
	})
}

// That Redis is away is told once, and once that it is back.
func TestAwayAndBackAreTold(t *testing.T) {
	var told []bool // by the one goroutine that leases, and read when it has ended
	inFleet(t, Options{Default: Limits{Minute: 100_000}, Tell: func(err error) { told = append(told, err != nil) }}, func(f *fleet) {
		g := f.join()
		g.fill(time.Second)
		f.redis.Close()
		g.fill(5 * time.Second)
		if err := f.redis.Restart(); err != nil {
			f.t.Fatal(err)
		}
		g.fill(5 * time.Second)
		g.close()
		if len(told) != 2 || !told[0] || told[1] {
			t.Errorf("told %v", told)
		}
	})
}
