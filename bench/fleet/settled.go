//go:build unix

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// Unsettled asks what is committed of the first lane's topic, and then, at
// cassandra (host:port), which of the records below that have nothing durable
// that would let them be. It is for lanes that commit last. passed is how many
// records were committed. To know what held during an outage, ask before the
// workers can write again.
func (f *Fleet) Unsettled(ctx context.Context, cassandra string) (passed int64, unsettled []string, err error) {
	var ids []string
	// A broker that was away answers with leaders, loses them once more when
	// its controller sees how long it was silent, and has them again.
	err = f.await(ctx, "what is committed can be read", func(ctx context.Context) (err error) {
		passed, ids, err = f.passed(ctx)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	direct := *f.Config
	direct.Cassandra.Hosts = []string{cassandra}
	options, err := wiring.Cassandra(&direct, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, nil, err
	}
	store, err := status.OpenCassandra(ctx, options)
	if err != nil {
		return 0, nil, err
	}
	defer store.Close()
	rows, err := store.Read(ctx, ids)
	if err != nil {
		return 0, nil, err
	}
	for i, id := range ids {
		var list []invariants.Row
		for _, r := range rows[i] {
			list = append(list, invariants.Row{Pair: invariants.Pair{ID: id, Device: r.Device}, Step: int(r.Step), State: invariants.State(r.State)})
		}
		if !invariants.Settled(list, nil, false) {
			unsettled = append(unsettled, fmt.Sprintf("%s: %s", id, describe(rows[i])))
		}
	}
	return passed, unsettled, nil
}

// passed is how many records of the first lane's topic are committed, and what
// their notifications are called.
func (f *Fleet) passed(ctx context.Context) (n int64, ids []string, err error) {
	committed, err := f.admin.Committed(ctx, f.Config.Kafka.LaneGroup(f.Config.Lanes[0].Name), f.topic())
	if err != nil {
		return 0, nil, err
	}
	for _, next := range committed {
		n += next
	}
	err = ReadTopic(ctx, f.kafka, f.topic(), func(r kafka.Record) {
		if r.Offset >= committed[r.Partition] {
			return
		}
		var m push.Message
		decode.Message(r.Value, &m) // an unusable record has a place instead of an id
		id := strings.Clone(m.ID)
		if id == "" {
			id = push.PlaceID(f.topic(), r.Partition, r.Offset)
		}
		ids = append(ids, id)
	})
	return n, ids, err
}
