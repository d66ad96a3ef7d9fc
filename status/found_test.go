package status

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
)

// Each single reason to refuse a table; everything else in it is correct.
func TestWhatIsWrongWithATable(t *testing.T) {
	good := func() *foundSchema {
		return &foundSchema{replication: "{}", columns: maps.Clone(columnTypes), keys: slices.Clone(keyColumns), details: slices.Clone(detailsFields), ttl: 48 * time.Hour}
	}
	for _, row := range []struct {
		why  string
		edit func(*foundSchema)
		want string // "" = nothing
	}{
		{"as made", func(*foundSchema) {}, ""},
		{"a column more", func(f *foundSchema) { f.columns["note"] = "text" }, ""},
		{"a longer life", func(f *foundSchema) { f.ttl *= 2 }, ""},
		{"for ever", func(f *foundSchema) { f.ttl = 0 }, ""},
		{"a second less", func(f *foundSchema) { f.ttl -= time.Second }, "default_time_to_live is 172799 seconds, want at least 172800"},
		{"no keyspace", func(f *foundSchema) { f.replication = "" }, "keyspace k does not exist"},
		{"no table", func(f *foundSchema) { clear(f.columns) }, "table notification_status does not exist"},
		{"a column less", func(f *foundSchema) { delete(f.columns, "state") }, "column state"},
		{"another type", func(f *foundSchema) { f.columns["state"] = "blob" }, "column state is blob"},
		{"no type", func(f *foundSchema) { f.details = nil }, "type notification_details does not exist"},
		{"a type with a field more", func(f *foundSchema) { f.details = append(f.details, "cost int") }, ""},
		{"a type with a field less", func(f *foundSchema) { f.details = f.details[:5] }, "type notification_details is (at timestamp, "},
		{"a type in another order", func(f *foundSchema) { slices.Reverse(f.details) }, "type notification_details is (place bigint, "},
		{"a column of another type's", func(f *foundSchema) { f.columns["details"] = "frozen<details>" }, "column details is frozen<details>, want frozen<notification_details>"},
		{"another key", func(f *foundSchema) { slices.Reverse(f.keys) }, "primary key"},
	} {
		f := good()
		row.edit(f)
		got := strings.Join(f.wrong(Options{Keyspace: "k", TTL: 48 * time.Hour}), "; ")
		if (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}

// Rows of a notification have Cassandra's clustering order: device, step,
// state.
func TestRowsAreSorted(t *testing.T) {
	var want []push.Row
	for _, device := range []string{"", "a", "b"} {
		for step := range int16(4) {
			for state := range push.State(3) {
				want = append(want, push.Row{Device: device, Step: step, State: state})
			}
		}
	}
	for range 20 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		if sortRows(got); !slices.Equal(got, want) {
			t.Fatalf("sorted as %v", got)
		}
	}
}

func TestReplicationIsWrittenClassFirst(t *testing.T) {
	for range 20 { // the order of a map varies
		got, err := SchemaOptions{Replication: map[string]string{"dc1": "3", "class": "NetworkTopologyStrategy", "a": "1", "zz": "2"}}.replication()
		if want := "{'class': 'NetworkTopologyStrategy', 'a': '1', 'dc1': '3', 'zz': '2'}"; err != nil || got != want {
			t.Fatalf("%s, %v; want %s", got, err, want)
		}
	}
}

func TestPortsOfHosts(t *testing.T) {
	for host, want := range map[string]int{"h": 9042, "h:1": 1, "h:65535": 65535, "h:0": 0, "h:65536": 0, "h:-1": 0, "h:x": 0} {
		port, err := (&Options{Hosts: []string{host}}).port()
		if port != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v", host, port, err)
		}
	}
}

// The error of an attempt that timed out says how long it waited; any other
// error is returned as it is.
func TestNoAnswerSaysHowLong(t *testing.T) {
	err := noAnswer(context.DeadlineExceeded, 3*time.Second)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "3s") {
		t.Errorf("says %v", err)
	}
	for _, other := range []error{nil, context.Canceled, gocql.ErrNoConnections} {
		if got := noAnswer(other, time.Second); got != other {
			t.Errorf("%v became %v", other, got)
		}
	}
}

// If a metrics registry already has one of the metrics, none of ours stays in
// it.
func TestMetricsThatCollideLeaveNothing(t *testing.T) {
	m := newMetrics()
	for i := range m.all {
		reg := prometheus.NewRegistry()
		if err := reg.Register(m.all[i]); err != nil {
			t.Fatal(err)
		}
		if err := newMetrics().register(reg); err == nil {
			t.Fatalf("metric %d was registered twice", i)
		}
		reg.Unregister(m.all[i])
		if err := newMetrics().register(reg); err != nil {
			t.Errorf("after a collision at metric %d something was left: %v", i, err)
		}
	}
}
