package subscriptions_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/subscriptions/subscriptionstest"
)

func TestMemory(t *testing.T) {
	subscriptionstest.Run(t, subscriptions.MaxTopics, func(_ *testing.T, now func() time.Time) subscriptionstest.Store { return subscriptions.NewMemory(now) })
}
