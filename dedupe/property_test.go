package dedupe

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
)

// event is one thing that happens to a filter.
type event struct {
	what string
	who  int // of two workers
	n    int
	wait time.Duration
}

// Whatever happens (wipes, outages, overflow, workers that do not know of each
// other), an id whose add was acknowledged is maybe until its window is over,
// for every worker, including one that has just started.
func TestNoFalseNegativesUntilRotated(t *testing.T) {
	const most = 50          // three workers check after every event, with up to 48,000 ids
	runs, failed := 0, false // a failure is repeated to shrink it
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > most && !failed {
			return
		}
		events := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) event {
			return event{
				what: rapid.SampledFrom([]string{"add", "add", "add", "prepare", "wipe", "away", "back", "restart"}).Draw(rt, "what"),
				who:  rapid.IntRange(0, 1).Draw(rt, "who"),
				n:    rapid.SampledFrom([]int{1, 900, 12_000, 12_000}).Draw(rt, "n"),
				wait: time.Duration(rapid.IntRange(0, 240).Draw(rt, "minutes")) * time.Minute,
			}
		}), 1, 8).Draw(rt, "events")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = play(t, events) })
		if failure != "" {
			failed = true
			rt.Fatal(failure)
		}
	})
}

func play(t *testing.T, events []event) (failure string) {
	r, err := embedded.StartPipeRedis()
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	so := shards.DefaultOptions()
	so.Addrs, so.Dialer = []string{r.Addr()}, r.Dial
	client, err := shards.Open(so)
	if err != nil {
		return err.Error()
	}
	defer settle(client)
	var workers [3]*Filter // the third one is new at every check
	for i := range workers {
		if workers[i], err = New(client, small()); err != nil {
			return err.Error()
		}
	}
	ctx := context.Background()
	if err := workers[0].DeclareNew(ctx); err != nil {
		return err.Error()
	}
	added := map[int64][]string{} // by the window that they were added in
	away, serial := false, 0
	for i, e := range events {
		f := workers[e.who]
		switch e.what {
		case "add":
			// Minted half an hour ago, like ids that waited in a retry topic.
			ids := uuids(time.Now().Add(-30*time.Minute), min(e.n, 2000), fmt.Sprint("u", serial))
			ids = append(ids, names(e.n/2, fmt.Sprint("n", serial))...)
			serial++
			n := f.number(time.Now())
			err := f.Add(ctx, ids)
			for range 5 { // connections from before an outage must fail first
				if err == nil || away {
					break
				}
				err = f.Add(ctx, ids)
			}
			if err == nil {
				added[n] = append(added[n], ids...)
			}
			if (err == nil) == away {
				return fmt.Sprintf("added while Redis was away (%v): %v", away, err)
			}
		case "prepare":
			_ = f.Prepare(ctx) // fails while Redis is down
		case "wipe":
			r.Wipe()
		case "away":
			r.Close()
			away = true
		case "back":
			if err := r.Restart(); err != nil {
				return err.Error()
			}
			away = false
			time.Sleep(2 * time.Second) // the client's pool dials again every second
		case "restart": // a worker that starts without any knowledge
			if workers[e.who], err = New(client, small()); err != nil {
				return err.Error()
			}
		}
		time.Sleep(e.wait)
		if workers[2], err = New(client, small()); err != nil {
			return err.Error()
		}
		now := f.number(time.Now())
		for n, ids := range added {
			if n < now-1 {
				delete(added, n)
				continue
			}
			for who, f := range workers {
				maybe := make([]bool, len(ids))
				if err := f.Check(ctx, ids, maybe); err != nil {
					if !away {
						return err.Error()
					}
					continue
				}
				for j := range maybe {
					if !maybe[j] {
						return fmt.Sprintf("after event %d (%s of %d): %s was added in window %d and is not maybe in %d to worker %d", i, e.what, e.who, ids[j], n, now, who)
					}
				}
			}
		}
	}
	return ""
}
