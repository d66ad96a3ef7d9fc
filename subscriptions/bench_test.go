//go:build unix

package subscriptions_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// subscribers of the topics that are scanned.
const subscribers = 100_000

// BenchmarkScan reads all 100,000 subscribers of a topic from a real server: us/row is the
// time that it takes, cpu-us/row what this process spends of it.
func BenchmarkScan(b *testing.B) {
	session := keyspacetest.Open(b)
	s := subscriptions.New(subscriptions.Options{Tables: session, Concurrency: 64})
	for _, size := range []subscriptions.Size{subscriptions.Small, subscriptions.Medium} {
		topic, _, err := s.Create(b.Context(), &subscriptions.Topic{Name: "scan-" + size.String(), App: "shop", Service: "promotional", Priority: push.Medium,
			Security: subscriptions.Open, Modes: subscriptions.ModesOf(subscriptions.Push), Size: size})
		if err != nil {
			b.Fatal(err)
		}
		fill(b, session, &topic)
		b.Run(size.String()+"/pages of 2000", func(b *testing.B) {
			scan(b, func() (rows int) {
				var at subscriptions.Position
				for end := false; !end; {
					list, next, ended, err := s.Run(b.Context(), topic.Name, topic.Layout, 0, subscriptions.Slices-1, at, 2000)
					if err != nil {
						b.Fatal(err)
					}
					rows, at, end = rows+len(list), next, ended
				}
				return rows
			})
		})
		b.Run(size.String()+"/slice by slice", func(b *testing.B) {
			scan(b, func() (rows int) {
				for slice := range subscriptions.Slices {
					list, err := s.Page(b.Context(), topic.Name, topic.Layout, slice, "", 2000)
					if err != nil {
						b.Fatal(err)
					}
					rows += len(list)
				}
				return rows
			})
		})
	}
}

func scan(b *testing.B, all func() int) {
	rows, before, start := 0, processTime(b), time.Now()
	for b.Loop() {
		n := all()
		if n != subscribers {
			b.Fatalf("%d rows", n)
		}
		rows += n
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(rows), "us/row")
	b.ReportMetric(float64((processTime(b)-before).Microseconds())/float64(rows), "cpu-us/row")
	b.ReportMetric(0, "ns/op")
}

// fill writes the subscribers as Apply does, without its reads.
func fill(b *testing.B, session subscriptions.Tables, t *subscriptions.Topic) {
	const insert = "INSERT INTO subscriptions (topic, layout, bucket, slice, user, mode, priority, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	const atOnce = 64
	failed := make(chan error, atOnce) // one of each; never closed
	for part := range atOnce {
		go func() {
			for i := part; i < subscribers; i += atOnce {
				user := fmt.Sprintf("user-%08d", i)
				slice := subscriptions.Slice(user)
				if err := session.Exec(b.Context(), insert, t.Name, t.Layout.Number, int16(t.Layout.Bucket(slice)), int16(slice), user, int8(1), int8(0), time.UnixMilli(1_764_000_000_000)); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range atOnce {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
}

// processTime is the CPU time of this process.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
