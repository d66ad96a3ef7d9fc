package kafka

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the client has fetched ends a rest if it is more than a trickle: by its records, by its
// bytes, or because a poll has room for no more of it.
func TestWhatEndsARest(t *testing.T) {
	for _, row := range []struct {
		why            string
		records, bytes int // each
		room           int
		want           time.Duration
	}{
		{"nothing", 0, 0, 10_000, time.Second},
		{"less than a twentieth of a batch and of a fetch", 499, 100, 10_000, time.Second},
		{"a twentieth of a batch, of small records", 500, 1, 10_000, 0},
		{"a twentieth of a fetch, of few records", 2, maxFetch / few / 2, 10_000, 0},
		{"as many as there is room for", 40, 1, 40, 0},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t, kfake.SeedTopics(1, "t"))
				writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext))
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close()
				some := make([]*kgo.Record, row.records)
				for i := range some {
					some[i] = &kgo.Record{Topic: "t", Value: make([]byte, row.bytes)}
				}
				if err := writer.ProduceSync(t.Context(), some...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				client, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.ConsumeTopics("t"))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				time.Sleep(time.Second) // it has fetched them
				s := newSource(SourceOptions{Topics: mainTopic("t"), Group: "g", Linger: 4 * time.Second}.withDefaults(), slog.New(slog.DiscardHandler))
				s.client = client
				began := time.Now()
				s.rest(t.Context(), time.Time{}, row.room, time.Time{})
				if took := time.Since(began); took != row.want {
					t.Errorf("it rested for %v, want %v", took, row.want)
				}
			})
		})
	}
}
