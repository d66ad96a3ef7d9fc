package status_test

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/status"
)

// BenchmarkCassandraWrite shows rows/s and this process's CPU per row on the
// server that PUSHFLEET_TEST_CASSANDRA names. Each of its writers hands over
// rows of one bucket, so that batches have just the size that is asked for.
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
			prepared := make([][]pipeline.Row, writers)
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

// processCPU is the user and system time this process has used.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
