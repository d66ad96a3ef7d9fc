//go:build unix

package mutants

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
)

// commit is one committed offset, and when the broker took it.
type commit struct {
	at     time.Time
	offset int64
}

// commitLog writes down the commits of some groups, as they stand on the
// broker: looked at so often that none is missed which stays for 5 ms.
type commitLog struct {
	kafka  *embedded.Kafka
	groups []string
	stop   chan struct{}
	ended  sync.WaitGroup

	mu   sync.Mutex
	seen map[push.Partition][]commit
}

const commitPause = 5 * time.Millisecond

func followCommits(k *embedded.Kafka, groups ...string) *commitLog {
	l := &commitLog{kafka: k, groups: groups, stop: make(chan struct{}), seen: make(map[push.Partition][]commit)}
	l.ended.Go(func() {
		ticker := time.NewTicker(commitPause)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				l.look()
			case <-l.stop:
				l.look()
				return
			}
		}
	})
	return l
}

func (l *commitLog) look() {
	for _, group := range l.groups {
		info := l.kafka.Cluster.GroupInfo(group)
		if info == nil {
			continue // no member yet
		}
		l.mu.Lock()
		for topic, partitions := range info.Commits {
			for id, c := range partitions {
				p := push.Partition{Topic: topic, ID: id}
				if list := l.seen[p]; len(list) == 0 || list[len(list)-1].offset != c.Offset {
					l.seen[p] = append(list, commit{c.At, c.Offset})
				}
			}
		}
		l.mu.Unlock()
	}
}

// close ends the looking, once, before Kafka is closed.
func (l *commitLog) close() {
	close(l.stop)
	l.ended.Wait()
}

// all are the commits so far, by partition, in order.
func (l *commitLog) all() map[push.Partition][]commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := maps.Clone(l.seen)
	for p, list := range copied {
		copied[p] = slices.Clone(list)
	}
	return copied
}
