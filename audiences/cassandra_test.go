package audiences_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/audiences/audiencestest"
	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
)

func TestCassandra(t *testing.T) {
	clock := audiencestest.NewClock()
	audiencestest.Run(t, audiences.New(audiences.Options{Tables: keyspacetest.Open(t), Now: clock.Now}), clock)
}
