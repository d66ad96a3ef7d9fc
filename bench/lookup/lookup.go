// Package lookup measures segments beside Bloom filters: how long many users
// take to build, how large they are as a file and in memory, and how long a
// look-up takes. `pushbench lookup` prints it.
package lookup

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/pushfleet/pushfleet/segments"
)

// Options of a measurement.
type Options struct {
	Users     uint64  // with the numbers 0 to Users-1, each in one segment by chance
	Segments  int     // of one exclusive group
	ErrorRate float64 // of the Bloom filters
	Lookups   int     // of each kind; 0 = 4,194,304
	Shuffled  bool    // the lists are in no order; else ascending
	Dir       string  // for the lists, one at a time, and the file; some 10 bytes a user of a segment
	Progress  func(string)
}

// Check refuses what cannot be measured.
func (o *Options) Check() error {
	switch {
	case o.Users < 1000 || o.Users > segments.MaxNumber+1:
		return errors.New("users: want 1,000 to 2^32")
	case o.Segments < 1 || o.Segments > 64:
		return errors.New("segments: want 1 to 64")
	case o.ErrorRate <= 0 || o.ErrorRate >= 1:
		return errors.New("error rate: want one between 0 and 1")
	}
	return nil
}

// Result is what was measured. Seconds are by the clock on the wall, with the CPU time beside them;
// look-ups are CPU time, in nanoseconds each.
type Result struct {
	Users    uint64 `json:"users"`
	Segments int    `json:"segments"`
	Shuffled bool   `json:"shuffled"`
	Cores    int    `json:"cores"`
	Go       string `json:"go"`

	ListBytes int64  `json:"list_bytes"`
	Read      Span   `json:"read"` // lists to bitmaps, one after the other
	Seal      Span   `json:"seal"` // checking and writing
	FileBytes int64  `json:"file_bytes"`
	Load      Span   `json:"load"`   // as a worker does, with all checks
	Memory    uint64 `json:"memory"` // what the heap grew by, bytes

	SegmentHot    float64 `json:"segment_hot_ns"`    // one bitmap, 1,024 numbers again and again
	SegmentRandom float64 `json:"segment_random_ns"` // one bitmap, any user
	GroupHot      float64 `json:"group_hot_ns"`
	GroupRandom   float64 `json:"group_random_ns"`
	Allocations   float64 `json:"allocations"` // of a look-up
	EnumerateNS   float64 `json:"enumerate_ns"`

	FilterBytes     uint64  `json:"filter_bytes"`      // one Bloom filter for all users
	FilterOwnBytes  uint64  `json:"filter_own_bytes"`  // one that has room for a segment as it is now only
	FiltersBytes    uint64  `json:"filters_bytes"`     // as many as segments, each for all users
	FilterHashes    uint    `json:"filter_hashes"`     // bits asked for a member
	FilterFill      Span    `json:"filter_fill"`       // one filled with its segment
	FilterHit       float64 `json:"filter_hit_ns"`     // a member, any
	FilterHitHot    float64 `json:"filter_hit_hot_ns"` // one of 1,024 members
	FilterMiss      float64 `json:"filter_miss_ns"`    // somebody else, any
	FilterMistaken  uint64  `json:"filter_mistaken"`   // users found who are in another segment
	FilterMissTries uint64  `json:"filter_miss_tries"`
}

// Span is how long something took, in seconds.
type Span struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
}

// during adds how long f takes.
func (s *Span) during(f func() error) error {
	began, used := time.Now(), cpu()
	err := f()
	s.Seconds += time.Since(began).Seconds()
	s.CPU += (cpu() - used).Seconds()
	return err
}

// segmentOf is the segment that a user is in: any, but always the same.
func (o *Options) segmentOf(user uint64) int {
	hi, _ := bits.Mul64(user*0x9e3779b97f4a7c15^0xd1b54a32d192ed03, 0xbf58476d1ce4e5b9)
	return int((hi ^ hi>>29) % uint64(o.Segments))
}

// Run measures. It needs a machine on which nothing else runs.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Lookups == 0 {
		o.Lookups = 1 << 22
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	dir, err := os.MkdirTemp(o.Dir, "pushbench-lookup-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &Result{Users: o.Users, Segments: o.Segments, Shuffled: o.Shuffled, Cores: runtime.NumCPU(), Go: runtime.Version()}
	path := filepath.Join(dir, "users.seg")
	if err := r.build(ctx, &o, path); err != nil {
		return nil, err
	}
	s, err := r.load(path)
	if err != nil {
		return nil, err
	}
	o.Progress("looking up")
	if err := r.lookUp(ctx, &o, s); err != nil {
		return nil, err
	}
	if err := r.filter(ctx, &o, s); err != nil {
		return nil, err
	}
	return r, nil
}

