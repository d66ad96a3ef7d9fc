package subscriptions

import "github.com/pushfleet/pushfleet/push"

// Slices is into how many parts the users of every topic fall, however large it is: ids of
// a fan-out are made from the slice, and must stay the same when a topic gets other buckets.
const Slices = 1024

// Slice is the part of a user, 0 to Slices-1: the highest bits of the hash of his id, the
// same in every topic and layout.
func Slice(user string) int { return int(push.UserHash(user) >> (64 - 10)) }

// Layout is how the subscribers of a topic lie in partitions. What is written under one
// number stays under it: another count of buckets is another number.
type Layout struct {
	Number  int // from 1
	Buckets int // 1 to Slices: partitions
}

// Bucket is the partition that a slice is in. Slices nest in buckets: each bucket has a
// run of them, and none is in two.
func (l Layout) Bucket(slice int) int { return slice * l.Buckets / Slices }

// first is the first slice of a bucket; of the one behind the last it is Slices.
func (l Layout) first(bucket int) int { return (bucket*Slices + l.Buckets - 1) / l.Buckets }

// Position is a place among the subscribers of a topic, which are in the order of slices
// and, in a slice, of the bytes of their ids. The zero Position is before all of them.
type Position struct {
	Slice int
	User  string // "" = before all of the slice
}
