package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/dedupe"
)

// filterRound is how often the dedupe filters are maintained.
const filterRound = 30 * time.Second

// fullAt is the fill from which the log names the capacity that is needed; a
// full filter costs a confirm read for every id.
const fullAt = 0.8

// keepFilters creates each window's filters before the window begins, recreates
// those that were lost, and reports how full they are, until ctx ends.
func keepFilters(ctx context.Context, log *slog.Logger, reg prometheus.Registerer, f *dedupe.Filter) {
	ratio := prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_dedupe_fill_ratio", Help: "Fill of the fullest dedupe filter of this window, 0 to 1; alert at 0.8."})
	needed := prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_dedupe_capacity_needed", Help: "dedupe.capacity that the rate of this window needs; 0 = not known yet."})
	maybe := prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_dedupe_maybe_shards", Help: "Filters, of 64, that answer maybe to every id because they were full."})
	reg.MustRegister(ratio, needed, maybe)
	ticker := time.NewTicker(filterRound)
	defer ticker.Stop()
	for {
		err := f.Prepare(ctx)
		if err == nil {
			var fill dedupe.Fill
			if fill, err = f.Fill(ctx); err == nil {
				ratio.Set(fill.Ratio)
				needed.Set(float64(fill.Needed))
				maybe.Set(float64(fill.Maybe))
				if fill.Ratio >= fullAt {
					log.Warn("the dedupe filters of this window are filling up: raise dedupe.capacity", "fill", fill.Ratio, "capacity", fill.Capacity, "needed", fill.Needed)
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("cannot maintain the dedupe filters, retrying", "in", filterRound, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
