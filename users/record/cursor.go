package record

import (
	"encoding/binary"
	"unsafe"
)

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// cursor cuts values off the front of a record. After the first that does not
// fit it is bad and yields zeros.
type cursor struct {
	rest []byte
	bad  bool
	room *Decoder // what lists are cut from; nil = each is made for itself
}

func (c *cursor) fail() {
	c.bad, c.rest = true, nil
}

func (c *cursor) byte() byte {
	if len(c.rest) == 0 {
		c.fail()
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cursor) uvarint() uint64 {
	if len(c.rest) > 0 && c.rest[0] < 0x80 { // nearly all lengths and counts
		v := uint64(c.rest[0])
		c.rest = c.rest[1:]
		return v
	}
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) bytes() []byte {
	n := c.uvarint()
	if n > uint64(len(c.rest)) {
		c.fail()
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) string() string {
	b := c.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// count reads how many elements of at least size bytes follow, and refuses
// what cannot fit, so that a corrupt count never makes a huge loop.
func (c *cursor) count(size int) int {
	n := c.uvarint()
	if n > uint64(len(c.rest)/size) {
		c.fail()
		return 0
	}
	return int(n)
}

func (c *cursor) strings(list []string) []string {
	n := c.count(1)
	if n > cap(list)-len(list) {
		list = append(c.room.ofStrings(len(list)+n), list...)
	}
	for range n {
		list = append(list, c.string())
	}
	return list
}
