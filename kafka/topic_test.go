package kafka

import (
	"log/slog"
	"slices"
	"testing"
	"time"
)

// Partitions of delayed topics share evenly what may be open. Each partition of a lane's
// own topic has a whole window, however many there are. Every partition can have at
// least one record open.
func TestHowMuchAPartitionMayHaveOpen(t *testing.T) {
	two := append(tier("push.retry.30s", 30*time.Second), tier("push.retry.5m", 5*time.Minute)...)
	for _, tt := range []struct {
		reason     string
		topics     []SourceTopic
		partitions int
		want       limits
	}{
		{"a lane's own", mainTopic("push"), 1000, limits{window: 400, batch: 100, windowBytes: 4000, batchBytes: 1000}},
		{"one that waits, alone", two[:1], 1, limits{window: 400, batch: 100, windowBytes: 4000, batchBytes: 1000}},
		{"none yet", two[:1], 0, limits{window: 400, batch: 100, windowBytes: 4000, batchBytes: 1000}},
		{"two topics of ten", two, 10, limits{window: 200, batch: 50, windowBytes: 400, batchBytes: 100}},
		{"so many that nothing is left", two, 1 << 20, limits{window: 1, batch: 1, windowBytes: 1, batchBytes: 1}},
	} {
		o := options(func(o *SourceOptions) { o.Topics = tt.topics }) // batches of 100 records or 1,000 bytes
		topic := newSource(*o, slog.New(slog.DiscardHandler)).topics[tt.topics[0].Name]
		if got := topic.limits(o, tt.partitions); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.reason, got, tt.want)
		}
	}
}

// A lane has a hold topic for each platform, and recognises its own retry, deferral
// and hold topics.
func TestHoldTopicsAreOnePerProvider(t *testing.T) {
	got := HoldTopics("push")
	if want := []string{"push.hold.apns", "push.hold.fcm"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for _, name := range append(got, "push.retry.30s", DeferTopic("push", "30s")) {
		if !waits(name, "push") || waits(name, "pus") {
			t.Errorf("%s is delayed by another lane's name, or not by its own", name)
		}
	}
	if waits("push", "push") || waits("push.dlq", "push") {
		t.Error("a topic without delay is delayed")
	}
}
