package shards

import "strings"

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Slot is the hash slot of a key as Redis Cluster computes it: CRC16 (XMODEM)
// of the part between the first "{" and the next "}", when that part is not
// empty, else of the whole key, modulo 16384.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slots)
}
