package audiences_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/audiences/audiencestest"
)

func TestMemory(t *testing.T) {
	clock := audiencestest.NewClock()
	audiencestest.Run(t, audiences.NewMemory(clock.Now), clock)
}
