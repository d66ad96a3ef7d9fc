package segments

import (
	"fmt"
	"testing"
)

// BenchmarkLookUp asks for numbers of all kinds of containers, which fit into
// the caches: the bar is 50 ns for one bitmap.
func BenchmarkLookUp(b *testing.B) {
	s := readBack(b, lifecycle(b, 1))
	g := s.Group("lifecycle")
	for _, kind := range []struct {
		name    string
		segment string
		from    uint32
	}{{"array", "new", 0}, {"bitmap", "new", 100_000}, {"run", "active", 250_000}} {
		seg, _ := g.Segment(kind.segment)
		b.Run("segment/"+kind.name, func(b *testing.B) {
			b.ReportAllocs()
			n := uint32(0)
			for b.Loop() {
				seg.Contains(kind.from + n&1023)
				n += 7
			}
		})
	}
	for _, number := range []uint32{7, 250_000, 3_000_000} {
		b.Run(fmt.Sprint("group of 3/", number), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g.Of(number)
			}
		})
		b.Run(fmt.Sprint("set of 2 groups/", number), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Of("lifecycle", number)
			}
		})
	}
}
