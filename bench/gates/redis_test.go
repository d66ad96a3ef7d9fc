//go:build linux

package gates

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// ended is how many items end together, about: what is noted and added of a batch comes
// in groups of this size in a worker that keeps up with its providers.
const ended = 500

// BenchmarkRedis takes batches of 10,000 notifications along everything that a worker asks
// of Redis on their way, one after the other, and reports what each part costs Redis in us a
// notification, by its own account. Each notification has an id and a collapse key of its own.
func BenchmarkRedis(b *testing.B) {
	const users = 5 * batchSize
	ctx := context.Background()
	o := Options{Users: users, Passes: 1, Progress: func(string, ...any) {}}
	s, err := open(ctx, &o)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			b.Error(err)
		}
	}()
	if err := s.people.register(ctx, s.client, o.Progress); err != nil {
		b.Fatal(err)
	}
	filter, err := dedupe.New(s.client, dedupe.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	if err := filter.DeclareNew(ctx); err != nil {
		b.Fatal(err)
	}
	latest, err := collapse.New(s.client, collapse.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	parts := map[string]time.Duration{}
	account := func(part string, do func() error) {
		before, err := s.now(ctx)
		if err == nil {
			err = do()
		}
		if err != nil {
			b.Fatal(part, err)
		}
		after, err := s.now(ctx)
		if err != nil {
			b.Fatal(err)
		}
		parts[part] += after.redis - before.redis
		parts["all"] += after.redis - before.redis
	}
	l, ids, maybe, n := s.loads[0], make([]string, batchSize), make([]bool, batchSize), 0
	for b.Loop() {
		l.fill(s.people, n)
		for i := range ids {
			ids[i] = crowd.Mint(l.Items[i].FirstSeen.Time())
			l.Items[i].ID, l.Items[i].CollapseKey = ids[i], "order-"+strconv.Itoa(n*batchSize+i)
		}
		n++
		account("check", func() error { return filter.Check(ctx, ids, maybe) })
		for _, stage := range s.stages {
			account(string(stage.Name()), func() error { return stage.Apply(ctx, &l.Batch) })
		}
		items := l.Undecided(make([]*pipeline.Item, 0, batchSize))
		for _, it := range items {
			it.Deliveries[0].Result.Class = push.Delivered
		}
		for group := range slices.Chunk(items, ended) {
			account("collapse", func() error { return latest.Accepted(ctx, group) })
		}
		for group := range slices.Chunk(ids, ended) {
			account("add", func() error { return filter.Add(ctx, group) })
		}
	}
	for _, part := range []string{"check", "preferences", "limits", "collapse", "add", "all"} {
		b.ReportMetric(float64(parts[part])/float64(time.Microsecond)/float64(n*batchSize), part+"-us")
	}
}
