// Package parts says which part of the worker a profile's samples belong to: what of its processor time, and what of its
// allocations, goes into polling, into the limits, into sending. It reads what net/http/pprof hands out.
package parts

import (
	"path"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// The parts. A sample belongs to the innermost function of ours on its stack; one without any to what its goroutine is
// there for: a client library's own, the garbage collector, the scheduler.
const (
	Poll      = "poll"      // package kafka: fetches taken apart into batches, offsets committed, records handed over
	Decode    = "decode"    // a record's JSON
	Dedupe    = "dedupe"    // the filter, asked and told
	Users     = "users"     // records of users read; preferences, quiet hours, devices
	Limits    = "limits"    // limits decided and written back; segments
	Collapse  = "collapse"  // the newest notification per collapse key
	Send      = "send"      // from a batch with devices to requests, and answers read: windows, gates, HTTP/2, TLS
	Settle    = "settle"    // what answers mean, rows made, items ended, offsets tracked
	Status    = "status"    // rows encoded and written
	Events    = "events"    // push.events
	Metrics   = "metrics"   // counters and histograms, where no other function of ours is below
	Kafka     = "kafka"     // franz-go's own goroutines: reading, decompressing, producing
	Redis     = "redis"     // go-redis' own, and the connection to it
	Cassandra = "cassandra" // gocql's own
	GC        = "gc"        // the garbage collector's own goroutines
	Scheduler = "scheduler" // of goroutines, and threads that look for work
	Profiling = "profiling" // this measurement itself
	Other     = "other"
)

// ours is how the names of our packages begin.
const ours = "github.com/pushfleet/pushfleet/"

// byPlace are the parts of our code, by package or by file below the module; the longest that fits counts. What is not
// here (push, shards, wiring, worker …) serves many parts: then the function that called it counts.
var byPlace = map[string]string{
	"kafka":                 Poll,
	"push/decode":           Decode,
	"dedupe":                Dedupe,
	"stages/dedupe.go":      Dedupe,
	"stages/accept.go":      Settle,
	"users":                 Users,
	"quiet":                 Users,
	"stages/preferences.go": Users,
	"stages/devices.go":     Users,
	"stages/recheck.go":     Users,
	"limits":                Limits,
	"segments":              Limits,
	"stages/limits.go":      Limits,
	"stages/limitsaway.go":  Limits,
	"stages/rules.go":       Limits,
	"collapse":              Collapse,
	"stages/superseded.go":  Collapse,
	"gates":                 Send,
	"pauses":                Send,
	"providers":             Send,
	"pipeline/send.go":      Send,
	"pipeline/route.go":     Send,
	"pipeline/queue.go":     Send,
	"pipeline/confirm.go":   Send,
	"pipeline/drain.go":     Send,
	"pipeline/once.go":      Send,
	"pipeline":              Settle,
	"pipeline/metrics.go":   Metrics,
	"status":                Status,
	"events":                Events,
	"watch":                 Other,
	"worker/admin.go":       Other,
}

// byLibrary are the parts of stacks without a function of ours that has one, by how the name of any function on them
// begins. The first that fits counts.
var byLibrary = []struct{ prefix, part string }{
	{"runtime/pprof.", Profiling},
	{"net/http/pprof.", Profiling},
	{"runtime.gcBgMarkWorker", GC},
	{"runtime.gcDrain", GC},
	{"runtime.gcAssist", GC},
	{"runtime.gcStart", GC},
	{"runtime.gcMark", GC},
	{"runtime.(*gcWork)", GC},
	{"runtime.bgsweep", GC},
	{"runtime.bgscavenge", GC},
	{"runtime.gcenable", GC},
	{"runtime.runfinq", GC},
	{"github.com/twmb/franz-go", Kafka},
	{"github.com/gocql/gocql", Cassandra},
	{"github.com/redis/go-redis", Redis},
	{"github.com/prometheus/", Metrics},
	{"net/http.", Other},
	{"runtime.mcall", Scheduler},
	{"runtime.schedule", Scheduler},
	{"runtime.findRunnable", Scheduler},
	{"runtime.mstart", Scheduler},
	{"runtime.sysmon", Scheduler},
	{"runtime.goexit0", Scheduler},
	{"runtime.gosched_m", Scheduler},
	{"runtime.newproc", Scheduler},
}

// frame is one function on a stack.
type frame struct{ function, file string }

// stack are the functions of a sample, the innermost first.
func stack(s *profile.Sample) []frame {
	var frames []frame
	for _, l := range s.Location {
		for _, line := range l.Line { // the innermost of those that were inlined first
			if f := line.Function; f != nil {
				frames = append(frames, frame{f.Name, f.Filename})
			}
		}
	}
	return frames
}

// partOf is the part that a stack belongs to.
func partOf(frames []frame) string {
	for _, f := range frames {
		if part := f.part(); part != "" {
			return part
		}
	}
	for _, l := range byLibrary {
		if slices.ContainsFunc(frames, func(f frame) bool { return strings.HasPrefix(f.function, l.prefix) }) {
			return l.part
		}
	}
	if slices.ContainsFunc(frames, func(f frame) bool { return strings.HasPrefix(f.function, ours+"shards.") }) {
		return Redis
	}
	return Other
}

// part is that of a function of ours; empty when it is none, or serves many.
func (f *frame) part() string {
	folder, is := f.folder()
	if !is {
		return ""
	}
	if part := byPlace[folder+"/"+path.Base(f.file)]; part != "" {
		return part
	}
	for ; folder != "."; folder = path.Dir(folder) {
		if part := byPlace[folder]; part != "" {
			return part
		}
	}
	return ""
}

// folder is that of a function of ours, below the module.
func (f *frame) folder() (folder string, is bool) {
	name, is := strings.CutPrefix(f.function, ours)
	if !is {
		return "", false
	}
	slash := strings.LastIndexByte(name, '/') + 1
	if paren := strings.IndexByte(name, '('); paren >= 0 && slash > paren { // a type of another package, in brackets
		slash = strings.LastIndexByte(name[:paren], '/') + 1
	}
	last, _, _ := strings.Cut(name[slash:], ".")
	return name[:slash] + last, true
}
