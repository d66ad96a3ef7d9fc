package state

import "github.com/pushfleet/pushfleet/shards"

// Names of the fields of o:{s} besides the partitions' numbers.
const (
	fieldVersion = "v"
	FieldAt      = "at"
)

// OpenKey is the set of a shard's open cases. It has the tag of a user shard;
// token shards share theirs with every fourth of them.
func OpenKey(s int) string { return "t:{" + shards.UserTag(s) + "}:open" }

// UnreadKey is the set of the keys of a shard's parts that are in quarantine.
func UnreadKey(s int) string { return "t:{" + shards.UserTag(s) + "}:unread" }

// TokenHome is the user shard whose script writes the token index entry of
// this device hash: the two share a hash tag.
func TokenHome(hash string) int { return shards.TokenShard(hash) * (shards.Users / shards.Filters) }

// TokenKey is the entry of this device hash in the token index.
func TokenKey(hash string) string { return shards.TokenKey(shards.TokenShard(hash), hash) }
