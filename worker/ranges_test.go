package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/events"
)

// counted is what a reader of push.events comes to, by state.
func (n *night) counted() (counts map[string]int64, missing int64) {
	n.t.Helper()
	var tally events.Tally
	counts = make(map[string]int64)
	n.eachEvent(func(e *events.Event, _ string) {
		tally.Add(e, func(c *events.Count, _ time.Time) { counts[c.State] += c.N })
	})
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return counts, tally.Missing()
}

// A worker's commits do not come through before it ends: the next one reads all of its
// records again and finds their rows. Each counts once, as what it came to, and a copy that
// its producer wrote counts as a copy.
func TestWhatIsReadAgainCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 1000
		n, ids := crowded(t, records, func(c *configs.Config) { c.Lanes[0].Shed = configs.Shed{High: 1, Medium: 1, Low: 1, Bulk: 1} })
		defer n.close()
		for i, id := range ids[:7] {
			value := fmt.Sprintf(`{"id":%q,"app":"shop","type":"news","title":"Again","device":{"platform":"apns","token":"%064x","environment":"production"}}`, id, i)
			if err := n.client.ProduceSync(t.Context(), &kgo.Record{Topic: n.config.Lanes[0].Topic, Key: []byte(id), Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		commits := false
		n.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			n.cluster.KeepControl()
			return nil, errors.New("commits do not come through"), !commits
		})
		stop := n.worker()
		time.Sleep(time.Minute)
		stop()
		want := map[string]int64{"DELIVERED": records, "DUPLICATE": 7}
		if n.allCommitted(records + 7) {
			t.Fatal("all is committed: this tests nothing")
		}
		if got, _ := n.counted(); len(got) == 0 {
			t.Fatal("the first worker told nothing: this tests nothing")
		}
		commits = true
		n.worker()
		time.Sleep(time.Minute)
		got, missing := n.counted()
		if !maps.Equal(got, want) || missing != 0 || !n.allCommitted(records+7) {
			t.Errorf("counted %v, %d missing, want %v; all committed %v", got, missing, want, n.allCommitted(records+7))
		}
	})
}

// cord is the way of one process to Kafka, until it is cut. The way to other servers stays.
type cord struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	kafka []string // addresses

	mu    sync.Mutex // guards what follows
	conns []net.Conn
	isCut bool
}

func (c *cord) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil || !slices.Contains(c.kafka, address) {
		return conn, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = conn.Close()
		return nil, errors.New("the network is cut")
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// cut ends all connections for good: nobody hears of the process again.
func (c *cord) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// told are the ranges that each source told, by their first offsets and in order.
func (n *night) told() map[string][]events.Place {
	n.t.Helper()
	told := make(map[string][]events.Place)
	n.eachEvent(func(e *events.Event, _ string) {
		if e.Ranges != nil {
			for i := range e.Ranges.Of {
				told[e.Source] = append(told[e.Source], e.Ranges.Of[i].Place)
			}
		}
	})
	return told
}

// A worker is cut off for good when it has told a range and commits it, before or after Kafka
// has taken the commit. The next one tells the range again or goes on behind it, and to a
// reader, the dashboard as well, that makes no difference.
func TestWhatAKilledWorkerToldCountsOnce(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const records = 1000
			n, _ := crowdedBy(t, records, 50*time.Millisecond, func(c *configs.Config) {
				c.Lanes[0].Shed, c.Kafka.SessionTimeout = configs.Shed{High: 1, Medium: 1, Low: 1, Bulk: 1}, 6*time.Second
			}, nil)
			defer n.close()
			killed, healthy := &cord{dial: n.options.Dial, kafka: n.config.Kafka.Brokers}, n.options.Dial
			commits, over := 0, make(chan struct{})
			n.cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
				n.cluster.KeepControl()
				if r.(*kmsg.OffsetCommitRequest).Group != n.config.Kafka.LaneGroup(n.config.Lanes[0].Name) {
					return nil, nil, false
				}
				if commits++; commits != 2 { // something is committed, and something is left
					return nil, nil, false
				}
				killed.cut()
				close(over)
				return nil, errors.New("it is killed"), !taken
			})
			n.options.Dial = killed.Dial
			stop := n.worker()
			n.options.Dial = healthy
			<-over
			stop()
			before := n.told()
			if len(before) != 1 || n.allCommitted(records) {
				t.Fatalf("%d workers told, and all committed is %v: this tests nothing", len(before), n.allCommitted(records))
			}
			n.worker()
			time.Sleep(time.Minute)
			got, missing := n.counted()
			want := map[string]int64{"DELIVERED": records}
			if !maps.Equal(got, want) || missing != 0 || !n.allCommitted(records) {
				t.Errorf("commit taken %v: counted %v, %d missing, want %v; all committed %v", taken, got, missing, want, n.allCommitted(records))
			}
			feed := dashboard.NewFeed()
			n.eachEvent(func(e *events.Event, _ string) { feed.Add(e, e.At) })
			if s := feed.Snapshot(time.Now(), dashboard.Kind{State: "DELIVERED"}, 100); s.Outcomes.Total != records {
				t.Errorf("commit taken %v: the dashboard has %d, want %d", taken, s.Outcomes.Total, records)
			}
			if again := n.toldAgain(before); again == taken {
				t.Errorf("commit taken %v, and told again is %v: this tests something else", taken, again)
			}
		})
	}
}

// toldAgain reports whether somebody told a range that begins where one of earlier sources
// does.
func (n *night) toldAgain(earlier map[string][]events.Place) bool {
	n.t.Helper()
	for source, places := range n.told() {
		if earlier[source] != nil {
			continue
		}
		for _, p := range places {
			for _, of := range earlier {
				if slices.ContainsFunc(of, func(q events.Place) bool { return q.Partition == p.Partition && q.From == p.From }) {
					return true
				}
			}
		}
	}
	return false
}
