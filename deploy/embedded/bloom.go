package embedded

import (
	"errors"
	"math"
	"math/bits"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// errFull is the answer of a filter that may not grow, word for word that of
// RedisBloom.
var errFull = errors.New("ERR non scaling filter is full")

// bloom is a Bloom filter with the counting rules of RedisBloom: an item
// counts when it changed a bit, a filter at its capacity refuses new items
// unless it scales, and then it grows by a layer.
type bloom struct {
	expansion int // 0 = does not scale

	mu     sync.Mutex
	layers []layer
}

// layer is one plain Bloom filter.
type layer struct {
	bits     []uint64
	hashes   int
	rate     float64
	capacity int
	items    int
}

// tightening makes the error rates of all layers of a scaling filter add up to
// the one asked for.
const tightening = 0.5

func newBloom(rate float64, capacity, expansion int) *bloom {
	if expansion > 0 {
		rate *= tightening
	}
	return &bloom{expansion: expansion, layers: []layer{newLayer(rate, capacity)}}
}

// newLayer sizes a filter: bits per item = -ln(rate)/ln²2, hashes = -log2(rate).
func newLayer(rate float64, capacity int) layer {
	perItem := -math.Log(rate) / (math.Ln2 * math.Ln2)
	words := int(math.Ceil(perItem*float64(capacity)/64)) + 1
	return layer{
		bits:     make([]uint64, words),
		hashes:   max(1, int(math.Ceil(-math.Log2(rate)))),
		rate:     rate,
		capacity: capacity,
	}
}

// add reports whether the item is new; errFull when it is and there is no room.
func (b *bloom) add(item string) (bool, error) {
	h1, h2 := hashes(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.layers {
		if b.layers[i].has(h1, h2) {
			return false, nil
		}
	}
	last := &b.layers[len(b.layers)-1]
	if last.items >= last.capacity {
		if b.expansion == 0 {
			return false, errFull
		}
		b.layers = append(b.layers, newLayer(last.rate*tightening, last.capacity*b.expansion))
		last = &b.layers[len(b.layers)-1]
	}
	last.set(h1, h2)
	last.items++
	return true, nil
}

// has reports whether the item may have been added.
func (b *bloom) has(item string) bool {
	h1, h2 := hashes(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.layers {
		if b.layers[i].has(h1, h2) {
			return true
		}
	}
	return false
}

// size returns the capacity, bytes of bits, layers and items of the filter.
func (b *bloom) size() (capacity, bytes, layers, items int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.layers {
		l := &b.layers[i]
		capacity += l.capacity
		bytes += len(l.bits) * 8
		items += l.items
	}
	return capacity, bytes, len(b.layers), items
}

// hashes are the two independent halves that all bit positions of an item come
// from (Kirsch and Mitzenmacher: as good as that many hash functions).
func hashes(item string) (h1, h2 uint64) {
	h1 = xxhash.Sum64String(item)
	h2 = (h1 ^ h1>>29) * 0x9E3779B97F4A7C15
	return h1, (h2 ^ h2>>32) | 1
}

func (l *layer) has(h1, h2 uint64) bool {
	for range l.hashes {
		pos := l.position(h1)
		if l.bits[pos>>6]&(1<<(pos&63)) == 0 {
			return false
		}
		h1 += h2
	}
	return true
}

func (l *layer) set(h1, h2 uint64) {
	for range l.hashes {
		pos := l.position(h1)
		l.bits[pos>>6] |= 1 << (pos & 63)
		h1 += h2
	}
}

// position maps a hash to a bit without the bias and cost of a division.
func (l *layer) position(h uint64) uint64 {
	pos, _ := bits.Mul64(h, uint64(len(l.bits))*64)
	return pos
}
