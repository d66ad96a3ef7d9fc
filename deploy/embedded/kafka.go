package embedded

import (
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Topic is one topic of an embedded Kafka.
type Topic struct {
	Name       string
	Partitions int32
	// Compacted keeps the newest record of each key for ever.
	Compacted bool
	// Retention is how long records stay; 0 = an hour. Not for compacted
	// topics. It is checked every 10 s, so that a demo that runs for days
	// stays within its memory.
	Retention time.Duration
}

// Kafka is an in-process Kafka of one broker on a free port of 127.0.0.1. The
// Cluster is there for tests that inject faults or look inside.
type Kafka struct {
	Cluster *kfake.Cluster
}

const (
	// Small, so that tests can lose a member quickly.
	minSession = 200 * time.Millisecond
	// Above the largest record that tests send: a value of 1 MiB must reach
	// the worker to be refused there.
	maxMessage = 4 << 20
	// kfake looks at retention only this often, and by default every hour.
	cleanEvery       = 10 * time.Second
	defaultRetention = time.Hour
)

// StartKafka starts a broker with these topics; others can be created by
// clients, but not by merely producing to them.
func StartKafka(topics ...Topic) (*Kafka, error) {
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.GroupMinSessionTimeout(minSession),
		kfake.BrokerConfigs(map[string]string{
			"log.cleaner.backoff.ms": strconv.FormatInt(cleanEvery.Milliseconds(), 10),
			"message.max.bytes":      strconv.Itoa(maxMessage),
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("starting embedded kafka: %w", err)
	}
	k := &Kafka{Cluster: cluster}
	for _, t := range topics {
		if err := k.Create(t); err != nil {
			k.Close()
			return nil, err
		}
	}
	return k, nil
}

// Create adds a topic.
func (k *Kafka) Create(t Topic) error {
	if t.Partitions < 1 {
		return fmt.Errorf("creating topic %s: %d partitions", t.Name, t.Partitions)
	}
	configs := map[string]string{}
	if t.Compacted {
		configs["cleanup.policy"] = "compact"
	} else {
		retention := t.Retention
		if retention <= 0 {
			retention = defaultRetention
		}
		configs["retention.ms"] = strconv.FormatInt(retention.Milliseconds(), 10)
	}
	if err := k.Cluster.CreateTopic(t.Name, t.Partitions, configs); err != nil {
		return fmt.Errorf("creating topic %s: %w", t.Name, err)
	}
	return nil
}

// Addrs are the brokers' host:port.
func (k *Kafka) Addrs() []string { return k.Cluster.ListenAddrs() }

// Close ends all connections and the broker; its records are gone.
func (k *Kafka) Close() { k.Cluster.Close() }
