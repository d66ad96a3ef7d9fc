package push

import "github.com/cespare/xxhash/v2"

// Partition is one partition of one topic.
type Partition struct {
	Topic string
	ID    int32
}

// Place identifies a record of the partition in the status table, and is never 0. A record
// that is read again has the same place, a copy of it elsewhere another one.
func (p Partition) Place(offset int64) uint64 {
	h := xxhash.Sum64String(p.Topic) ^ uint64(uint32(p.ID))*0x9e3779b97f4a7c15
	h = (h^h>>29)*0xbf58476d1ce4e5b9 + uint64(offset)*0x94d049bb133111eb
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return max(1, h^h>>32)
}
