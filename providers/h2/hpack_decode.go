package h2

import (
	"errors"

	"golang.org/x/net/http2/hpack"
)

// maxHeaderList is the longest header list we take, counted as RFC 7541 counts:
// names, values, and 32 bytes a field. SETTINGS announces this to the server.
const maxHeaderList = 16 << 10

// Errors of decoder.decode. The first means that both sides' tables differ
// from now on.
var (
	errBadBlock  = errors.New("header block cannot be decoded")
	errLongBlock = errors.New("header list too long")
)

// decoder reads header blocks in place. Of an answer's fields only the status
// and those of Options.AnswerHeaders are looked at; the others only move the
// dynamic table. It allocates nothing once its buffers have grown. Only the
// reader of its connection uses it.
type decoder struct {
	wanted  []string
	lengths uint64 // bit n: a wanted name has n bytes. Most fields end here
	// every, unless nil, also receives all fields of the block being read.
	every func(name, value []byte)

	// The dynamic table, numbered as the encoder's. The bytes of its entries are
	// in arena one after the other, the oldest first, so eviction moves a border
	// and new ones are appended; arena is compacted when it is full.
	entries       [encoderEntries]decoded
	oldest, added uint64
	arena         []byte
	size, limit   int

	name, value plain // buffer for decoded Huffman strings
}

type decoded struct {
	at          int // in arena
	name, value int // lengths
	want        int // which of the wanted it is, + 1; wantStatus; 0 = none
}

func (d *decoded) size() int { return d.name + d.value + entryOverhead }

// wantStatus marks the pseudo header that every answer has.
const wantStatus = -1

// plain is an io.Writer to memory.
type plain []byte

func (p *plain) Write(b []byte) (int, error) {
	*p = append(*p, b...)
	return len(b), nil
}

func newDecoder(wanted []string) *decoder {
	d := &decoder{wanted: wanted, limit: tableSize, arena: make([]byte, 0, 2*tableSize)}
	for _, w := range wanted {
		d.lengths |= lengthBit(len(w))
	}
	return d
}

// lengthBit stands for names of so many bytes; all long ones have one.
func lengthBit(n int) uint64 { return 1 << min(n, 63) }

// sink receives the wanted fields of a block, which is an index into
// decoder.wanted or wantStatus. The value is valid during the call only.
type sink interface {
	field(want int, value []byte)
}

// decode reads a whole block. to may be nil: then only the table moves.
func (d *decoder) decode(p []byte, to sink) error {
	list, started := 0, false
	for len(p) > 0 {
		if p[0]&0xe0 == 0x20 {
			v, n := readInt(p, 5)
			if n == 0 || started && d.size > 0 || v > tableSize {
				return errBadBlock
			}
			d.limit = int(v)
			d.evict(d.limit)
			p = p[n:]
			continue
		}
		started = true
		n, size, err := d.field(p, to)
		if err != nil {
			return err
		}
		p = p[n:]
		if list += size; list > maxHeaderList {
			return errLongBlock
		}
	}
	return nil
}

// field reads one field and returns how long it is in the block and how long
// it counts.
func (d *decoder) field(p []byte, to sink) (n, size int, err error) {
	if p[0]&0x80 != 0 {
		i, n := readInt(p, 7)
		if n == 0 || i == 0 {
			return 0, 0, errBadBlock
		}
		name, value, want, ok := d.at(i)
		if !ok {
			return 0, 0, errBadBlock
		}
		if want != 0 && to != nil {
			to.field(wantIndex(want), value)
		}
		if d.every != nil {
			d.every(name, value)
		}
		return n, len(name) + len(value) + entryOverhead, nil
	}
	bits, keep := uint(4), p[0]&0x40 != 0
	if keep {
		bits = 6
	}
	i, n := readInt(p, bits)
	if n == 0 {
		return 0, 0, errBadBlock
	}
	var name []byte
	var want int
	if i != 0 {
		var ok bool
		if name, _, want, ok = d.at(i); !ok {
			return 0, 0, errBadBlock
		}
	} else {
		var k int
		if name, k, err = readString(p[n:], &d.name); err != nil {
			return 0, 0, err
		}
		n += k
		want = d.want(name)
	}
	value, k, err := readString(p[n:], &d.value)
	if err != nil {
		return 0, 0, err
	}
	if want != 0 && to != nil {
		to.field(wantIndex(want), value)
	}
	if d.every != nil {
		d.every(name, value)
	}
	if keep { // last: the name may be cut from the arena, and not outlive this
		d.add(name, value, want)
	}
	return n + k, len(name) + len(value) + entryOverhead, nil
}

