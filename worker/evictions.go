package worker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// evictionsRound is how often Redis is asked about evictions: often enough that somebody
// hears of a policy before memory is full.
const evictionsRound = 30 * time.Second

// watchEvictions asks Redis at intervals until ctx ends whether it may evict keys, and
// whether it has: a user's record that was evicted cannot be told from one that never was,
// and reads as a user without devices. /readyz and the log say the first, the log the
// second. evictions is shards.Evictions.
func watchEvictions(ctx context.Context, h *health, log *slog.Logger, evictions func(context.Context) (evicted map[string]int64, unfit, err error)) {
	ticker := time.NewTicker(evictionsRound)
	defer ticker.Stop()
	known := make(map[string]int64) // by master, as evicted
	said := ""
	for {
		look, cancel := context.WithTimeout(ctx, checkTimeout)
		evicted, unfit, err := evictions(look)
		cancel()
		if err == nil { // else checkStore says that it is away
			h.set("redis evictions", unfit)
			text := ""
			if unfit != nil {
				text = unfit.Error()
			}
			if text != "" && text != said {
				log.Error("Redis may evict keys: users whose record goes look as if they had no devices", "error", text)
			}
			for _, server := range slices.Sorted(maps.Keys(evicted)) {
				// Fewer than before: it has been started again, and counts from 0.
				if n := evicted[server]; n > 0 && n != known[server] {
					log.Error("Redis has evicted keys since it was started: set maxmemory-policy noeviction, then run pushworker registry --rebuild", "server", server, "keys", n)
				}
			}
			said = text
			maps.Copy(known, evicted)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
