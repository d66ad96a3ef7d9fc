package status_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/status/statustest"
)

func newMemory(t testing.TB) *status.Memory {
	t.Helper()
	m, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemory(t *testing.T) { statustest.Run(t, newMemory(t)) }

func TestMemoryRefusesBadLayouts(t *testing.T) {
	if _, err := status.NewMemory(nil); err == nil {
		t.Error("a store without layouts")
	}
}

func TestMemoryAll(t *testing.T) {
	m := newMemory(t)
	want := make(map[string]int)
	for i := range 1000 {
		id := uuid.Must(uuid.NewV7()).String()
		want[id] = 1 + i%3
		for d := range want[id] {
			row := push.Row{ID: id, Device: fmt.Sprint(d), State: push.StateDelivered, At: time.Now()}
			if err := m.Write(t.Context(), []push.Row{row}); err != nil {
				t.Fatal(err)
			}
		}
	}
	total := 0
	for id, rows := range m.All() {
		if len(rows) != want[id] {
			t.Errorf("%s has %d rows, want %d", id, len(rows), want[id])
		}
		delete(want, id)
		total += len(rows)
		if _, err := m.Read(t.Context(), []string{id}); err != nil { // the loop body may call the store
			t.Fatal(err)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d notifications were not seen", len(want))
	}
	if n, rows := m.Len(); n != 1000 || rows != total {
		t.Errorf("Len = %d, %d, want 1000, %d", n, rows, total)
	}
	for range m.All() {
		break // the loop may stop early
	}
}

// BenchmarkMemory shows what a row costs to write, and how many bytes it takes.
func BenchmarkMemory(b *testing.B) {
	m := newMemory(b)
	rows := make([]push.Row, 100)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := 0
	for b.Loop() {
		for i := range rows {
			rows[i] = push.Row{ID: uuid.Must(uuid.NewV7()).String(), Device: "abcdefghijklmnop", State: push.StateDelivered, At: time.Now(), ProviderID: "f2b1a1c0-0000-4000-8000-000000000000", UserHash: uint64(n)}
		}
		if err := m.Write(b.Context(), rows); err != nil {
			b.Fatal(err)
		}
		n += len(rows)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "bytes/row")
	runtime.KeepAlive(m)
}
