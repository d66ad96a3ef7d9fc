package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// BenchmarkTurns is what the line costs a delivery: batches of 10,000 of four partitions
// are put, and taken in groups.
func BenchmarkTurns(b *testing.B) {
	const records, partitions = 10_000, 4
	for _, c := range []struct {
		name     string
		earliest bool
		expires  func(i int) time.Duration // 0 = never
	}{
		{"as it came", false, spread},
		{"earliest first/never", true, func(int) time.Duration { return 0 }},
		{"earliest first/together", true, func(int) time.Duration { return time.Hour }},
		{"earliest first/spread", true, spread},
	} {
		b.Run(c.name, func(b *testing.B) {
			var all [partitions][]*Delivery
			now := time.Now()
			for p := range all {
				all[p] = waitingFor(fmt.Sprint("p", p), records)
				for i, d := range all[p] {
					d.Item.Offset = int64(i)
					d.Item.Priority = push.Low
					if after := c.expires(i); after > 0 {
						d.Item.ExpiresAt = now.Add(after)
					}
				}
			}
			l := &line{route: &route{}, waiting: newTurns(c.earliest)}
			group := make([]*Delivery, 0, dispatchGroup)
			b.ReportAllocs()
			for b.Loop() {
				for _, ds := range all {
					l.waiting.put(l, ds)
				}
				for taken := 0; taken < partitions*records; {
					group = l.waiting.next(group, dispatchGroup)
					group = l.waiting.take(group, dispatchGroup)
					taken += len(group)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(partitions*records), "ns/delivery")
		})
	}
}

// spread are expiries within an hour, in no order.
func spread(i int) time.Duration { return time.Minute + time.Duration(i*7919%3600)*time.Second }
