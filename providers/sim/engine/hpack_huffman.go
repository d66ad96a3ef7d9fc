package engine

import (
	"cmp"
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2/hpack"
)

// huffman decodes the code of RFC 7541, appendix B: two symbols a look-up where
// both fit into peekBits, as the digits of tokens and ids do. Longer codes are
// rare and found by their length, which a canonical code allows. It is read
// only.
type huffman struct {
	short   [1 << peekBits]huffmanPair
	lengths []huffmanLength // in ascending order
	order   []byte          // all symbols in the order of their codes
}

// huffmanPair is what the next bits begin with: one symbol or two.
type huffmanPair struct {
	symbols [2]byte
	first   uint8 // bits of the first; 0 = its code is longer
	both    uint8 // bits of both; 0 = there is only one
}

// huffmanLength is all codes of one length.
type huffmanLength struct {
	bits        uint
	first, last uint32 // codes
	at          int    // of the first one in order
}

const (
	peekBits     = 12
	shortestCode = 5
	longestCode  = 30
)

// huffmanCode is the code that hpack's encoder writes too.
var huffmanCode = newHuffman()

// newHuffman asks the encoder for the code of every symbol: what eight of them
// take in bytes is what one takes in bits.
func newHuffman() *huffman {
	type code struct {
		symbol byte
		bits   uint
		code   uint32
	}
	var all []code
	for i := range 256 {
		symbol := string([]byte{byte(i)})
		var eight []byte
		for range 8 {
			eight = append(eight, symbol...)
		}
		bits := uint(hpack.HuffmanEncodeLength(string(eight)))
		var word [4]byte
		copy(word[:], hpack.AppendHuffmanString(nil, symbol))
		all = append(all, code{byte(i), bits, binary.BigEndian.Uint32(word[:]) >> (32 - bits)})
	}
	slices.SortFunc(all, func(a, b code) int { return cmp.Or(cmp.Compare(a.bits, b.bits), cmp.Compare(a.code, b.code)) })
	h := new(huffman)
	for i, c := range all {
		h.order = append(h.order, c.symbol)
		if n := len(h.lengths); n == 0 || h.lengths[n-1].bits != c.bits {
			h.lengths = append(h.lengths, huffmanLength{bits: c.bits, first: c.code, at: i})
		}
		h.lengths[len(h.lengths)-1].last = c.code
	}
	for bits := range h.short {
		p := &h.short[bits]
		window := uint32(bits) << (32 - peekBits)
		symbol, n := h.search(window, peekBits)
		if n == 0 {
			continue
		}
		p.symbols[0], p.first = symbol, uint8(n)
		if second, m := h.search(window<<n, peekBits-n); m > 0 {
			p.symbols[1], p.both = second, uint8(n+m)
		}
	}
	return h
}

// append appends what src stands for. ok is false when src is no string of the
// code: it holds the end of string, or does not end in at most seven ones.
func (h *huffman) append(dst, src []byte) (all []byte, ok bool) {
	n := len(dst)
	dst = slices.Grow(dst, len(src)*8/shortestCode+2)
	dst = dst[:cap(dst)]
	// The next bits, from the top. Behind the known ones there may be others
	// that are read again.
	var window uint64
	var known uint
	for {
		if known < longestCode {
			if len(src) >= 8 {
				window |= binary.BigEndian.Uint64(src) >> known
				whole := (64 - known) / 8
				src, known = src[whole:], known+8*whole
			} else {
				for ; known <= 56 && len(src) > 0; src, known = src[1:], known+8 {
					window |= uint64(src[0]) << (56 - known)
				}
			}
		}
		p := &h.short[window>>(64-peekBits)]
		dst[n], dst[n+1] = p.symbols[0], p.symbols[1]
		used := uint(p.both)
		switch {
		case used > 0 && used <= known:
			n += 2
		case p.first > 0 && uint(p.first) <= known:
			used = uint(p.first)
			n++
		default:
			if dst[n], used = h.search(uint32(window>>32), known); used == 0 {
				return dst[:n], len(src) == 0 && known < 8 && window == ^uint64(0)<<(64-known)
			}
			n++
		}
		window, known = window<<used, known-used
	}
}

// search finds the symbol whose code bits begin with, and its length; 0 when
// that is more than is known, or there is none.
func (h *huffman) search(bits uint32, known uint) (symbol byte, n uint) {
	for i := range h.lengths {
		l := &h.lengths[i]
		if l.bits > known {
			break
		}
		if code := bits >> (32 - l.bits); code >= l.first && code <= l.last {
			return h.order[l.at+int(code-l.first)], l.bits
		}
	}
	return 0, 0
}
