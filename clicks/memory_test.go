package clicks_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/clicks/clickstest"
)

func TestMemory(t *testing.T) { clickstest.Run(t, clicks.NewMemory()) }
