package status_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// BenchmarkCassandraWrite shows rows/s and this process's CPU per row, on the
// server in PUSHFLEET_TEST_CASSANDRA. Each writer hands over rows of one
// bucket, so that batches have exactly the requested size.
func BenchmarkCassandraWrite(b *testing.B) {
	host := os.Getenv("PUSHFLEET_TEST_CASSANDRA")
	if host == "" {
		b.Skip("needs PUSHFLEET_TEST_CASSANDRA=host:port")
	}
	for _, size := range []int{10, 30, 100, 200} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			opts := apply(b, status.Options{Hosts: []string{host}, Keyspace: "bench", Log: quiet})
			opts.FlushRows = size
			opts.Layouts = status.Layouts{{Slice: 24 * time.Hour, Shards: 1}}
			c := open(b, opts)
			const writers = 16
			prepared := make([][]push.Row, writers)
			for w := range prepared {
				prepared[w] = delivered(size)
			}
			perWriter := max(1, b.N/writers/size)
			b.ResetTimer()
			start, cpu := time.Now(), processCPU(b)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for range perWriter {
						if err := c.Write(b.Context(), prepared[w]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			rows := float64(perWriter * writers * size)
			b.ReportMetric(rows/time.Since(start).Seconds(), "rows/s")
			b.ReportMetric(float64((processCPU(b)-cpu).Nanoseconds())/1000/rows, "cpu-us/row")
		})
	}
}

// BenchmarkCassandraPartitions is the same with a partition for each row, as
// for ids that are not UUIDv7. Each row is then an insert of its own, and only
// the number of inserts in flight counts.
func BenchmarkCassandraPartitions(b *testing.B) {
	host := os.Getenv("PUSHFLEET_TEST_CASSANDRA")
	if host == "" {
		b.Skip("needs PUSHFLEET_TEST_CASSANDRA=host:port")
	}
	for _, concurrency := range []int{4, 32, 128} {
		b.Run(fmt.Sprint(concurrency), func(b *testing.B) {
			opts := apply(b, status.Options{Hosts: []string{host}, Keyspace: "bench", Log: quiet, Concurrency: concurrency})
			c := open(b, opts)
			rows := delivered(max(10_000, b.N))
			for i := range rows {
				rows[i].ID = uuid.NewString()
			}
			b.ResetTimer()
			start, cpu := time.Now(), processCPU(b)
			var wg sync.WaitGroup
			for group := range slices.Chunk(rows, 2000) {
				wg.Go(func() {
					if err := c.Write(b.Context(), group); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(len(rows))/time.Since(start).Seconds(), "rows/s")
			b.ReportMetric(float64((processCPU(b)-cpu).Nanoseconds())/1000/float64(len(rows)), "cpu-us/row")
		})
	}
}

// BenchmarkCassandraConfirm reads ids with a partition each, and ids that share
// their partitions.
func BenchmarkCassandraConfirm(b *testing.B) {
	host := os.Getenv("PUSHFLEET_TEST_CASSANDRA")
	if host == "" {
		b.Skip("needs PUSHFLEET_TEST_CASSANDRA=host:port")
	}
	for _, own := range []bool{false, true} {
		for _, concurrency := range []int{4, 32} {
			b.Run(fmt.Sprintf("own partitions %v/%d", own, concurrency), func(b *testing.B) {
				opts := apply(b, status.Options{Hosts: []string{host}, Keyspace: "bench", Log: quiet, Concurrency: concurrency})
				c := open(b, opts)
				rows := delivered(10_000)
				ids := make([]string, len(rows))
				for i := range rows {
					if own {
						rows[i].ID = uuid.NewString()
					}
					ids[i] = rows[i].ID
				}
				if err := c.Write(b.Context(), rows); err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				start := time.Now()
				for range b.N {
					if _, err := c.Read(b.Context(), ids); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*len(ids))/time.Since(start).Seconds(), "ids/s")
			})
		}
	}
}

// processCPU is the user and system time of this process.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
