package lookup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/pushfleet/pushfleet/segments"
)

// each is the CPU time that f takes for each user, in nanoseconds, the call
// included.
func each(users []uint32, f func(uint32)) float64 {
	began := cpu()
	for _, u := range users {
		f(u)
	}
	return float64((cpu() - began).Nanoseconds()) / float64(len(users))
}

// hot is as many users as there were, but only 1,024 different ones.
func hot(users []uint32) []uint32 {
	again := make([]uint32, len(users))
	for i := range again {
		again[i] = users[i&1023]
	}
	return again
}

// sample is users by chance, members of the first segment and others.
func (o *Options) sample(s *segments.Set) (in, out []uint32) {
	first, _ := s.Group("lifecycle").Segment(segmentName(0))
	random := rand.New(rand.NewPCG(3, 4))
	for len(in) < o.Lookups || len(out) < o.Lookups && o.Segments > 1 {
		u := uint32(random.Uint64N(o.Users))
		if first.Contains(u) {
			in = append(in, u)
		} else {
			out = append(out, u)
		}
	}
	return in[:o.Lookups], out[:min(o.Lookups, len(out))]
}

// lookUp measures look-ups, and checks that their answers are right.
func (r *Result) lookUp(ctx context.Context, o *Options, s *segments.Set) error {
	g := s.Group("lifecycle")
	first, _ := g.Segment(segmentName(0))
	random := rand.New(rand.NewPCG(1, 2))
	any := make([]uint32, o.Lookups)
	for i := range any {
		any[i] = uint32(random.Uint64N(o.Users))
	}
	few, found := hot(any), 0
	contains := func(u uint32) {
		if first.Contains(u) {
			found++
		}
	}
	of := func(u uint32) {
		if _, ok := g.Of(u); ok {
			found++
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.SegmentHot = each(few, contains)
	r.SegmentRandom = each(any, contains)
	r.GroupHot = each(few, of)
	r.GroupRandom = each(any, of)
	runtime.ReadMemStats(&after)
	// Less than one in a thousand is the runtime's own.
	r.Allocations = float64((after.Mallocs-before.Mallocs)*1000/uint64(4*o.Lookups)) / 1000
	for _, u := range any {
		if name, _ := g.Of(u); name != segmentName(o.segmentOf(uint64(u))) {
			return fmt.Errorf("user %d was found in %q, and is in %q", u, name, segmentName(o.segmentOf(uint64(u))))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n, began := uint64(0), cpu()
	for range first.All() {
		n++
	}
	r.EnumerateNS = float64((cpu() - began).Nanoseconds()) / float64(n)
	if n != first.Count() {
		return fmt.Errorf("%d of %d users were enumerated", n, first.Count())
	}
	return nil
}
