//go:build linux

// Package beside measures whether one sender's messages feel another one's message to many: single transactional messages
// through a gateway until a provider accepts them, first on a fleet that does nothing else, and then beside a message to all
// subscribers of a topic. Kafka, Redis, Cassandra, pushgateway serve and fanout, pushworker and the simulator are processes of
// their own on this machine.
//
//	options.go   what is measured
//	world.go     the servers and the fleet
//	messages.go  the messages that may feel it
//	measure.go   the run
//	fanout.go    the message to many
//	result.go    the figures
package beside

import (
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// Options are what is measured. Those of Standard are what bench/README.md names.
type Options struct {
	Subscribers int           // of the topic
	SameLane    bool          // the message to many is in the lane of the others; else in the promotional one
	Rate        int           // single messages a second
	WarmUp      float64       // seconds of them that do not count
	Idle        float64       // seconds of them on an idle fleet
	Seconds     float64       // of them at most beside the message to many; 0 = until it is pushed to all
	LagTime     time.Duration // gateway.fanout.lag_time: by how much workers may be behind for more to be emitted; 0 = by gateway.fanout.lag
	FanoutRate  int           // gateway.fanout.rate: records a second of the message to many at most; 0 = no bound
	Latency     time.Duration // of the providers' answers
	Workers     int
	Partitions  int // of each lane

	Gateway, Worker string   // paths of a built pushgateway and pushworker
	Serve           []string // program and arguments that end where those of servers.Serve begin
	// Progress is told what is done, a line at a time.
	Progress func(format string, args ...any)
}

// Standard is what bench/README.md names.
func Standard() Options {
	return Options{Subscribers: 1_000_000, Rate: 20, WarmUp: 10, Idle: 30, LagTime: configs.Default().Gateway.Fanout.LagTime, Latency: 50 * time.Millisecond, Workers: 1, Partitions: 4}
}

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	switch {
	case o.Subscribers < 1 || o.Subscribers > 10_000_000:
		return fmt.Errorf("%d subscribers: want 1 to 10,000,000", o.Subscribers)
	case o.Rate < 1 || o.Rate > 1000:
		return fmt.Errorf("%d messages a second: want 1 to 1000", o.Rate)
	case !(o.WarmUp >= 0 && o.WarmUp <= 600) || !(o.Idle >= 1 && o.Idle <= 600):
		return fmt.Errorf("%v s on an idle fleet after %v s of warm-up: want 1 to 600 and 0 to 600", o.Idle, o.WarmUp)
	case !(o.Seconds >= 0 && o.Seconds <= 36_000):
		return fmt.Errorf("%v s beside a message to many: want 0 to 36,000", o.Seconds)
	case o.LagTime < 0 || o.LagTime > time.Hour:
		return fmt.Errorf("a lag time of %v: want 0s to 1h", o.LagTime)
	case o.FanoutRate < 0 || o.FanoutRate > 1_000_000:
		return fmt.Errorf("%d records a second of the message to many: want 0 to 1,000,000", o.FanoutRate)
	case o.Latency < 0 || o.Latency > 10*time.Second:
		return fmt.Errorf("providers answer after %v: want 0s to 10s", o.Latency)
	case o.Workers < 1 || o.Workers > 16:
		return fmt.Errorf("%d workers: want 1 to 16", o.Workers)
	case o.Partitions < 1 || o.Partitions > 1000:
		return fmt.Errorf("%d partitions: want 1 to 1000", o.Partitions)
	case o.Gateway == "" || o.Worker == "" || len(o.Serve) == 0:
		return errors.New("the programs are required")
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
