package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// senders are those of the world's records, by their place in a batch; campaigns is told
// nothing, and some have none.
var senders = [...]string{"orders", "campaigns", "", "auth"}

func isTold(sender string) bool { return sender == "orders" || sender == "auth" }

// toldSenders tells orders and auth how many final rows there are.
type toldSenders struct{}

func (toldSenders) Senders() []string { return []string{"orders", "auth"} }

func (toldSenders) Record(it *pipeline.Item, rows []push.Row) []byte {
	final := make(map[string]bool)
	for _, r := range rows {
		if r.State.Final() {
			final[fmt.Sprint(r.Device, r.State)] = true
		}
	}
	if len(final) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "%s %s %d", it.SenderID, it.ID, len(final))
}

// finals is how many final rows an id has. The caller holds mu.
func (w *world) finals(id string) (n int) {
	for _, r := range w.rows[id] {
		if r.State.Final() {
			n++
		}
	}
	return n
}

// While everything fails now and then, each sender that wants to know is told all that has
// ended of each notification, and nobody else is told anything. (That it is told before
// the commit is judged at each commit of every test.)
func TestSendersAreTold(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(7)
			w.once = once
			w.fill(2, 500) // in once mode what an owner has left is not judged
			w.retry()
			p, pr := w.pipeline(t, 300)
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = p.Run(ctx) })
			w.wait(t)
			stop()
			run.Wait()
			pr.out.Wait()
			told := 0
			for part, ids := range w.ids {
				unresolved, left := w.trackers[part].Unresolved()
				for i, id := range ids {
					final, said := w.finals(id), w.told[id]
					switch {
					case once && left && int64(i)*2 >= unresolved: // its next owner reads it again
					case isTold(w.sender[id]) != (len(said) > 0) && final > 0:
						t.Fatalf("once %v, %s, %s: told %q of %d ends", once, id, w.sender[id], said, final)
					case len(said) > 0:
						told++
						if want := fmt.Sprintf("%s %s %d", w.sender[id], id, final); !slices.Contains(said, want) {
							t.Fatalf("once %v: told %q, want %q", once, said, want)
						}
					}
				}
			}
			if told < 300 {
				t.Errorf("once %v: told of %d", once, told)
			}
		})
	}
}

// The topic of one sender that takes nothing holds the commit back, and nobody else's
// telling; once its partition leaves, it is not waited for.
func TestASenderWhoseTopicIsAwayKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 100)
		w.awayFor = "orders"
		p, pr := w.pipeline(t, 300)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(30 * time.Second)
		w.mu.Lock()
		for _, id := range w.ids[0] {
			if told := len(w.told[id]) > 0; told != (w.sender[id] == "auth") && w.finals(id) > 0 {
				t.Errorf("%s of %q told: %v", id, w.sender[id], told)
			}
		}
		if w.commits[0] > 0 {
			t.Errorf("committed up to %d", w.commits[0])
		}
		w.mu.Unlock()
		began := time.Now()
		stop()
		run.Wait()
		pr.out.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if n := w.trackers[0].Open(); n == 0 {
			t.Error("all is done")
		}
		for id, said := range w.told {
			if strings.HasPrefix(said[0], "orders") {
				t.Errorf("%s told %q", id, said)
			}
		}
	})
}
