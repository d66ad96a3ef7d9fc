package wiring

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

// A long read says how far it is, and reads on where the one before ended.
func TestUsersHistoryTellsItsProgress(t *testing.T) {
	server, err := embedded.StartKafka(embedded.Topic{Name: kafka.UsersTopic, Partitions: 1, Compacted: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	o := kafka.Options{Brokers: server.Addrs()}
	log, err := NewUsersLog(o)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h, err := NewUsersHistory(o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var told []string
	h.Progress = func(records int, share float64) { told = append(told, fmt.Sprintf("%d %.2f", records, share)) }
	var from int64
	read := func(more int) (n int) {
		t.Helper()
		var records []users.Record
		for i := range more {
			records = append(records, users.Record{Key: fmt.Sprintf("u%d/prefs", i), Value: []byte("{}")})
		}
		if err := log.Append(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		_, from, err = h.Read(t.Context(), "u1", from, func(users.FetchedRecord) error { n++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := read(2500); n != 2500 {
		t.Errorf("%d records", n)
	}
	if n := read(1000); n != 1000 {
		t.Errorf("%d more records", n)
	}
	if n := read(999); n != 999 {
		t.Errorf("%d more records", n)
	}
	if want := []string{"1000 0.40", "2000 0.80", "1000 1.00"}; !slices.Equal(told, want) {
		t.Errorf("it told %q, want %q", told, want)
	}
}
