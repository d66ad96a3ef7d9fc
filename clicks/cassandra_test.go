package clicks_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/clicks/clickstest"
	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
)

func TestCassandra(t *testing.T) {
	clickstest.Run(t, clicks.New(clicks.Options{Tables: keyspacetest.Open(t), Kept: clicks.MostKept}))
}