// build builds the segments from lists, which are written one after the other and not
// measured.
func (r *Result) build(ctx context.Context, o *Options, path string) error {
	var b segments.Builder
	if err := b.AddGroup("lifecycle", true, segments.ByRecord); err != nil {
		return err
	}
	for i := range o.Segments {
		list := filepath.Join(filepath.Dir(path), "list.txt")
		o.Progress(fmt.Sprintf("writing list %d of %d", i+1, o.Segments))
		n, err := o.writeList(ctx, list, i)
		if err != nil {
			return err
		}
		r.ListBytes += n
		f, err := os.Open(list)
		if err != nil {
			return err
		}
		o.Progress(fmt.Sprintf("building segment %d of %d", i+1, o.Segments))
		err = r.Read.during(func() error {
			_, err := b.AddList(ctx, "lifecycle", segmentName(i), segments.List{R: f})
			return err
		})
		_ = f.Close()
		if err != nil {
			return err
		}
		if err := os.Remove(list); err != nil {
			return err
		}
	}
	o.Progress("writing the file")
	return r.Seal.during(func() error {
		s, err := b.Build(1, time.Now())
		if err != nil {
			return err
		}
		m := s.Manifest()
		r.FileBytes = m.FileBytes()
		return segments.WriteFile(path, s)
	})
}

func segmentName(i int) string { return "s" + strconv.Itoa(i) }

// writeList writes the list of a segment, and returns its size.
func (o *Options) writeList(ctx context.Context, path string, segment int) (int64, error) {
	var users []uint32 // only to shuffle them
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	out, line := bufio.NewWriterSize(f, 1<<20), make([]byte, 0, 16)
	write := func(u uint64) { _, _ = out.Write(append(strconv.AppendUint(line[:0], u, 10), '\n')) }
	for u := range o.Users {
		if u%(1<<24) == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		switch {
		case o.segmentOf(u) != segment:
		case o.Shuffled:
			users = append(users, uint32(u))
		default:
			write(u)
		}
	}
	rand.New(rand.NewPCG(1, uint64(segment))).Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
	for _, u := range users {
		write(uint64(u))
	}
	if err := out.Flush(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Close()
}

// heap is what is in use after collecting.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (r *Result) load(path string) (*segments.Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var s *segments.Set
	before := heap()
	err = r.Load.during(func() (err error) {
		s, err = segments.Read(f, 16<<30)
		return err
	})
	r.Memory = heap() - before
	return s, err
}

// key is a user as the key of a filter.
func key(b []byte, user uint32) []byte { return binary.LittleEndian.AppendUint32(b[:0], user) }

// filter fills one Bloom filter that has room for all users with those of the first segment,
// as that is what it would have to hold if they all moved there.
func (r *Result) filter(ctx context.Context, o *Options, s *segments.Set) error {
	members, _ := s.Group("lifecycle").Segment(segmentName(0))
	own, _ := bloom.EstimateParameters(uint(members.Count()), o.ErrorRate)
	f := bloom.NewWithEstimates(uint(o.Users), o.ErrorRate)
	r.FilterBytes, r.FilterOwnBytes, r.FilterHashes = uint64(f.Cap())/8, uint64(own)/8, f.K()
	r.FiltersBytes = uint64(o.Segments) * r.FilterBytes
	o.Progress("filling a Bloom filter")
	b := make([]byte, 0, 4)
	err := r.FilterFill.during(func() error {
		n := 0
		for u := range members.All() {
			if n++; n%(1<<20) == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			b = key(b, u)
			f.Add(b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	in, out := o.sample(s)
	missing := uint64(0)
	r.FilterHit = each(in, func(u uint32) {
		if b = key(b, u); !f.Test(b) {
			missing++
		}
	})
	r.FilterHitHot = each(hot(in), func(u uint32) {
		if b = key(b, u); !f.Test(b) {
			missing++
		}
	})
	r.FilterMiss = each(out, func(u uint32) {
		if b = key(b, u); f.Test(b) {
			r.FilterMistaken++
		}
	})
	r.FilterMissTries = uint64(len(out))
	if missing > 0 {
		return fmt.Errorf("the Bloom filter does not have %d of its members", missing)
	}
	return nil
}
