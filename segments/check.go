package segments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The portable serialization of Roaring bitmaps
// (https://github.com/RoaringBitmap/RoaringFormatSpec): a header with the key
// (the upper 16 bits) and the number of values of each container, and then the
// containers, each a sorted array, a bitmap or a list of runs.
const (
	cookieRuns    = 12347 // in the low 16 bits; the upper ones are the number of containers - 1
	cookieNoRuns  = 12346
	maxContainers = 1 << 16
	maxArray      = 4096 // values of an array; containers with more are bitmaps
	bitmapBytes   = 8192
	offsetsFrom   = 4 // containers from which on a file with runs has offsets
)

var errShort = errors.New("it ends too early")

// checkBitmap checks that data is one valid bitmap and nothing else, and returns the number
// of its values. It takes time in proportion to len(data): the library's own
// Validate compares every two runs of a container, which a hostile file could
// make last for minutes.
func checkBitmap(data []byte) (users uint64, err error) {
	c := &checker{rest: data, size: len(data)}
	containers, runs, err := c.header()
	if err != nil {
		return 0, err
	}
	described := c.take(4 * containers)
	var offsets []byte
	if runs == nil || containers >= offsetsFrom {
		offsets = c.take(4 * containers)
	}
	if c.short {
		return 0, errShort
	}
	last := -1
	for i := range containers {
		key, card := int(binary.LittleEndian.Uint16(described[4*i:])), int(binary.LittleEndian.Uint16(described[4*i+2:]))+1
		if key <= last {
			return 0, fmt.Errorf("container %d is out of order", i)
		}
		last = key
		if at := c.size - len(c.rest); offsets != nil && uint64(binary.LittleEndian.Uint32(offsets[4*i:])) != uint64(at) {
			return 0, fmt.Errorf("container %d does not begin where the header says", i)
		}
		if err := c.container(card, runs != nil && runs[i/8]&(1<<(i%8)) != 0); err != nil {
			return 0, fmt.Errorf("container %d: %w", i, err)
		}
		users += uint64(card)
	}
	if len(c.rest) > 0 {
		return 0, fmt.Errorf("%d bytes follow the bitmap", len(c.rest))
	}
	return users, nil
}

// checker takes a bitmap apart.
type checker struct {
	rest  []byte
	size  int
	short bool // something was missing
}

// take takes the next n bytes; nil if they are not there.
func (c *checker) take(n int) []byte {
	if c.short = c.short || n > len(c.rest); c.short {
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

// header takes the cookie, the number of containers and, if there are runs, the
// bits that say which containers are runs. What is missing of them is missing
// after them, too.
func (c *checker) header() (containers int, runs []byte, err error) {
	b := c.take(4)
	if c.short {
		return 0, nil, errShort
	}
	switch cookie := binary.LittleEndian.Uint32(b); {
	case cookie&0xffff == cookieRuns:
		containers = int(cookie>>16) + 1
		runs = c.take((containers + 7) / 8)
	case cookie == cookieNoRuns:
		if b = c.take(4); !c.short {
			n := binary.LittleEndian.Uint32(b)
			if n > maxContainers {
				return 0, nil, fmt.Errorf("%d containers; %d is the most", n, maxContainers)
			}
			containers = int(n)
		}
	default:
		return 0, nil, errors.New("not a Roaring bitmap")
	}
	return containers, runs, nil
}

// container takes a container of card values.
func (c *checker) container(card int, runs bool) error {
	switch {
	case runs:
		return c.runs(card)
	case card > maxArray:
		b, n := c.take(bitmapBytes), 0
		for i := 0; i < len(b); i += 8 {
			n += bits.OnesCount64(binary.LittleEndian.Uint64(b[i:]))
		}
		if !c.short && n != card {
			return fmt.Errorf("%d values, and the header says %d", n, card)
		}
	default:
		b, last := c.take(2*card), -1
		for i := 0; i < len(b); i += 2 {
			v := int(binary.LittleEndian.Uint16(b[i:]))
			if v <= last {
				return errors.New("its values are out of order")
			}
			last = v
		}
	}
	if c.short {
		return errShort
	}
	return nil
}

// runs takes a container of runs: pairs of the first value and the length - 1.
func (c *checker) runs(card int) error {
	b := c.take(2)
	if c.short {
		return errShort
	}
	b = c.take(4 * int(binary.LittleEndian.Uint16(b)))
	if c.short {
		return errShort
	}
	n, end := 0, -1 // end: the first value after the run before, which is not in this one
	for i := 0; i < len(b); i += 4 {
		first, length := int(binary.LittleEndian.Uint16(b[i:])), int(binary.LittleEndian.Uint16(b[i+2:]))+1
		if first <= end || first+length > 1<<16 {
			return errors.New("its runs are out of order")
		}
		end, n = first+length, n+length
	}
	if n != card {
		return fmt.Errorf("%d values, and the header says %d", n, card)
	}
	return nil
}
