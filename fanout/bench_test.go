package fanout

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"
)

func BenchmarkID(b *testing.B) {
	out := make([]byte, 0, idBytes)
	b.ReportAllocs()
	for b.Loop() {
		out = AppendID(out[:0], aMessage, "user-0001234")
	}
}

// BenchmarkRecord is what a receiver costs before Kafka: id, record and partition.
func BenchmarkRecord(b *testing.B) {
	j := aJob(b)
	out, partition := make([]byte, 0, 1024), int32(0)
	b.ReportAllocs()
	for b.Loop() {
		out = j.appendRecord(out[:0], "user-0001234", 0, nil)
		partition += PartitionOf("user-0001234", j.Partitions)
	}
	b.ReportMetric(float64(len(out)), "bytes/record")
}

// pages is an audience whose pages are made once.
type pages struct{ behind map[string][]Member }

func pagesOf(members []Member, limit int) pages {
	p := pages{behind: make(map[string][]Member)}
	for after := ""; len(members) > 0; members = members[min(limit, len(members)):] {
		page := members[:min(limit, len(members))]
		p.behind[after] = page
		after = page[len(page)-1].User
	}
	return p
}

func (p pages) Page(_ context.Context, _ *Job, _ int, after string, _ int) ([]Member, error) {
	return p.behind[after], nil
}

// instant is a producer whose records are there at once.
type instant struct{}

func (instant) Produce(records []Record, done func(error)) {
	for range records {
		done(nil)
	}
}

// BenchmarkEmit is stage 2 with an audience and a producer that cost nothing, by receiver.
func BenchmarkEmit(b *testing.B) {
	const members = 10_000
	j := aJob(b, func(j *Job) {
		j.To.Parts = 1
		j.Expires = time.Now().Add(time.Hour)
	})
	o := Options{Audience: pagesOf(manyUsers(members), 2000), Producer: instant{}, Lag: &laneLag{}, Metrics: NewMetrics(nil), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Limits: Limits{Page: 2000, Records: 20_000, Bytes: 16 << 20, Lag: 1 << 40, Open: 1}}
	value := (&Chunk{Job: j}).encode()
	e := NewEmitter(lane, o)
	b.ReportAllocs()
	for b.Loop() {
		e.Notes = NewMemory() // the chunk has not ended
		if err := e.Do(b.Context(), &Work{Value: value}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/members, "ns/receiver")
}
