package senders

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/limits"
)

// BenchmarkDecide decides batches of 2,000 requests of 20 senders; Redis answers at once.
func BenchmarkDecide(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = client.Close() }()
	client.AddHook(&scripts{answer: []any{int64(50), int64(0)}})
	l := under(b, client, hourly(time.Hour))
	l.fullest = new(Fullest)
	var reqs []*limits.Request
	for i := range 20 {
		reqs = slices.Concat(reqs, from(fmt.Sprint("sender-", i), 100, start))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range reqs {
			r.Paid = false
		}
		if err := l.Decide(context.Background(), reqs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(reqs)), "ns/request")
}
