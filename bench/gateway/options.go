//go:build linux

// Package gateway measures one `pushgateway serve` with a real Kafka, Redis and Cassandra that share this machine with it:
// what it acknowledges in a second, of single messages and of batches, how long that takes, what it answers about receipts,
// and what all that takes of the processor and of memory. Callers are a process of their own.
//
//	options.go    what is measured
//	world.go      servers, topics and the gateway
//	fanout.go     a message to all subscribers of a topic
//	caller.go     the callers' process, requests.go what it asks, answers.go what it is answered
//	measure.go    the run
//	account.go    what everything had used at one moment
//	result.go     the figures, and what has to be reached
package gateway

import (
	"errors"
	"fmt"
	"time"
)

// Options are what is measured. Those of Standard are what bench/README.md records.
type Options struct {
	Seconds     float64 // of each round
	WarmUp      float64 // seconds before each that do not count
	Rounds      int     // of a measurement at most: the last one counts, and it is the first in which Java hardly compiles any more
	Connections int     // of callers who send single messages
	Batches     int     // connections of callers who send batches, which have one each under way
	Lines       int     // of a batch
	Queries     int     // connections of callers who ask for receipts
	Receipts    int     // that are asked for in turn
	Each        int     // receipts of a query
	Idle        int     // connections that do nothing
	Partitions  int     // of each lane
	Subscribers int     // of a topic that gets a message; 0 = that is not measured
	OnlyFanout  bool    // nothing else is measured
	// Embedded has the Kafka of deploy/embedded in a process of its own, and no Cassandra: then nobody asks for receipts, and there are no fan-outs.
	Embedded bool

	Gateway string   // path of a built pushgateway
	Caller  []string // program and arguments of a process that runs Call
	Serve   []string // those that end where those of servers.Serve begin; needed with Embedded only
	// Profiles is a folder for a CPU profile of the gateway in each measurement; empty = none.
	Profiles string
	// Progress is told what is done, a line at a time.
	Progress func(format string, args ...any)
}

// Standard is what bench/README.md records.
func Standard() Options {
	return Options{Seconds: 10, WarmUp: 3, Rounds: 30, Connections: 256, Batches: 8, Lines: 500, Queries: 4, Receipts: 50_000, Each: 1000, Idle: 10_000, Partitions: 4, Subscribers: 1_000_000}
}

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	switch {
	case !(o.Seconds >= 0.1 && o.Seconds <= 600) || !(o.WarmUp >= 0 && o.WarmUp <= 600):
		return fmt.Errorf("%v s after %v s of warm-up: want 0.1 to 600 and 0 to 600", o.Seconds, o.WarmUp)
	case o.Rounds < 1 || o.Rounds > 100:
		return fmt.Errorf("%d rounds: want 1 to 100", o.Rounds)
	case o.Connections < 1 || o.Connections > 4000:
		return fmt.Errorf("%d connections: want 1 to 4000, which is how many requests a gateway has under way", o.Connections)
	case o.Batches < 1 || o.Batches > 16 || o.Queries < 1 || o.Queries > 16:
		return fmt.Errorf("%d connections for batches and %d for queries: want 1 to 16, which is how many a gateway has under way", o.Batches, o.Queries)
	case o.Lines < 1 || o.Lines > 1000 || o.Each < 1 || o.Each > 1000:
		return fmt.Errorf("%d lines of a batch and %d receipts of a query: want 1 to 1000", o.Lines, o.Each)
	case o.Receipts < o.Each || o.Receipts > 1_000_000:
		return fmt.Errorf("%d receipts: want %d, which is a query, to 1,000,000", o.Receipts, o.Each)
	case o.Idle < 0 || o.Idle > 10_000:
		return fmt.Errorf("%d idle connections: want 0 to 10,000, which is how many a gateway has open", o.Idle)
	case o.Partitions < 1 || o.Partitions > 1000:
		return fmt.Errorf("%d partitions: want 1 to 1000", o.Partitions)
	case o.Subscribers < 0 || o.Subscribers > 10_000_000:
		return fmt.Errorf("%d subscribers: want 0 to 10,000,000", o.Subscribers)
	case o.OnlyFanout && (o.Subscribers == 0 || o.Embedded):
		return errors.New("only a fan-out: that needs subscribers, and real servers")
	case o.Gateway == "" || len(o.Caller) == 0 || o.Embedded && len(o.Serve) == 0:
		return errors.New("the programs are required")
	}
	return nil
}

// young is on how many cores Java compiles at least in a server that is not yet what it will be
// in an hour.
const young = 0.1

// again reports whether a round does not count, as a server was young.
func (o *Options) again(round int, compiling float64) bool {
	if compiling < young || round >= o.Rounds {
		return false
	}
	o.Progress("  once more, as Java compiled on %.2f cores", compiling)
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
