package events

import (
	"errors"
	"math"
	"math/bits"
)

const (
	placeBits  = 10
	sketchSize = 1 << placeBits
	// deepest is the greatest rank of a hash: all bits besides its place are 0.
	deepest = 64 - placeBits + 1
	// mostUsers bounds an estimate: registers that no users fill have none.
	mostUsers = 1e12
)

// Sketch estimates how many different users were added, without keeping any: a HyperLogLog
// of 1,024 registers. Two of three estimates are right to 3.3 %, up to some hundred users
// more exactly. Adding a user again changes nothing, and so does merging again. The zero
// Sketch is empty. Not safe for concurrent use.
type Sketch struct{ registers [sketchSize]uint8 }

// sketchPlace is what a sketch takes of a hash.
type sketchPlace struct {
	register uint16
	rank     uint8 // 1 to deepest
}

func placeOfHash(hash uint64) sketchPlace {
	rest := hash<<placeBits | 1<<(placeBits-1) // the bit after the last one ends the count
	return sketchPlace{uint16(hash >> (64 - placeBits)), uint8(bits.LeadingZeros64(rest) + 1)}
}

// Add takes a hash of a user whose bits are as good as random.
func (s *Sketch) Add(hash uint64) { s.raise(placeOfHash(hash)) }

func (s *Sketch) raise(p sketchPlace) {
	s.registers[p.register] = max(s.registers[p.register], p.rank)
}

// Merge adds all users of another sketch.
func (s *Sketch) Merge(o *Sketch) {
	for i, rank := range o.registers {
		s.registers[i] = max(s.registers[i], rank)
	}
}

// Estimate is about how many users were added, by O. Ertl, "New cardinality estimation
// algorithms for HyperLogLog sketches" (2017), algorithm 6: without a table, and as good for
// few as for many.
func (s *Sketch) Estimate() int64 {
	var counts [deepest + 1]float64 // registers by their rank
	for _, rank := range s.registers {
		counts[rank]++
	}
	z := sketchSize * tau(1-counts[deepest]/sketchSize)
	for rank := deepest - 1; rank > 0; rank-- {
		z = (z + counts[rank]) / 2
	}
	z += sketchSize * sigma(counts[0]/sketchSize)
	return int64(math.Round(min(sketchSize*sketchSize/(2*math.Ln2)/z, mostUsers)))
}

func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for before := math.NaN(); z != before; y += y {
		x *= x
		before = z
		z += x * y
	}
	return z
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for before := math.NaN(); z != before; {
		x = math.Sqrt(x)
		before = z
		y /= 2
		z -= (1 - x) * (1 - x) * y
	}
	return z / 3
}

// registerDigits are those of base64url: a digit for each register.
const registerDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// MarshalText implements encoding.TextMarshaler: a digit of base64url for each register,
// up to the last that is not 0.
func (s *Sketch) MarshalText() ([]byte, error) {
	size := sketchSize
	for size > 0 && s.registers[size-1] == 0 {
		size--
	}
	text := make([]byte, size)
	for i := range text {
		text[i] = registerDigits[s.registers[i]]
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sketch) UnmarshalText(text []byte) error {
	if len(text) > sketchSize {
		return errors.New("a sketch with too many registers")
	}
	var read Sketch
	for i, digit := range text {
		rank := rankOf(digit)
		if rank < 0 || rank > deepest {
			return errors.New("a sketch with a register that is none")
		}
		read.registers[i] = uint8(rank)
	}
	*s = read
	return nil
}

func rankOf(digit byte) int {
	switch {
	case digit >= 'A' && digit <= 'Z':
		return int(digit - 'A')
	case digit >= 'a' && digit <= 'z':
		return int(digit-'a') + 26
	case digit >= '0' && digit <= '9':
		return int(digit-'0') + 52
	}
	return -1 // - and _ are greater than any rank
}
