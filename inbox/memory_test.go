package inbox_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/inbox/inboxtest"
)

func TestMemory(t *testing.T) { inboxtest.Run(t, inbox.NewMemory(nil)) }
