package parts

import (
	"bytes"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// at are frames by their functions, the innermost first; a file stands behind @.
func at(functions ...string) (frames []frame) {
	for _, f := range functions {
		name, file, _ := strings.Cut(f, "@")
		frames = append(frames, frame{name, ours + file})
	}
	return frames
}

func TestPartOf(t *testing.T) {
	for why, tt := range map[string]struct {
		frames []frame
		want   string
	}{
		"the package": {at("runtime.mallocgc", ours+"push/decode.Message@push/decode/message.go", ours+"kafka.(*Source).admit@kafka/source.go"), Decode},
		"a file of a package": {
			at(ours + "pipeline.(*Pipeline).sendAll@pipeline/send.go"), Send},
		"another file of it": {
			at(ours + "pipeline.(*Pipeline).settle@pipeline/pipeline.go"), Settle},
		"a package below": {
			at("crypto/tls.(*Conn).Read@x", ours+"providers/h2.(*conn).read@providers/h2/conn_read.go"), Send},
		"a function in a function, and one with a type": {
			at(ours + "pipeline.eachGroup[go.shape.*uint8].func1@pipeline/repeat.go"), Settle},
		"a type of another of our packages in brackets": {
			at(ours + "shards.Each[" + ours + "users.Record]@shards/group.go"), Redis},
		"what serves many counts for its caller": {
			at("github.com/redis/go-redis/v9.(*Client).Process", ours+"shards.Grouped@shards/group.go", ours+"limits.(*Limiter).Decide@limits/limiter.go"), Limits},
		"a library that we call counts for the caller": {
			at("github.com/gocql/gocql.(*Session).executeBatch", ours+"status.(*Cassandra).Write@status/insert.go"), Status},
		"its own goroutine":        {at("internal/poll.(*FD).Read", "github.com/gocql/gocql.(*Conn).serve", "runtime.goexit"), Cassandra},
		"the Kafka client's":       {at("github.com/klauspost/compress/s2.Decode", "github.com/twmb/franz-go/pkg/kgo.(*source).fetch"), Kafka},
		"Redis with nobody to ask": {at("github.com/redis/go-redis/v9.(*Conn).x", ours+"shards.Open@shards/open.go"), Redis},
		"the garbage collector":    {at("runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker.func2", "runtime.systemstack"), GC},
		"an assist is the part's that allocates": {
			at("runtime.gcAssistAlloc", "runtime.mallocgc", ours+"status.encode@status/encode.go"), Status},
		"looking for work":     {at("runtime.futex", "runtime.findRunnable", "runtime.schedule", "runtime.mcall"), Scheduler},
		"the profile itself":   {at("compress/flate.(*Writer).Write", "runtime/pprof.profileWriter", "runtime.goexit"), Profiling},
		"the admin listener":   {at("net/http.(*conn).serve"), Other},
		"nothing that is told": {at("runtime._ExternalCode"), Other},
		"nothing":              {nil, Other},
	} {
		if got := partOf(tt.frames); got != tt.want {
			t.Errorf("%s: %s, want %s", why, got, tt.want)
		}
	}
}

func TestOwnerOf(t *testing.T) {
	for why, tt := range map[string]struct {
		frames []frame
		want   string
	}{
		"ours, through the standard library": {at("strings.Clone", ours+"kafka.x@kafka/items.go", "github.com/twmb/franz-go/pkg/kgo.y"), Ours},
		"a library that we called":           {at("bytes.growSlice", "github.com/redis/go-redis/v9.x", ours+"users.y@users/reader.go"), "go-redis"},
		"main":                               {at("fmt.Sprint", "main.main"), Ours},
		"nobody's":                           {at("runtime.malg", "runtime.newproc1"), Other},
	} {
		if got := ownerOf(tt.frames); got != tt.want {
			t.Errorf("%s: %s, want %s", why, got, tt.want)
		}
	}
}

// Every place in the table is one that is there, or a part would be empty for a name that changed.
func TestPlacesExist(t *testing.T) {
	for place := range byPlace {
		if _, err := os.Stat(filepath.Join("../..", place)); err != nil {
			t.Error(err)
		}
	}
}

// The parts add up to the total, whatever the sample says it is.
func TestSpread(t *testing.T) {
	got := Spread(20, map[string]int64{Send: 3, GC: 1})
	if !maps.Equal(got, map[string]float64{Send: 15, GC: 5}) {
		t.Errorf("got %v", got)
	}
	if got := Spread(20, map[string]int64{Send: 0}); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	sum := 0.0
	for _, v := range Spread(17.3, map[string]int64{"a": 1, "b": 2, "c": 1000003}) {
		sum += v
	}
	if math.Abs(sum-17.3) > 1e-9 {
		t.Errorf("they add up to %v", sum)
	}
}

func TestLess(t *testing.T) {
	got := Less(map[string]int64{"a": 5, "b": 2, "c": 1}, map[string]int64{"a": 2, "b": 2, "d": 9})
	if !maps.Equal(got, map[string]int64{"a": 3, "c": 1}) {
		t.Errorf("got %v", got)
	}
}

// sample is one of n values on a stack that pprof wrote.
func sample(n int64, functions ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, n}}
	for _, f := range functions {
		name, file, _ := strings.Cut(f, "@")
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name, Filename: "/src/" + file}}}})
	}
	return s
}

func TestSums(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}}, Sample: []*profile.Sample{
		sample(30, "runtime.memmove", ours+"kafka.x@kafka/items.go"), sample(12, ours+"kafka.y@kafka/source.go"), sample(5, "runtime.gcBgMarkWorker"), sample(0, "x"),
	}}
	if got, err := sum(p, "cpu", partOf); err != nil || !maps.Equal(got, map[string]int64{Poll: 42, GC: 5}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := sum(p, "alloc_objects", partOf); err == nil || !strings.Contains(err.Error(), "alloc_objects") {
		t.Errorf("objects of a CPU profile: %v", err)
	}
	p.SampleType[1].Type = "alloc_objects"
	if got, err := sum(p, "alloc_objects", ownerOf); err != nil || !maps.Equal(got, map[string]int64{Ours: 42, Other: 5}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// What the runtime writes is read: the allocations of this test have an owner.
func TestRealProfile(t *testing.T) {
	kept := make([][]byte, 20_000)
	for i := range kept {
		kept[i] = make([]byte, 1024)
	}
	defer runtime.KeepAlive(kept)
	runtime.GC() // a profile has what was allocated up to the last collection's end
	var b bytes.Buffer
	if err := pprof.Lookup("allocs").WriteTo(&b, 0); err != nil {
		t.Fatal(err)
	}
	got, err := Owners(b.Bytes())
	if err != nil || got[Ours] < 5000 {
		t.Errorf("got %v, %v, want about 20000 of ours", got, err)
	}
	if _, err := Objects([]byte("no profile")); err == nil {
		t.Error("what is no profile was read")
	}
}

// A merged profile may be checked in: it says which program it is of, and not where that was.
func TestMergeKeepsNoPath(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}},
		Mapping: []*profile.Mapping{{ID: 1, Start: 1, Limit: 2, File: "/home/ada/bin/pushworker"}}}
	var text, merged bytes.Buffer
	if err := p.Write(&text); err != nil {
		t.Fatal(err)
	}
	if err := Merge(&merged, [][]byte{text.Bytes(), text.Bytes()}); err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(merged.Bytes())
	if err != nil || len(p.Mapping) != 1 || p.Mapping[0].File != "pushworker" {
		t.Errorf("got %+v, %v", p.Mapping, err)
	}
}
