package status_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// minted is a new UUIDv7 with this time.
func minted(at time.Time) string {
	u := uuid.New()
	for i := range 6 {
		u[i] = byte(at.UnixMilli() >> (8 * (5 - i)))
	}
	u[6] = u[6]&0xf | 0x70
	return u.String()
}

// oneSecond are notifications of one user, all minted within one second.
func oneSecond(n int) []push.Row {
	second := time.Now().Truncate(10 * time.Second) // far from the end of its slice
	rows := delivered(n)
	for i := range rows {
		rows[i].ID, rows[i].UserHash = minted(second.Add(time.Duration(i%1000)*time.Millisecond)), 1<<63+5
	}
	return rows
}

// onePartition keeps all ids of a second in one partition.
func onePartition(opts status.Options) status.Options {
	opts.Layouts = status.Layouts{{Slice: 10 * time.Second, Shards: 1}}
	return opts
}

func put(t *testing.T, c *status.Cassandra, rows []push.Row) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	for some := range slices.Chunk(rows, 5000) {
		if err := c.Write(ctx, some); err != nil {
			t.Fatal(err)
		}
	}
}

func get(t *testing.T, c *status.Cassandra, ids []string) [][]push.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	found, err := c.Read(ctx, ids)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// await polls until so is true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > liveness {
			t.Fatalf("not within %v: %s", liveness, what)
		}
	}
}

// TestHotPartitions: neither a busy user nor a burst of ids makes a partition
// that is too large for Cassandra. All ids of a second are spread evenly over
// the shards, and a partition at the rate that its layout is meant for stays
// below 100 MiB, above which Cassandra's documentation advises to split.
func TestHotPartitions(t *testing.T) {
	t.Run("a second of one user is spread over the shards", func(t *testing.T) {
		opts := apply(t, shared(t))
		rows := oneSecond(8000)
		put(t, open(t, opts), rows)
		shards := status.DefaultLayouts()[0].Shards
		var partitions []int
		each(t, opts, "SELECT count(*) FROM notification_status GROUP BY bucket", func(scan func(...any) bool) {
			for n := 0; scan(&n); {
				partitions = append(partitions, n)
			}
		})
		if mean := len(rows) / shards; len(partitions) != shards || slices.Max(partitions) > mean*5/4 {
			t.Errorf("%d rows are in %d partitions, the largest of %d; want %d of about %d", len(rows), len(partitions), slices.Max(partitions), shards, mean)
		}
	})
	t.Run("a full one is small", func(t *testing.T) {
		opts := onePartition(apply(t, shared(t)))
		rows := oneSecond(25_000)
		put(t, open(t, opts), rows)
		// Sizes are only known of files, so Cassandra must write one.
		query(t, opts, "ALTER TABLE notification_status WITH memtable_flush_period_in_ms = 200")
		var mebibytes int
		await(t, "a file of the table", func() bool {
			query(t, opts, "SELECT mebibytes FROM system_views.max_partition_size WHERE keyspace_name='"+opts.Keyspace+
				"' AND table_name='notification_status'", &mebibytes)
			return mebibytes > 0
		})
		// What DefaultLayouts is meant for: 200,000 ids a second.
		l := status.DefaultLayouts()[0]
		full := 200_000 * int(l.Slice/time.Second) / l.Shards
		if most := (mebibytes + 1) * full / len(rows); most > 100 { // rounded down to whole MiB
			t.Errorf("%d rows are %d MiB, so a full partition of %d is up to %d MiB", len(rows), mebibytes, full, most)
		} else {
			t.Logf("%d rows are %d MiB; a full partition of %d is less than %d MiB", len(rows), mebibytes, full, most)
		}
	})
}

// TestReadsCrossNoTombstones: updates are inserts of other rows and leave no
// tombstones. Rows that have expired are tombstones until their file is
// dropped. A read passes only those of the ids that it asks for, however many
// others the partition has.
func TestReadsCrossNoTombstones(t *testing.T) {
	opts := onePartition(apply(t, shared(t)))
	c := open(t, opts)
	const updates, many = 12, 100
	const cells = 6 // of a row that expire; each counts as a tombstone, with an accuracy of a fifth
	steps := func(of []push.Row) (rows []push.Row, ids []string) {
		for _, r := range of {
			ids = append(ids, r.ID)
			for step := range int16(updates) {
				r.Step, r.State, r.Reason, r.ProviderID = step, push.StateRetrying, "", ""
				rows = append(rows, r, r) // each of them twice
			}
		}
		return rows, ids
	}

	live, alive := steps(oneSecond(many))
	put(t, c, live)
	for range 3 {
		put(t, c, live[:many])
		if got := get(t, c, alive); len(got[0]) != updates {
			t.Fatalf("%d rows, want %d", len(got[0]), updates)
		}
	}
	if most := tombstones(t, opts); most > 1 { // none is reported as one
		t.Errorf("a read of what was updated often passes %v tombstones", most)
	}

	query(t, opts, "ALTER TABLE notification_status WITH default_time_to_live = 1")
	expiring, expired := steps(oneSecond(20 * many))
	put(t, c, expiring)
	witness := oneSecond(1) // the last one to be written, so the last one to expire
	put(t, c, witness)
	await(t, "rows that expire", func() bool { return get(t, c, []string{witness[0].ID})[0] == nil })
	query(t, opts, "ALTER TABLE notification_status WITH default_time_to_live = 2592000")
	for i, rows := range get(t, c, alive) {
		if len(rows) != updates {
			t.Errorf("notification %d has %d rows, want %d", i, len(rows), updates)
		}
	}
	if most := tombstones(t, opts); most > cells*3/2 { // the witness
		t.Errorf("a read beside %d rows that have expired passes %v tombstones", len(expiring)/2, most)
	}
	for i, rows := range get(t, c, expired[:many]) {
		if rows != nil {
			t.Errorf("notification %d has outlived its time: %v", i, rows)
		}
	}
	if most := tombstones(t, opts); most < many*updates || most > many*updates*cells*3/2 {
		t.Errorf("a read of %d expired rows passes %v tombstones", many*updates, most)
	}
}

// tombstones is the largest number that a read of the table has passed.
func tombstones(t *testing.T, opts status.Options) (most float64) {
	t.Helper()
	query(t, opts, "SELECT max FROM system_views.tombstones_per_read WHERE keyspace_name='"+opts.Keyspace+"' AND table_name='notification_status'", &most)
	return most
}

// each runs CQL apart from the store's own statements and hands out its rows.
func each(t *testing.T, opts status.Options, cql string, read func(scan func(...any) bool)) {
	t.Helper()
	s := session(t, opts)
	defer s.Close()
	rows := s.Query(cql).Iter()
	read(rows.Scan)
	if err := rows.Close(); err != nil {
		t.Fatalf("%s: %v", cql, err)
	}
}
