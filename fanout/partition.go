package fanout

import "encoding/binary"

// PartitionOf is the partition, of n, in which Kafka's producers put a record with this
// key: murmur2 without its sign, modulo n (Utils.murmur2 and toPositive in Kafka's
// clients; franz-go's StickyKeyPartitioner does the same). So a receiver of a fan-out
// has the partition that each single notification of that user has.
func PartitionOf(key string, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

// murmur2 is Kafka's: 32 bits, little endian, with a fixed seed.
func murmur2(key string) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(key))
	var word [4]byte
	for ; len(key) >= 4; key = key[4:] {
		copy(word[:], key)
		k := binary.LittleEndian.Uint32(word[:]) * m
		k = (k ^ k>>r) * m
		h = h*m ^ k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
