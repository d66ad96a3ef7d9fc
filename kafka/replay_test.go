package kafka

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func (c *cluster) laneLog(lane string) *LaneLog {
	c.t.Helper()
	l, err := NewLaneLog(c.options, lane)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(l.Close)
	return l
}

// places reads all of a lane's topic.
func (c *cluster) places(l *LaneLog, each func(*DeadLetter)) (places []string) {
	c.t.Helper()
	e, err := l.Between(c.t.Context(), time.Time{}, time.Time{})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := l.Read(c.t.Context(), e, func(d *DeadLetter) error {
		places = append(places, d.Place.String())
		if each != nil {
			each(d)
		}
		return nil
	}); err != nil {
		c.t.Fatalf("after %v: %v", places, err)
	}
	return places
}

// A batch too large to unpack is dead in a worker. It must not be in the way of what a
// lane's topic has behind it.
func TestALaneLogIsReadBehindWhatCannotBeUnpacked(t *testing.T) {
	c := newCluster(t, 2, []string{"push", "push.dlq.audit"})
	c.produce("push", 0, 0, 2)
	c.produceBatch("push", 0, true, 65, func(int) *kgo.Record { return &kgo.Record{Value: make([]byte, 1<<20)} })
	c.produce("push", 0, 0, 1)
	c.produce("push", 1, 0, 1)
	if got, want := c.places(c.laneLog("push"), nil), []string{"0/0", "0/1", "0/67", "1/0"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A replay may take hours. What the topic's retention deletes meanwhile is gone, and
// what is left is read.
func TestALaneLogIsReadBehindWhatIsDeletedMeanwhile(t *testing.T) {
	c := newCluster(t, 2, []string{"push", "push.dlq.audit"})
	c.produce("push", 0, 0, 1)
	c.produce("push", 1, 0, 10)
	got := c.places(c.laneLog("push"), func(d *DeadLetter) {
		if d.Partition == 0 {
			if err := c.DeleteRecords("push", 1, 8); err != nil {
				t.Error(err)
			}
		}
	})
	if want := []string{"0/0", "1/8", "1/9"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A record of a lane's topic is of the age that a worker takes for it; and what a worker
// ends for its headers cannot be sent to a retry topic either.
func TestARecordOfALaneLogIsAsAWorkerTakesIt(t *testing.T) {
	now := time.Now()
	for at, want := range map[time.Time]time.Time{
		time.UnixMilli(-1):                  now, // its producer gave none
		now.Add(100 * time.Hour):            now.Add(time.Minute),
		time.UnixMilli(1_790_000_000_000):   time.UnixMilli(1_790_000_000_000),
		time.UnixMilli(-1_790_000_000_000):  time.UnixMilli(0),
		time.UnixMilli(0).Add(7_000_000_01): now.Add(time.Minute), // in no milliseconds: it is one that has overflown
	} {
		d := firstRecord(&kgo.Record{Timestamp: at, Value: []byte("{}")}, now)
		if !d.FirstSeen.Equal(want) || d.Value == nil {
			t.Errorf("%v: got first seen %v, want %v", at, d.FirstSeen, want)
		}
	}
	for size, kept := range map[int]bool{maxEnvelope - 1: true, maxEnvelope: false} {
		d := firstRecord(&kgo.Record{Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(strings.Repeat("x", size))}}}, now)
		if (d.Value != nil) != kept {
			t.Errorf("a header of %d bytes: got value %q", size, fmt.Sprint(d.Value))
		}
	}
}

// What replays note in the audit topic is no mark, and none that a version which knows
// only marks of dead letters cannot read.
func TestANoteOfAReplayIsInNobodysWay(t *testing.T) {
	c := newCluster(t, 1, []string{"push", "push.dlq", "push.dlq.audit"})
	l := c.laneLog("push")
	r := Replay{At: time.Now(), By: "ops/0"}
	for _, r.Done = range []bool{false, true} {
		if err := l.Note(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if marks, err := l.audit.Read(t.Context()); err != nil || len(marks) > 0 {
		t.Errorf("got marks %v: %v", marks, err)
	}
	f, err := NewFollower(c.options, "push.dlq.audit", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	keys := make(map[string]bool)
	for _, rec := range follow(t, f, 2) {
		keys[string(rec.Key)] = true
		var v auditValue
		if _, err := ParsePlace(string(rec.Key)); err != nil || json.Unmarshal(rec.Value, &v) != nil || v.Version != auditVersion || v.By != "ops/0" {
			t.Errorf("got %s %s: %v", rec.Key, rec.Value, err)
		}
	}
	if len(keys) != 1 {
		t.Errorf("got keys %v, want one of the replay", keys)
	}
}
