package dedupe

import (
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// window is what this worker knows of the 64 filters of one window.
type window struct {
	number int64 // windows since the Unix epoch
	start  time.Time
	end    time.Time
	keys   [shards.Filters]string
	births [shards.Filters]string // keys of the birth times
	fulls  [shards.Filters]string // keys of the marks of full filters

	// born[k] is the birth of filter k in Unix ms as far as it is known, 0 =
	// not. It holds only while the filter contains birthItem(born[k]): a filter
	// that was wiped and made again does not.
	born [shards.Filters]atomic.Int64
	// full[k] is set when filter k refused an item of ours: it missed adds for
	// good, and the add that found it full, or the next one, puts the mark.
	full [shards.Filters]atomic.Bool
}

func newWindow(number int64, length time.Duration) *window {
	w := &window{number: number, start: time.Unix(0, 0).Add(time.Duration(number) * length)}
	w.end = w.start.Add(length)
	for k := range w.keys {
		w.keys[k] = shards.FilterKey(k, number)
		w.births[k] = w.keys[k] + ":birth"
		w.fulls[k] = w.keys[k] + ":full"
	}
	return w
}

// minted reports whether an id is a UUIDv7 that was minted in this window, and not in its
// first minutes. Whoever added such an id in the window before has added it here as well;
// ids of the first minutes are asked about in both windows instead, so that clocks
// that differ a little cost no second add.
func (w *window) minted(id string) bool {
	at, ok := push.MintedMillis(id)
	return ok && at >= w.start.Add(youngBy).UnixMilli() && at < w.end.UnixMilli()
}

// mintedOf returns those of ids that were minted in this window.
func (w *window) mintedOf(ids []string) (of []string) {
	for _, id := range ids {
		if w.minted(id) {
			of = append(of, id)
		}
	}
	return of
}
