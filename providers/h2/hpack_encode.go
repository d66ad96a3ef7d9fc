package h2

import (
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// encoder writes header blocks. Stable fields are put into the dynamic table
// once and are one byte from then on; of a changing field only the name is put
// there; a secret one never is. Only the writer of its connection uses it.
type encoder struct {
	authority []byte

	// The dynamic table: entries are numbered from the connection's start, and
	// entry n is entries[n&mask] while oldest <= n < added.
	entries       [encoderEntries]entry
	oldest, added uint64
	size, limit   int // in bytes, as RFC 7541 counts

	// A lower limit than the present one was in force at some time since the last
	// block.
	lowest   int
	announce bool

	// guess is, for the place of a field among the headers, the entry that
	// fitted it last time, + 1. It saves the search nearly always.
	guess [16]uint64
}

// encoderEntries is a power of two, and as many as a table of 4096 bytes can
// have: none is under 32.
const encoderEntries = 128

type entry struct {
	name  string
	value []byte
}

func (e *entry) size() int { return len(e.name) + len(e.value) + entryOverhead }

func newEncoder(authority string) *encoder {
	return &encoder{authority: []byte(authority), limit: tableSize}
}

// setLimit applies the server's SETTINGS_HEADER_TABLE_SIZE: the next block says
// so. More than 4096 bytes are not used.
func (e *encoder) setLimit(n int) {
	n = min(n, tableSize)
	if !e.announce {
		e.lowest = n
	}
	e.announce, e.lowest, e.limit = true, min(e.lowest, n), n
	e.evict(e.lowest)
}

// forget makes the next block empty the table on both sides, and announce its
// size: the peer never got the last block, nor what that one announced.
func (e *encoder) forget() { e.announce, e.lowest = true, 0 }

func (e *encoder) evict(limit int) {
	for e.size > limit {
		old := &e.entries[e.oldest&(encoderEntries-1)]
		e.size -= old.size()
		old.name = ""
		e.oldest++
	}
}

// appendRequest appends the header block of r.
func (e *encoder) appendRequest(b []byte, r *Request) []byte {
	if e.announce {
		e.announce = false
		if e.lowest < e.limit {
			// The dip must be announced. As 0, with an empty table after it, it is
			// also understood by peers that take a second update in a block only
			// while their table is empty.
			e.evict(0)
			b = appendInt(b, 0x20, 5, 0)
		}
		b = appendInt(b, 0x20, 5, uint64(e.limit))
	}
	if r.call == nil {
		b = append(b, 0x80|indexMethodPost)
	} else {
		b = appendMethod(b, r.call.method)
	}
	b = append(b, 0x80|indexSchemeHTTPS)
	b = e.appendIndexed(b, 0, ":authority", e.authority)
	b = appendInt(b, 0, 4, indexPath)
	b = appendString(b, r.Path)
	for i := range r.Header {
		f := &r.Header[i]
		switch f.Indexing {
		case Indexed:
			b = e.appendIndexed(b, i+1, f.Name, f.Value)
		case NeverIndexed:
			b = appendName(b, 0x10, 4, staticNames[f.Name], f.Name)
			b = appendString(b, f.Value)
		default:
			b = e.appendChanging(b, i+1, f.Name, f.Value)
		}
	}
	if r.call != nil && len(r.Body) == 0 && !bodyExpected(r.call.method) {
		return b
	}
	var digits [20]byte
	b = appendInt(b, 0, 4, indexContentLength)
	return appendString(b, strconv.AppendInt(digits[:0], int64(len(r.Body)), 10))
}

// appendMethod appends any method: two are in the static table.
func appendMethod(b []byte, method string) []byte {
	switch method {
	case "GET":
		return append(b, 0x80|indexMethodGet)
	case "POST":
		return append(b, 0x80|indexMethodPost)
	}
	b = appendInt(b, 0, 4, indexMethodGet)
	return append(appendInt(b, 0, 7, uint64(len(method))), method...)
}

// bodyExpected reports for which methods an empty body is announced (RFC 9110,
// 8.6).
func bodyExpected(method string) bool {
	return method == "POST" || method == "PUT" || method == "PATCH"
}

// appendIndexed appends a field that the peer is to remember.
func (e *encoder) appendIndexed(b []byte, place int, name string, value []byte) []byte {
	if n, ok := e.find(place, name, value, true); ok {
		return appendInt(b, 0x80, 7, e.index(n))
	}
	if len(name)+len(value)+entryOverhead > e.limit*3/4 {
		b = appendName(b, 0, 4, staticNames[name], name)
		return appendString(b, value)
	}
	return e.appendNew(b, name, value)
}

// appendChanging appends a field of which the peer is to remember the name: the
// first one with it is put into the table.
func (e *encoder) appendChanging(b []byte, place int, name string, value []byte) []byte {
	var index uint64
	if n, ok := e.find(place, name, nil, false); ok {
		index = e.index(n)
	} else if index = staticNames[name]; index == 0 && len(name)+len(value)+entryOverhead <= e.limit/4 {
		return e.appendNew(b, name, value)
	}
	b = appendName(b, 0, 4, index, name)
	return appendString(b, value)
}

// appendNew appends a field and puts it into the table.
func (e *encoder) appendNew(b []byte, name string, value []byte) []byte {
	b = appendName(b, 0x40, 6, staticNames[name], name)
	b = appendString(b, value)
	size := len(name) + len(value) + entryOverhead
	e.evict(e.limit - size)
	at := &e.entries[e.added&(encoderEntries-1)]
	at.name, at.value = name, append(at.value[:0], value...)
	e.size += size
	e.added++
	return b
}

// find looks for an entry with a name and, if exact, a value.
func (e *encoder) find(place int, name string, value []byte, exact bool) (uint64, bool) {
	fits := func(n uint64) bool {
		at := &e.entries[n&(encoderEntries-1)]
		return at.name == name && (!exact || string(at.value) == string(value))
	}
	if place < len(e.guess) {
		if n := e.guess[place]; n > e.oldest && n <= e.added && fits(n-1) {
			return n - 1, true
		}
	}
	for n := e.added; n > e.oldest; n-- {
		if fits(n - 1) {
			if place < len(e.guess) {
				e.guess[place] = n
			}
			return n - 1, true
		}
	}
	return 0, false
}

// index is the peer's index of entry n: the newest comes right after the static
// table.
func (e *encoder) index(n uint64) uint64 { return uint64(len(staticTable)) + e.added - n }

// appendName appends the start of a literal: its name's index, or the name.
func appendName(b []byte, pattern byte, bits uint, index uint64, name string) []byte {
	b = appendInt(b, pattern, bits, index)
	if index != 0 {
		return b
	}
	if n := hpack.HuffmanEncodeLength(name); n < uint64(len(name)) {
		return hpack.AppendHuffmanString(appendInt(b, 0x80, 7, n), name)
	}
	return append(appendInt(b, 0, 7, uint64(len(name))), name...)
}

// appendString appends a value uncompressed: Huffman coding would make a token
// a fifth shorter, and cost more than encrypting the difference.
func appendString(b, value []byte) []byte {
	return append(appendInt(b, 0, 7, uint64(len(value))), value...)
}
