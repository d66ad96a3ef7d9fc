package inbox_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/inbox/inboxtest"
)

func TestCassandra(t *testing.T) {
	store := inbox.New(inbox.Options{Tables: keyspacetest.Open(t)})
	if err := store.CheckTopics(t.Context()); err != nil {
		t.Fatal(err)
	}
	inboxtest.Run(t, store)
}
