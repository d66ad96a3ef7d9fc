package worker

import (
	"bytes"
	"context"
	"os"
	"runtime/pprof"
	"time"

	"github.com/pushfleet/pushfleet/watch"
)

// watchRound is how often the watchdog looks.
const watchRound = time.Second

// watchProgress watches one lane until ctx ends. If a partition stands still without
// a reason, only a new process helps: the goroutines are written to the end of the
// log, and this process ends with status 1. What was not committed is read again
// and confirmed.
func (g *group) watchProgress(ctx context.Context, l *lane, m *watch.Metrics) {
	watchdog := watch.New(watch.DefaultOptions())
	m.Lane(l.name)
	ticker := time.NewTicker(watchRound)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		stalls, ended := l.pipeline.Declared()
		f := watchdog.Look(now, watch.Sight{Standstills: l.source.Standstill(now), Stalls: stalls, Ended: ended, Lines: l.pipeline.Progress()})
		m.Saw(l.name, now, stalls, f)
		for _, a := range f.Alerts {
			g.Log.Error("partition has been waiting too long", "lane", l.name, "reason", a.Name, "detail", a.Detail,
				"topic", a.Partition.Topic, "partition", a.Partition.ID, "for", a.For.Round(time.Second))
		}
		if f.Dead != nil {
			g.die(l, f)
		}
	}
}

// die ends the process: the stuck part of it could not be waited for.
func (g *group) die(l *lane, f watch.Finding) {
	var goroutines bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&goroutines, 1) // a buffer takes everything
	g.Log.Error("a partition stands still without a reason: this process ends, so that another takes over",
		"lane", l.name, "topic", f.Dead.Partition.Topic, "partition", f.Dead.Partition.ID,
		"lag", f.Dead.Lag, "for", f.Quiet.Round(time.Second))
	_, _ = goroutines.WriteTo(os.Stderr)
	g.Exit(1)
}
