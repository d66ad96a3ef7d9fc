package collapse

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// A user's set c:{s}:<user> has a member per app and collapse key, their hash
// in 8 bytes. Its score is when the notification was first seen, in Unix ms,
// followed by 11 bits of the hash of its id. Together these are at most 53
// bits until the year 2109: what a score holds exactly.
//
// So few bits of the id are enough: they only keep a notification from
// superseding itself, and when those of two ids agree by chance, one time in
// 2048, the older one is sent.
const (
	idBits = 11
	idMask = 1<<idBits - 1
)

// score is what a notification is remembered by.
func score(it *pipeline.Item) int64 {
	return it.FirstSeen.Time().UnixMilli()<<idBits | int64(xxhash.Sum64String(it.ID)&idMask)
}

// written returns a score as it was written, and 0 for what is none: not a whole number,
// or not one of up to 53 bits. Otherwise it would supersede everything for ever.
func written(s float64) int64 {
	if !(s > 0 && s < 1<<53) || s != math.Trunc(s) {
		return 0
	}
	return int64(s)
}

// supersedes reports whether the notification of this score, 0 for none, is a
// newer one than it.
func supersedes(newest int64, it *pipeline.Item) bool {
	own := score(it)
	return newest>>idBits > own>>idBits && newest&idMask != own&idMask
}

// appendMember appends the hash of an item's app and collapse key. A collapse
// key has no control characters, so the zero byte divides the two.
func appendMember(b []byte, it *pipeline.Item) []byte {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(it.App) // hashing does not fail
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(it.CollapseKey)
	return binary.BigEndian.AppendUint64(b, d.Sum64())
}

// places notes the score of every item, and writes score and member into values, which
// share one piece of memory.
func (sc *scratch) places() {
	sc.text, sc.ends = sc.text[:0], sc.ends[:0]
	needs := func(i int) byte {
		it := sc.items[i]
		return push.Ends(it.ID) + push.Ends(it.CollapseKey) + byte(it.FirstSeen)
	}
	for i := range push.Prefetching(len(sc.items), needs) {
		it := sc.items[i]
		sc.scores = append(sc.scores, score(it))
		sc.text = strconv.AppendInt(sc.text, sc.scores[i], 10)
		sc.ends = append(sc.ends, len(sc.text))
		sc.text = appendMember(sc.text, it)
		sc.ends = append(sc.ends, len(sc.text))
	}
	all, from := string(sc.text), 0
	for _, end := range sc.ends {
		sc.values = append(sc.values, all[from:end])
		from = end
	}
}

// boundsAt are what all notes have in common: the score up to which members
// are dropped, the time to live of a set in ms, and the rank of the last
// member that is too much.
func boundsAt(now time.Time, horizon time.Duration) [3]string {
	keep := horizon + slack
	return [3]string{
		strconv.FormatInt(now.Add(-keep).UnixMilli()<<idBits, 10),
		strconv.FormatInt(keep.Milliseconds(), 10),
		strconv.Itoa(-maxKeys - 1),
	}
}
