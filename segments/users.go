package segments

import (
	"io"
	"iter"

	"github.com/RoaringBitmap/roaring/v2"
)

// Users is a set of user numbers. It never changes, and is safe for concurrent
// use. The zero Users is empty.
type Users struct {
	bitmap *roaring.Bitmap
	// section is what the bitmap was read from. It is written again as it is: of
	// the same users there may be other serializations.
	section []byte
}

// UsersOf is the set of these numbers.
func UsersOf(numbers ...uint32) Users { return Users{bitmap: roaring.BitmapOf(numbers...)} }

// Contains reports whether a number is in the set. It does not allocate.
func (u Users) Contains(number uint32) bool { return u.bitmap != nil && u.bitmap.Contains(number) }

// Count is how many numbers are in the set.
func (u Users) Count() uint64 {
	if u.bitmap == nil {
		return 0
	}
	return u.bitmap.GetCardinality()
}

// CountFrom is how many numbers are in the set that are at least first.
func (u Users) CountFrom(first uint64) uint64 {
	if u.bitmap == nil || first > MaxNumber {
		return 0
	}
	return u.bitmap.CardinalityInRange(first, MaxNumber+1)
}

// Bytes is the memory that the set takes, roughly.
func (u Users) Bytes() uint64 {
	if u.bitmap == nil {
		return 0
	}
	return u.bitmap.GetSizeInBytes()
}

// All yields the numbers in ascending order.
func (u Users) All() iter.Seq[uint32] { return u.From(0) }

// From yields the numbers from first on in ascending order, so that an
// interrupted walk can be continued after the last number that it had.
func (u Users) From(first uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if u.bitmap == nil {
			return
		}
		it := u.bitmap.Iterator()
		if first > 0 {
			it.AdvanceIfNeeded(first)
		}
		for it.HasNext() {
			if !yield(it.Next()) {
				return
			}
		}
	}
}

// Union is the users that are in any of the sets.
func Union(sets ...Users) Users { return Users{bitmap: roaring.FastOr(bitmaps(sets)...)} }

// Intersection is the users that are in each of the sets; of none it is empty.
func Intersection(sets ...Users) Users { return Users{bitmap: roaring.FastAnd(bitmaps(sets)...)} }

// Difference is the users of u that are in none of the others.
func Difference(u Users, others ...Users) Users {
	left := bitmaps([]Users{u})[0]
	for _, o := range bitmaps(others) {
		left = roaring.AndNot(left, o)
	}
	return Users{bitmap: left}
}

// writeTo writes the section of a segment with these users.
func (u Users) writeTo(w io.Writer) (int64, error) {
	if u.section != nil {
		n, err := w.Write(u.section)
		return int64(n), err
	}
	return u.bitmap.WriteTo(w)
}

func bitmaps(sets []Users) []*roaring.Bitmap {
	bs := make([]*roaring.Bitmap, len(sets))
	for i, s := range sets {
		if bs[i] = s.bitmap; bs[i] == nil {
			bs[i] = roaring.New()
		}
	}
	return bs
}
