package collapse

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/pipeline"
)

// A user's set c:{s}:<user> has a member per app and open collapse key, their hash
// in 8 bytes. Its score is when the newest notification was first seen, in Unix ms,
// followed by 11 bits of the hash of its id. Together these are at most 53
// bits until the year 2109: what a score holds exactly. Under a key where nothing was
// accepted since it was opened they are 0, and the time is one by which whatever may still
// be sent was seen later: so every note takes its place, and as it gets old it goes.
//
// So few bits of the id are enough: they only keep a notification from
// superseding itself, and when those of two ids agree by chance, one time in
// 2,047, the older one is sent.
const (
	idBits = 11
	idMask = 1<<idBits - 1
)

// score is what a notification is remembered by.
func score(it *pipeline.Item) int64 {
	return it.FirstSeen.Time().UnixMilli()<<idBits | max(1, int64(xxhash.Sum64String(it.ID)&idMask))
}

// scoreAt is the score that no note has of a time.
func scoreAt(t time.Time) int64 { return t.UnixMilli() << idBits }

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
	return newest>>idBits > own>>idBits && newest&idMask != 0 && newest&idMask != own&idMask
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
