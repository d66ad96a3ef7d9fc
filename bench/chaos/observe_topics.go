//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
)

// The kinds of topics beside a lane's own, by what stands behind its name.
const (
	waiting = "waiting" // .retry.*, .defer.* and .hold.*
	dead    = "dead"    // .dlq
)

// laneTopics are the topics beside a lane's own.
func laneTopics(ctx context.Context, admin *kadm.Client, lane string) (map[string][]string, error) {
	all, err := admin.ListTopics(ctx)
	if err == nil {
		err = all.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	found := map[string][]string{}
	for _, name := range all.Names() {
		switch invariants.KindOf(lane, name) {
		case invariants.Retry, invariants.Deferral, invariants.Hold:
			found[waiting] = append(found[waiting], name)
		case invariants.Dead:
			found[dead] = append(found[dead], name)
		}
	}
	return found, nil
}

// readLetters reads every record of the topics beside a lane's own, and hands
// each record's headers to each as well.
func readLetters(ctx context.Context, w *world, of *ledger, lane string, each func(topic string, headers []kgo.RecordHeader)) ([]invariants.Letter, error) {
	client, err := w.kafkaClient()
	if err != nil {
		return nil, fmt.Errorf("reading topics: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := laneTopics(ctx, admin, lane)
	if err != nil {
		return nil, err
	}
	names := append(topics[waiting], topics[dead]...)
	ends, err := admin.ListEndOffsets(ctx, names...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading topics: %w", err)
	}
	left := int64(0)
	starts := map[string]map[int32]kgo.Offset{}
	ends.Each(func(e kadm.ListedOffset) {
		left += e.Offset
		if starts[e.Topic] == nil {
			starts[e.Topic] = map[int32]kgo.Offset{}
		}
		starts[e.Topic][e.Partition] = kgo.NewOffset().At(0)
	})
	client.AddConsumePartitions(starts)
	var letters []invariants.Letter
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading topics: %w, %d records are left", context.Cause(ctx), left)
		}
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading topics: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			letters = append(letters, letter(of, lane, r))
			each(r.Topic, r.Headers)
		})
	}
	return letters, nil
}

// letter reads a record's headers. Where it came from says what its id is.
func letter(of *ledger, lane string, r *kgo.Record) invariants.Letter {
	l := invariants.Letter{Kind: invariants.KindOf(lane, r.Topic)}
	origin := ""
	for _, h := range r.Headers {
		switch h.Key {
		case "pf-attempt":
			l.Attempt, _ = strconv.Atoi(string(h.Value)) // a wrong one has no origin that is known, or is 0
		case "pf-reason":
			l.Reason = string(h.Value)
		case "pf-origin":
			origin = string(h.Value)
		}
	}
	if parts := strings.Split(origin, "/"); len(parts) == 3 {
		id, err1 := strconv.ParseInt(parts[1], 10, 32)
		offset, err2 := strconv.ParseInt(parts[2], 10, 64)
		if err1 == nil && err2 == nil {
			l.ID, _ = of.idAt(invariants.Partition{Topic: parts[0], ID: int32(id)}, offset)
		}
	}
	if l.ID == "" {
		l.ID = fmt.Sprintf("a record of %s/%d/%d from %q", r.Topic, r.Partition, r.Offset, origin)
	}
	return l
}
