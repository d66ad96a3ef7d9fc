package collapse

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// places is how many places the items in flight share, a power of two: 4 MiB. Of 40,000
// items one in 26 has another one in its place by chance, and is noted without need.
const places = 1 << 20

// flight counts the items in flight by user and collapse key. It has one place for several
// of these: so it may take an item for contested that is not, but not the other way round.
// It is safe for concurrent use.
type flight struct {
	places [places]atomic.Int32
}

// begin counts items, of which no other goroutine knows yet.
func (f *flight) begin(items []pipeline.Item) {
	read := func(i int) byte { return push.Ends(items[i].UserID) + push.Ends(items[i].CollapseKey) }
	for i := range push.Prefetching(len(items), read) {
		if it := &items[i]; it.CollapseKey != "" {
			it.Place = 1 + placeOf(it)
			f.places[it.Place-1].Add(1)
		}
	}
}

// end takes items away that begin has counted, by their places.
func (f *flight) end(places []uint32) {
	for _, place := range places {
		f.places[place-1].Add(-1)
	}
}

// isContested reports whether another item of the same user and collapse key is in flight,
// or seems to be.
func (f *flight) isContested(it *pipeline.Item) bool {
	return it.Place > 0 && f.places[it.Place-1].Load() > 1
}

// placeOf is the place of an item's user and collapse key. A device that the message names
// stands for its user. The app may be left out: that only makes more items share a place.
func placeOf(it *pipeline.Item) uint32 {
	owner := it.UserID
	if owner == "" {
		owner = it.Message.Device.Token
	}
	return uint32((xxhash.Sum64String(owner)*3 ^ xxhash.Sum64String(it.CollapseKey)) % places)
}
