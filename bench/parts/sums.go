package parts

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// CPU is the processor time of a profile by part, in ns. The profile is what /debug/pprof/profile answers.
func CPU(text []byte) (map[string]int64, error) {
	return read(text, "cpu", partOf)
}

// Objects are the allocations of a profile by part. The profile is what /debug/pprof/allocs answers, which is a sample: only
// the shares are good for anything.
func Objects(text []byte) (map[string]int64, error) {
	return read(text, "alloc_objects", partOf)
}

// Owners are the allocations of a profile by whose code made them: "ours", the name of a client library, or "other".
func Owners(text []byte) (map[string]int64, error) {
	return read(text, "alloc_objects", ownerOf)
}

func read(text []byte, kind string, of func([]frame) string) (map[string]int64, error) {
	p, err := profile.ParseData(text)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	return sum(p, kind, of)
}

// sum adds up one kind of value of all samples.
func sum(p *profile.Profile, kind string, of func([]frame) string) (map[string]int64, error) {
	i := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == kind })
	if i < 0 {
		return nil, fmt.Errorf("the profile has no values of type %s", kind)
	}
	sums := make(map[string]int64)
	for _, s := range p.Sample {
		if v := s.Value[i]; v != 0 {
			sums[of(stack(s))] += v
		}
	}
	return sums, nil
}

// Ours is the owner of what our own code allocates, also through the standard library.
const Ours = "ours"

// owners are those of client libraries, by how their functions' names begin.
var owners = []struct{ prefix, name string }{
	{ours, Ours},
	{"main.", Ours},
	{"github.com/twmb/franz-go", "franz-go"},
	{"github.com/gocql/gocql", "gocql"},
	{"github.com/redis/go-redis", "go-redis"},
	{"github.com/prometheus/", "prometheus"},
}

// ownerOf is whose the innermost function on a stack is that is not the standard library's.
func ownerOf(frames []frame) string {
	for _, f := range frames {
		for _, o := range owners {
			if strings.HasPrefix(f.function, o.prefix) {
				return o.name
			}
		}
	}
	return Other
}

// Less is what one sum has more than an earlier one of the same process.
func Less(sums, earlier map[string]int64) map[string]int64 {
	more := make(map[string]int64)
	for name, v := range sums {
		if d := v - earlier[name]; d > 0 {
			more[name] = d
		}
	}
	return more
}

// Spread divides a total by the shares of sums, so that the parts add up to it; nil when there are none.
func Spread(total float64, sums map[string]int64) map[string]float64 {
	var all int64
	for _, v := range sums {
		all += v
	}
	if all == 0 {
		return nil
	}
	spread := make(map[string]float64, len(sums))
	for name, v := range sums {
		spread[name] = total * float64(v) / float64(all)
	}
	return spread
}

// Merge writes several profiles of one program as one, in the form in which net/http/pprof hands them out. Of the
// program's path only the name stays: the profile may go to other machines.
func Merge(w io.Writer, texts [][]byte) error {
	profiles := make([]*profile.Profile, len(texts))
	for i, text := range texts {
		p, err := profile.ParseData(text)
		if err != nil {
			return fmt.Errorf("reading profile %d: %w", i+1, err)
		}
		profiles[i] = p
	}
	all, err := profile.Merge(profiles)
	if err != nil {
		return fmt.Errorf("merging profiles: %w", err)
	}
	for _, m := range all.Mapping {
		m.File = filepath.Base(m.File)
	}
	return all.Write(w)
}
