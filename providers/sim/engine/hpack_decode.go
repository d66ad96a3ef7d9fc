package engine

import (
	"strings"
	"unsafe"

	"golang.org/x/net/http2/hpack"
)

const (
	fieldOverhead = 32  // of a table's entry (RFC 7541, 4.1)
	tableEntries  = 128 // a power of two, and more than headerTable can hold
)

// hpackDecoder reads the header blocks of a connection. What is in a table is
// the table's string; other values stand in the memory of their stream. So it
// allocates only for what the client puts into the table. Only the connection's
// reader uses it.
type hpackDecoder struct {
	// The dynamic table: entries are numbered from the connection's start, and
	// entry n is entries[n%tableEntries] while oldest <= n < added.
	entries       [tableEntries]tableField
	oldest, added uint64
	size, limit   int // in bytes, as RFC 7541 counts
}

// tableField is an entry of a table.
type tableField struct {
	Field
	kind fieldKind
}

func newHPACKDecoder() *hpackDecoder { return &hpackDecoder{limit: headerTable} }

// staticTable is RFC 7541's, appendix A, in its order.
var staticTable = newStaticTable()

func newStaticTable() (table []tableField) {
	d := hpack.NewDecoder(0, func(f hpack.HeaderField) {
		table = append(table, tableField{Field{f.Name, f.Value}, kindOf(f.Name)})
	})
	for i := 1; ; i++ {
		if _, err := d.Write([]byte{0x80 | byte(i)}); err != nil {
			return table // behind the last one
		}
	}
}

// decode reads a whole block and gives its fields to s. ok is false when the
// block is broken, or a value longer than a whole block may be: then both
// sides' tables differ from now on.
func (d *hpackDecoder) decode(p []byte, s *stream) (ok bool) {
	started := false
	for len(p) > 0 {
		b := p[0]
		switch {
		case b&0x80 != 0:
			i, n := hpackInt(p, 7)
			f := d.at(i)
			if n == 0 || f == nil {
				return false
			}
			s.field(f.kind, f.Name, f.Value)
			p = p[n:]
		case b&0xe0 == 0x20:
			v, n := hpackInt(p, 5)
			if n == 0 || v > headerTable || started && d.size > 0 {
				return false
			}
			d.limit = int(v)
			d.evict(d.limit)
			p = p[n:]
			continue
		default:
			if p, ok = d.literal(p, s); !ok {
				return false
			}
		}
		started = true
	}
	return true
}

// literal reads a field that has its own value, and returns what is behind it.
func (d *hpackDecoder) literal(p []byte, s *stream) (rest []byte, ok bool) {
	bits, keep := uint(4), p[0]&0x40 != 0
	if keep {
		bits = 6
	}
	i, n := hpackInt(p, bits)
	if n == 0 {
		return nil, false
	}
	p = p[n:]
	var name string
	var kind fieldKind
	if i != 0 {
		f := d.at(i)
		if f == nil {
			return nil, false
		}
		name, kind = f.Name, f.kind
	} else {
		if name, p, ok = s.text.read(p); !ok {
			return nil, false
		}
		kind = kindOf(name)
	}
	value, p, ok := s.text.read(p)
	if !ok {
		return nil, false
	}
	if keep {
		f := tableField{Field{name, strings.Clone(value)}, kind}
		if i == 0 {
			f.Name = strings.Clone(name) // else it is a table's already
		}
		d.add(f)
	}
	s.field(kind, name, value)
	return p, true
}

// at is the field of an index, nil when there is none.
func (d *hpackDecoder) at(i uint64) *tableField {
	if i-1 < uint64(len(staticTable)) {
		return &staticTable[i-1]
	}
	if i -= uint64(len(staticTable)); i-1 < d.added-d.oldest {
		return &d.entries[(d.added-i)%tableEntries]
	}
	return nil
}

func (d *hpackDecoder) add(f tableField) {
	size := len(f.Name) + len(f.Value) + fieldOverhead
	d.evict(d.limit - size)
	if size > d.limit {
		return // as the RFC has it: the table is empty now
	}
	d.entries[d.added%tableEntries] = f
	d.added++
	d.size += size
}

func (d *hpackDecoder) evict(limit int) {
	for d.size > limit && d.oldest < d.added {
		f := &d.entries[d.oldest%tableEntries]
		d.size -= len(f.Name) + len(f.Value) + fieldOverhead
		*f = tableField{}
		d.oldest++
	}
}

// hpackInt reads an integer with a prefix of some bits (RFC 7541, 5.1), and
// returns how many bytes it takes; 0 when it is cut off or absurdly large.
func hpackInt(p []byte, bits uint) (v uint64, n int) {
	mask := byte(1)<<bits - 1
	if v = uint64(p[0] & mask); v < uint64(mask) {
		return v, 1
	}
	for i := 1; i < len(p) && i < 6; i++ {
		v += uint64(p[i]&0x7f) << (7 * (i - 1))
		if p[i]&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, 0
}

// arena is the memory of the strings of one request or answer. It is used again
// for the next one: then the strings are not valid any more.
type arena []byte

// read takes a string literal off p.
func (a *arena) read(p []byte) (text string, rest []byte, ok bool) {
	if len(p) == 0 {
		return "", nil, false
	}
	length, n := hpackInt(p, 7)
	if n == 0 || length > uint64(len(p)-n) {
		return "", nil, false
	}
	coded := p[0]&0x80 != 0
	raw, rest := p[n:n+int(length)], p[n+int(length):]
	at := len(*a)
	if !coded {
		*a = append(*a, raw...)
	} else if *a, ok = huffmanCode.append(*a, raw); !ok || len(*a)-at > maxHeaderBlock {
		return "", nil, false
	}
	return a.from(at), rest, true
}

// keep copies b and returns it as a string.
func (a *arena) keep(b []byte) string {
	at := len(*a)
	*a = append(*a, b...)
	return a.from(at)
}

// from is what was written since the length was at. It stays where it is, also
// when the memory moves.
func (a *arena) from(at int) string {
	written := (*a)[at:]
	return unsafe.String(unsafe.SliceData(written), len(written))
}