func wantIndex(want int) int {
	if want == wantStatus {
		return wantStatus
	}
	return want - 1
}

func (d *decoder) want(name []byte) int {
	if string(name) == ":status" {
		return wantStatus
	}
	if d.lengths&lengthBit(len(name)) == 0 {
		return 0
	}
	for i, w := range d.wanted {
		if string(name) == w {
			return i + 1
		}
	}
	return 0
}

// at returns the field at an index of the two tables.
func (d *decoder) at(i uint64) (name, value []byte, want int, ok bool) {
	if i <= uint64(len(staticTable)) {
		f := &staticBytes[i]
		if want = wantStatus; i < 8 || i > 14 {
			want = d.want(f.name)
		}
		return f.name, f.value, want, true
	}
	i -= uint64(len(staticTable))
	if i > d.added-d.oldest {
		return nil, nil, 0, false
	}
	e := &d.entries[(d.added-i)&(encoderEntries-1)]
	return d.arena[e.at : e.at+e.name], d.arena[e.at+e.name : e.at+e.name+e.value], e.want, true
}

var staticBytes = func() (t [len(staticTable) + 1]struct{ name, value []byte }) {
	for i, f := range staticTable {
		t[i+1].name, t[i+1].value = []byte(f.name), []byte(f.value)
	}
	return t
}()

func (d *decoder) evict(limit int) {
	for d.size > limit && d.oldest < d.added {
		d.size -= d.entries[d.oldest&(encoderEntries-1)].size()
		d.oldest++
	}
}

// add puts a field into the table. name may be cut from the arena.
func (d *decoder) add(name, value []byte, want int) {
	e := decoded{name: len(name), value: len(value), want: want}
	if e.size() > d.limit {
		d.evict(0) // RFC 7541, 4.4: too long an entry empties the table
		return
	}
	if len(d.arena)+len(name)+len(value) > cap(d.arena) {
		// An entry's bytes must outlive the move, even if it is evicted by the
		// one that takes its name.
		d.name = append(d.name[:0], name...)
		name = d.name
		d.evict(d.limit - e.size())
		d.compact()
	} else {
		d.evict(d.limit - e.size())
	}
	e.at = len(d.arena)
	d.arena = append(append(d.arena, name...), value...)
	d.entries[d.added&(encoderEntries-1)] = e
	d.added++
	d.size += e.size()
}

// compact moves the live bytes to the start of the arena. They are at most a
// table's size, half of it.
func (d *decoder) compact() {
	if d.oldest == d.added {
		d.arena = d.arena[:0]
		return
	}
	from := d.entries[d.oldest&(encoderEntries-1)].at
	d.arena = d.arena[:copy(d.arena, d.arena[from:])]
	for n := d.oldest; n < d.added; n++ {
		d.entries[n&(encoderEntries-1)].at -= from
	}
}

// readString reads a string in place, or decodes it to buf.
func readString(p []byte, buf *plain) (s []byte, n int, err error) {
	length, n := readInt(p, 7)
	if n == 0 || length > uint64(len(p)-n) {
		return nil, 0, errBadBlock
	}
	s = p[n : n+int(length)]
	n += int(length)
	if p[0]&0x80 == 0 {
		return s, n, nil
	}
	*buf = (*buf)[:0]
	if _, err := hpack.HuffmanDecode(buf, s); err != nil {
		return nil, 0, errBadBlock
	}
	return *buf, n, nil
}
