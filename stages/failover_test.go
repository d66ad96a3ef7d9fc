package stages_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/stages"
)

// TestFailOverRepeatsAtMostWhatWasLost: Redis fails over to a replica that
// lacks the filter's latest adds, while the status rows of everything that was
// finished are durable. Records that Kafka delivers again to a new owner end as
// copies. Of the copies that producers write, only those whose id was added
// after the replica fell behind are sent again. No new id ends as a copy.
func TestFailOverRepeatsAtMostWhatWasLost(t *testing.T) {
	const n = 2000
	pair := localtest.RedisPair(t)
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{"pair:6379"}, pair.Dial
	client := shardstest.Open(t, o)
	f, err := dedupe.New(client, dedupe.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.DeclareNew(t.Context()); err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	rows := &ledger{rows: map[string][]push.Row{}}
	dedupeStage := &stages.Dedupe{Filter: f, Ledger: rows}
	// copies runs a record of each id through the stage, and counts those that
	// end as copies.
	copies := func(ids []string, confirm bool) (of int) {
		t.Helper()
		b := &pipeline.Batch{}
		for _, id := range ids {
			b.Items = append(b.Items, item(id, func(it *pipeline.Item) { it.FirstSeen, it.Timestamp, it.Confirm = push.At(now), push.At(now), confirm }))
		}
		if err := dedupeStage.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Items {
			switch b.Items[i].Verdict {
			case push.Duplicate:
				of++
			case push.Undecided:
			default:
				t.Errorf("%s: got verdict %v", ids[i], b.Items[i].Verdict)
			}
		}
		return of
	}
	// finish gives each id its durable row, and then adds it to the filter, in
	// the order of the pipeline.
	finish := func(ids []string) {
		t.Helper()
		for _, id := range ids {
			rows.rows[id] = []push.Row{row(id, "", 0, push.StateSuppressed)}
		}
		if err := f.Add(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
	}
	notifications := func(name string) (ids []string) {
		for i := range n {
			if i%2 == 0 {
				ids = append(ids, uuid.Must(uuid.NewV7()).String())
			} else {
				ids = append(ids, fmt.Sprintf("%s-%d", name, i))
			}
		}
		return ids
	}

	before, since := notifications("before"), notifications("since")
	finish(before)
	if err := pair.Part(t.Context()); err != nil {
		t.Fatal(err)
	}
	finish(since)
	if got := copies(since, false); got != n {
		t.Fatalf("setup: got %d of %d copies recognised before the failover", got, n)
	}
	if err := pair.FailOver(); err != nil {
		t.Fatal(err)
	}

	if got := copies(before, false); got != n {
		t.Errorf("%d of %d ids that the replica knew would be sent again", n-got, n)
	}
	if got := copies(since, true); got != n {
		t.Errorf("%d of %d records that a new owner reads again would be sent again", n-got, n)
	}
	if got := copies(notifications("new"), false); got != 0 {
		t.Errorf("%d new notifications ended as duplicates", got)
	}
	again := n - copies(since, false)
	if again == 0 {
		t.Error("setup: the failover lost no ids")
	}
	finish(since) // each of them was sent once more
	if got := copies(since, false); got != n {
		t.Errorf("%d of %d would be sent a third time", n-got, n)
	}
}
