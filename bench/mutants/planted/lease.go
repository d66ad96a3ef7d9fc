//go:build planted

package planted

import (
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
)

// ignoreLease sends on when the coordinator has not been heard of for a
// session, until it says itself that the partitions are gone.
func ignoreLease(s *soil) {
	source := s.Source.(*kafka.Source)
	s.Source = plantedSource{Source: s.Source, polled: func(*pipeline.Batch) {
		source.ExtendLease(time.Now().Add(time.Hour)) // anew after each time that it was ended
	}}
}

// leaseByClock renews the lease because time passes and the process runs, and
// not because the coordinator has answered.
func leaseByClock(s *soil) {
	const session = time.Second
	source := s.Source.(*kafka.Source)
	go func() { // ends with the process
		for range time.Tick(session / 10) {
			source.ExtendLease(time.Now().Add(session))
		}
	}()
}
