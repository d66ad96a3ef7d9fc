package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Progress is how far a group has come in a topic.
type Progress struct {
	// Topic is the topic's id, which a topic that is made anew under the same name does
	// not have; zero = the brokers have none (before Kafka 2.8).
	Topic [16]byte
	// Committed are the committed offsets by partition; one without a commit is missing.
	Committed map[int32]int64
}

// TopicID returns a topic's id.
func (a *Admin) TopicID(ctx context.Context, topic string) ([16]byte, error) {
	topics, err := a.admin.ListTopics(ctx, topic)
	if err != nil {
		return [16]byte{}, fmt.Errorf("listing topic %s: %w", topic, err)
	}
	described, known := topics[topic]
	if !known || described.Err != nil {
		return [16]byte{}, fmt.Errorf("topic %s: %w", topic, errors.Join(described.Err, errIfMissing(known)))
	}
	return described.ID, nil
}

// Progress returns how far a group has come in a topic. Unlike Committed it returns an
// error if any partition is not known: to whoever proves something by it, "not known"
// is not "nothing committed".
func (a *Admin) Progress(ctx context.Context, group, topic string) (Progress, error) {
	id, err := a.TopicID(ctx, topic)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Topic: id, Committed: make(map[int32]int64)}
	offsets, err := a.admin.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return p, nil
	}
	if err != nil {
		return Progress{}, fmt.Errorf("reading offsets of group %s: %w", group, err)
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		switch {
		case o.Topic == "": // a topic's id that the client could not name: it may be this one
			err = fmt.Errorf("reading offsets of group %s: a topic that has no name by now", group)
		case o.Topic != topic:
		case o.Err != nil:
			err = fmt.Errorf("reading the offset of group %s in %s/%d: %w", group, topic, o.Partition, o.Err)
		case o.At >= 0:
			p.Committed[o.Partition] = o.At
		}
	})
	if err != nil {
		return Progress{}, err
	}
	return p, nil
}

func errIfMissing(known bool) error {
	if known {
		return nil
	}
	return kerr.UnknownTopicOrPartition
}
