package shards

import (
	"strconv"
	"strings"
)

// The names of all keys (design section 6). s is a user shard and k a filter
// shard: callers group their batch by shard anyway, and pass the number they
// have. A number out of range panics.

// UserKey holds the packed record of a user.
func UserKey(s int, owner string) string { return "u:{" + UserTag(s) + "}:" + owner }

// LimiterKey holds the limiter state of a user.
func LimiterKey(s int, owner string) string { return "l:{" + UserTag(s) + "}:" + owner }

// BucketKey holds the bucket of a sender for a rule, which is named by a hash; s
// is the UserShard of the sender.
func BucketKey(s int, rule uint32, sender string) string {
	return "b:{" + UserTag(s) + "}:" + strconv.FormatUint(uint64(rule), 16) + ":" + sender
}

// CollapseKey holds the newest accepted message per open collapse key of a user.
func CollapseKey(s int, owner string) string { return "c:{" + UserTag(s) + "}:" + owner }

// EpochKey marks a user shard as filled; when it is missing, the shard was
// wiped.
func EpochKey(s int) string { return "e:{" + UserTag(s) + "}" }

// OffsetsKey is a hash: partition of push.users to the offset up to which this
// shard has applied it.
func OffsetsKey(s int) string { return "o:{" + UserTag(s) + "}" }

// FilterKey holds the Bloom filter of shard k in a window. Windows are
// numbered from the Unix epoch in steps of their length.
func FilterKey(k int, window int64) string {
	return "d:{" + filterTag(k) + "}:" + strconv.FormatInt(window, 10)
}

// TokenKey names the owner of a device token; k is TokenShard(deviceHash).
func TokenKey(k int, deviceHash string) string { return "t:{" + filterTag(k) + "}:" + deviceHash }

// PausesKey holds what providers asked of the workers of a fleet: a sorted set
// of routes by the time until which they are not to be called.
func PausesKey(fleet string) string { return "p:" + fleet }

// EvidenceKey holds what the workers of a fleet know of routes that answer badly: a hash
// in the slot of PausesKey, so that one script reads both.
func EvidenceKey(fleet string) string {
	if strings.Contains(fleet, "{") {
		return "e:" + PausesKey(fleet) // has the same hash tag
	}
	return "e:{" + PausesKey(fleet) + "}"
}

// QuarantineKey holds the campaigns and senders that the workers of a fleet have stopped on
// routes: a sorted set by the time until which they are.
func QuarantineKey(fleet string) string { return "q:" + fleet }

// RateKey holds a rate that the workers of a fleet share: a hash of its state, the
// answers under it, and who asks for it.
func RateKey(fleet, rate string) string { return "r:" + fleet + ":" + rate }

// Names builds the key names of a batch in one reused buffer: two allocations
// a batch, however many names. The zero value is ready. It is not safe for
// concurrent use.
type Names struct {
	text []byte
	ends []int
	list []string
}

// Reset forgets all names; lists taken before stay valid.
func (n *Names) Reset() { n.text, n.ends = n.text[:0], n.ends[:0] }

// User adds UserKey(s, owner).
func (n *Names) User(s int, owner string) { n.add("u:{", s, owner) }

// Limiter adds LimiterKey(s, owner).
func (n *Names) Limiter(s int, owner string) { n.add("l:{", s, owner) }

// Collapse adds CollapseKey(s, owner).
func (n *Names) Collapse(s int, owner string) { n.add("c:{", s, owner) }

func (n *Names) add(kind string, s int, owner string) {
	n.text = append(n.text, kind...)
	n.text = append(n.text, UserTag(s)...)
	n.text = append(n.text, "}:"...)
	n.text = append(n.text, owner...)
	n.ends = append(n.ends, len(n.text))
}

// List returns the names in the order they were added. The slice is valid
// until the next List, its strings for ever.
func (n *Names) List() []string {
	all := string(n.text)
	n.list = n.list[:0]
	start := 0
	for _, end := range n.ends {
		n.list = append(n.list, all[start:end])
		start = end
	}
	return n.list
}
