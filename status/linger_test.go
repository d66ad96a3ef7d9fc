package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// clocked is a server that notes when each batch came, in ms since it was made.
type clocked struct {
	server
	came []string
}

func newClocked() *clocked {
	c, start := &clocked{}, time.Now()
	c.answer = func(_ context.Context, _ int, bucket int64) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.came = append(c.came, fmt.Sprintf("%c@%d", rune(bucket), time.Since(start).Milliseconds()))
		return nil
	}
	return c
}

// seen is what has come so far, sorted: batches of one moment come in any order.
func (c *clocked) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.came))
}

// A push waits for its intent, and nothing for the rows of answers.
func TestIntentsDoNotLinger(t *testing.T) {
	type row struct {
		at     time.Duration
		id     string
		intent bool // written promptly
	}
	for _, tt := range []struct {
		why    string
		linger time.Duration
		rows   []row
		want   string
	}{
		{"an answer", 50, []row{{0, "a1", false}}, "[a@50]"},
		{"an intent", 50, []row{{0, "a1", true}}, "[a@10]"},
		{"an intent among answers", 50, []row{{0, "a1", false}, {5, "a2", true}}, "[a@15]"},
		{"an answer that comes after an intent, and takes nothing from it", 50, []row{{0, "a1", true}, {5, "a2", false}}, "[a@10]"},
		{"the first of two intents", 50, []row{{0, "a1", true}, {5, "a2", true}}, "[a@10]"},
		{"an intent that comes when the batch is almost due", 50, []row{{0, "a1", false}, {45, "a2", true}}, "[a@50]"},
		{"an intent where all linger for less", 4, []row{{0, "a1", true}}, "[a@4]"},
		{"an intent after one that has gone", 50, []row{{0, "a1", true}, {100, "a2", true}}, "[a@10 a@110]"},
		{"another bucket's is not hastened", 50, []row{{0, "b1", false}, {0, "a1", true}}, "[a@10 b@50]"},
		{"nor the next batch of the same bucket", 50, []row{{0, "a1", true}, {20, "a2", false}}, "[a@10 a@70]"},
		{"an intent before the clock's next look", 50, []row{{0, "b1", false}, {20, "a1", true}}, "[a@30 b@50]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newClocked()
			g := testMerger(t, s, func(o *mergeOptions) { o.linger = tt.linger * time.Millisecond })
			var wg sync.WaitGroup
			for _, r := range tt.rows {
				wg.Go(func() {
					time.Sleep(r.at * time.Millisecond)
					if err := g.add(t.Context(), rowsOf(r.id), r.intent); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := fmt.Sprint(s.seen()); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
			}
		})
	}
}

// The store's two ways to write differ in that alone.
func TestWritePromptly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newClocked()
		c := &Cassandra{merger: testMerger(t, s, func(o *mergeOptions) { o.linger = 50 * time.Millisecond })}
		var wg sync.WaitGroup
		for id, write := range map[string]func(context.Context, []push.Row) error{"a1": c.Write, "b1": c.WritePromptly} {
			wg.Go(func() {
				if err := write(t.Context(), rowsOf(id)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := fmt.Sprint(s.seen()); got != "[a@50 b@10]" {
			t.Errorf("came %s", got)
		}
	})
}

// Where too many rows linger, those that are due next go, and no others.
func TestNotTooManyRowsLinger(t *testing.T) {
	for _, tt := range []struct {
		why    string
		writes [][]string // one a millisecond
		want   string
	}{
		{"as many as may", [][]string{{"a1"}, {"b1", "b2"}, {"c1"}}, "[a@50 b@51 c@52]"},
		{"one more", [][]string{{"a1"}, {"b1", "b2"}, {"c1", "c2"}}, "[a@2 b@51 c@52]"},
		{"the first alone is not enough", [][]string{{"a1"}, {"b1", "b2"}, {"c1", "c2", "c3"}}, "[a@2 b@2 c@52]"},
		{"one write of more than may linger", [][]string{{"a1", "b1", "c1", "d1", "e1"}}, "[a@0 b@50 c@50 d@50 e@50]"},
		{"what is gone makes room", [][]string{{"a1", "a2", "a3", "a4", "a5"}, {"b1", "b2", "b3", "b4"}}, "[a@0 b@51]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newClocked()
			g := testMerger(t, s, func(o *mergeOptions) { o.linger, o.lingering = 50*time.Millisecond, 4 })
			var wg sync.WaitGroup
			for i, ids := range tt.writes {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if err := g.write(t.Context(), rowsOf(ids...)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := fmt.Sprint(s.seen()); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
			}
		})
	}
}

// A batch that waits for its back-off does not linger: it neither counts nor goes
// sooner because others do.
func TestBackOffIsNoLinger(t *testing.T) {
	for _, tt := range []struct {
		backOff time.Duration // or down to half of it
		then    string        // after a few more rows, 20 ms later
	}{
		{time.Second, "[a@0 c@20]"},
		{60 * time.Millisecond, "[a@0 c@20]"}, // though it is due before those that linger
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newClocked()
			note := s.answer
			s.answer = func(ctx context.Context, n int, bucket int64) error {
				_ = note(ctx, n, bucket)
				if n == 1 {
					return errors.New("not now")
				}
				return nil
			}
			g := testMerger(t, s, func(o *mergeOptions) {
				o.linger, o.lingering = 50*time.Millisecond, 4
				o.backoff = push.Backoff{First: tt.backOff, Longest: tt.backOff}
			})
			var wg sync.WaitGroup
			write := func(ids ...string) {
				wg.Go(func() {
					if err := g.write(t.Context(), rowsOf(ids...)); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			write("a1", "a2", "a3", "a4", "a5") // full, and refused at once
			time.Sleep(20 * time.Millisecond)
			write("c1", "c2", "c3", "c4")
			if got := fmt.Sprint(s.seen()); got != "[a@0]" {
				t.Errorf("back-off of %v: came %s, want nothing but a", tt.backOff, got)
			}
			write("d1")
			if got := fmt.Sprint(s.seen()); got != tt.then {
				t.Errorf("back-off of %v: came %s, want %s", tt.backOff, got, tt.then)
			}
			wg.Wait()
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			if came := s.seen(); len(came) != 4 || !slices.Contains(came, "d@70") || g.lingering != 0 {
				t.Errorf("back-off of %v: came %v, %d rows linger at the end", tt.backOff, came, g.lingering)
			}
		})
	}
}
