package limits

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// timed are Tables that note how long each query takes.
type timed struct {
	Tables
	mu   sync.Mutex
	took map[string][]time.Duration // by the first word of the statement
}

func (m *timed) note(statement string, begun time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took[statement[:6]] = append(m.took[statement[:6]], time.Since(begun))
}

// BenchmarkDeviceLog measures batches of decisions on a real Cassandra, about devices
// that had 15 notifications of 15 types already: such that are refused, which is a read
// each, and such that are allowed, which is a read and a write. The percentiles are of
// single queries.
func BenchmarkDeviceLog(b *testing.B) {
	session := cassandra(b)
	const devices, types = 4000, 15
	now := time.Now()
	batch := func(l *Limiter, id string, kind, n int) {
		reqs := make([]*Request, n)
		for i := range reqs {
			reqs[i] = &Request{Owner: fmt.Sprint("u", i), ID: id, Type: fmt.Sprint("type-", kind), Priority: 3, At: now, Devices: []Device{{Hash: 1}}}
		}
		if err := l.Decide(b.Context(), reqs); err != nil {
			b.Fatal(err)
		}
	}
	for kind := range types {
		batch(logging(b, nil, session, deviceDay(1)), fmt.Sprint("before-", kind), kind, devices)
	}
	for _, places := range []int{1, 8, 32, 128} {
		for _, most := range []int{1, 1000} { // of a type: one is there
			m := &timed{Tables: session, took: map[string][]time.Duration{}}
			l, err := New(nil, []Rule{deviceDay(most)}, WriteVersion2(), CountDevicesIn(NewDeviceLog(m, places)))
			if err != nil {
				b.Fatal(err)
			}
			name := "refused"
			if most > 1 {
				name = "allowed"
			}
			b.Run(fmt.Sprintf("%s/in_flight=%d", name, places), func(b *testing.B) {
				clear(m.took)
				for done := 0; done < b.N; done += devices {
					batch(l, fmt.Sprint(places, " ", b.N, " ", done), done/devices%types, min(devices, b.N-done))
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
				for word, took := range m.took {
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, word+"_p50_ms")
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, word+"_p99_ms")
				}
			})
		}
	}
}

func (m *timed) Exec(ctx context.Context, statement string, values ...any) error {
	defer m.note(statement, time.Now())
	return m.Tables.Exec(ctx, statement, values...)
}

func (m *timed) Query(ctx context.Context, statement string, values, dest []any, row func()) error {
	defer m.note(statement, time.Now())
	return m.Tables.Query(ctx, statement, values, dest, row)
}
