package dedupe

import (
	"context"
	"testing"

	"github.com/google/uuid"
)

// batch is 10,000 UUIDv7, a full batch.
func batch(b *testing.B) []string {
	ids := make([]string, 10_000)
	for i := range ids {
		id, err := uuid.NewV7()
		if err != nil {
			b.Fatal(err)
		}
		ids[i] = id.String()
	}
	return ids
}

func benchmarked(b *testing.B) *Filter {
	f, err := New(shared(b), DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	if err := f.DeclareNew(context.Background()); err != nil {
		b.Fatal(err)
	}
	return f
}

func BenchmarkCheck(b *testing.B) {
	f, ids := benchmarked(b), batch(b)
	maybe := make([]bool, len(ids))
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Check(context.Background(), ids, maybe); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "ids/s")
}

func BenchmarkAdd(b *testing.B) {
	f, ids := benchmarked(b), batch(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Add(context.Background(), ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "ids/s")
}
