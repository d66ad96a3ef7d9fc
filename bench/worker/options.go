//go:build linux

// Package worker measures one worker, from Kafka to the committed offset, with real servers or embedded ones that share
// this machine with it: what it does in a second, what of the processor each process takes for a notification, into which
// parts the worker's share goes, and how long a one-time password takes beside a backlog.
//
//	options.go    what is measured
//	world.go      the servers and the fleet
//	backlog.go    what is produced, and check.go whether it all arrived
//	passwords.go  the one-time passwords
//	workers.go    the workers that are measured as one
//	measure.go    the run
//	profiles.go   the worker's profiles
//	result.go     the figures
//	plot.go       rate and latency over time
package worker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// Options are what is measured. Those of Standard are the standard scenario, which bench/README.md names.
type Options struct {
	Notifications int           // that count, copies included; the backlog is produced before
	WarmUp        int           // notifications before those
	CoolDown      int           // notifications after those, so that the worker has more to do when they are done
	Devices       int           // of each user; 0 = one to three
	Duplicates    float64       // share of the backlog that is a second copy of an id, 0 to 0.5
	Minted        int           // ids a second: how far apart the backlog's were minted
	Limits        int           // rules of how much a user may get, none of which anybody reaches
	Latency       time.Duration // of the providers' answers
	CommitLog     string        // Cassandra's: Periodic or Batch; empty = Periodic
	PackedRows    bool          // rows are written in one column
	Confirms      float64       // share of the notifications whose status is read before they are sent, 0 to 1
	Unloaded      time.Duration // for which one-time passwords are sent before the backlog is there
	Workers       int           // that share the partitions, and are measured as one
	Partitions    int           // of each lane
	// Rate is how many notifications are produced a second while the workers run: how long each takes is measured then, and
	// not what they can do at most. 0 = all are there before.
	Rate int
	// Quota is how many pushes a second Google takes of the project, and the rate that the fleet has for it; 0 = as many as
	// come.
	Quota    int
	Embedded bool // Kafka and Redis of deploy/embedded, rows in the worker's memory

	Worker string   // path of a built pushworker; not with Embedded
	Serve  []string // program and arguments that end where those of servers.Serve begin
	Plot   string   // path of the SVG file to write; empty = none
	// Profiles is a directory for the worker's profiles; empty = none are kept.
	Profiles string
	// Progress is told what is done, a line at a time.
	Progress func(format string, args ...any)

	settings func(*configs.Config) // set by tests: changes the worker's
}

// Standard is the standard scenario.
func Standard() Options {
	return Options{Notifications: 1_000_000, WarmUp: 200_000, CoolDown: 160_000, Devices: 1, Duplicates: 0.01, Minted: 20_000, Limits: 3,
		CommitLog: Periodic, PackedRows: true, Unloaded: 15 * time.Second, Workers: 1, Partitions: 4}
}

// When Cassandra acknowledges a write.
const (
	Periodic = "periodic" // before it is on disk, which is synced every 10 s
	Batch    = "batch"    // after
)

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	switch {
	case o.Notifications < 10_000 || o.WarmUp < 0 || o.CoolDown < 0:
		return errors.New("at least 10,000 notifications are needed")
	case o.CommitLog != "" && o.CommitLog != Periodic && o.CommitLog != Batch:
		return fmt.Errorf("commit log %q: want %s or %s", o.CommitLog, Periodic, Batch)
	case o.Embedded && cmp.Or(o.CommitLog, Periodic) != Periodic:
		return fmt.Errorf("commit log %s: there is no Cassandra among the embedded servers", o.CommitLog)
	case o.Limits < 0 || o.Limits > maxLimits:
		return fmt.Errorf("%d limit rules: want 0 to %d", o.Limits, maxLimits)
	case !(o.Confirms >= 0 && o.Confirms <= 1):
		return fmt.Errorf("%v of the notifications confirmed: want 0 to 1", o.Confirms)
	case !(o.Duplicates >= 0 && o.Duplicates <= 0.5):
		return fmt.Errorf("%v of the backlog duplicates: want 0 to 0.5", o.Duplicates)
	case o.Minted < 1:
		return fmt.Errorf("%d ids minted a second: want 1 or more", o.Minted)
	case o.Unloaded < time.Second || o.Unloaded > time.Hour:
		return fmt.Errorf("one-time passwords for %v before the backlog: want 1s to 1h", o.Unloaded)
	case o.Workers < 1 || o.Workers > 16:
		return fmt.Errorf("%d workers: want 1 to 16", o.Workers)
	case o.Embedded && o.Workers > 1:
		return errors.New("several workers need real servers: with embedded ones a worker has the rows in its memory")
	case o.Partitions < 1 || o.Partitions > 1000:
		return fmt.Errorf("%d partitions: want 1 to 1000", o.Partitions)
	case o.Rate < 0:
		return fmt.Errorf("%d notifications a second: want 0 or more", o.Rate)
	case o.Rate > 0 && o.Confirms > 0:
		return errors.New("with a rate, confirms are not possible: what is produced is in no filter before")
	case o.Quota < 0:
		return fmt.Errorf("a quota of %d pushes a second: want 0 or more", o.Quota)
	case o.Devices < 0:
		return fmt.Errorf("%d devices a user: want 0 or more", o.Devices)
	case len(o.Serve) == 0 || !o.Embedded && o.Worker == "":
		return errors.New("the programs are required")
	}
	return nil
}

// total is how many records the backlog has.
func (o *Options) total() int { return o.WarmUp + o.Notifications + o.CoolDown }
