package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// doubting believes nothing about tokens from an answer on.
type doubting struct {
	mu            sync.Mutex
	from          int
	answers, dead int
	believed      int
}

func (d *doubting) Believe(app string, answers int, dead []*push.Message, _ time.Time) (bool, *push.Culprit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers, d.dead = d.answers+answers, d.dead+len(dead)
	if app != "shop" || d.answers > d.from {
		return false, nil
	}
	d.believed += len(dead)
	return true, nil
}

// classifying counts what was answered about deliveries, and passes it on.
type classifying struct {
	pipeline.Provider
	mu      sync.Mutex
	classes map[push.Class]int
}

func (c *classifying) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	return c.Provider.Submit(ctx, ds, func(ds []*pipeline.Delivery) {
		c.mu.Lock()
		for _, d := range ds {
			c.classes[d.Result.Class]++
		}
		c.mu.Unlock()
		done(ds)
	})
}

// A token that is called dead and not believed to be is not reported, and its message
// has failed all the same. All that says something about tokens is counted: once.
func TestTokensThatAreNotBelievedDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 2, 1000)
		pr := &provider{w: w}
		answers := &classifying{Provider: pr, classes: map[push.Class]int{}}
		tokens := &doubting{from: 900}
		p := w.pipelineTo(t, 300, answers, answers)
		reg := prometheus.NewRegistry()
		p.Options().Tokens, p.Options().Metrics = tokens, pipeline.NewMetrics(reg)
		stop := w.starts(t, p)
		w.wait(t)
		stop()
		pr.out.Wait()

		failed, reported := 0, 0
		for _, rows := range w.rows {
			for _, r := range rows {
				if r.State == push.StateFailed && r.Reason == "Unregistered" {
					failed++
				}
			}
		}
		for _, n := range w.feedback {
			reported += n
		}
		gone := answers.classes[push.Gone]
		if failed != gone || tokens.dead != gone {
			t.Errorf("%d dead tokens: %d rows say so, %d were judged", gone, failed, tokens.dead)
		}
		if want := gone + answers.classes[push.Delivered] + answers.classes[push.Refused]; tokens.answers != want {
			t.Errorf("%d answers were counted, want %d", tokens.answers, want)
		}
		if reported != tokens.believed || reported == 0 || reported == gone {
			t.Errorf("%d of %d dead tokens were reported, want the %d that were believed", reported, gone, tokens.believed)
		}
		kept := fmt.Sprintf("# HELP push_tokens_kept_total %s\n# TYPE push_tokens_kept_total counter\npush_tokens_kept_total{app=\"shop\"} %d\n",
			"Tokens that a provider called dead and that are kept, because it says so of too many of the app's.", gone-reported)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(kept), "push_tokens_kept_total"); err != nil {
			t.Error(err)
		}
	})
}
