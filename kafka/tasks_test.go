package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// desk is somebody who works on tasks.
type desk struct {
	mu   sync.Mutex
	done []int64 // guarded by mu; offsets, in the order in which they were done
	fail map[int64]error
	wait map[int64]chan struct{} // who is here is worked on until it is closed
	seen map[int64]int           // guarded by mu
	stop context.CancelFunc
	over chan struct{} // closed when Run has returned
}

// work runs tasks on a topic of the cluster until the test ends.
func (c *cluster) work(to TasksOptions, d *desk) *Tasks {
	c.t.Helper()
	to.Topic, to.Group = "jobs", "g"
	to.Session = 10 * time.Second
	t, err := NewTasks(c.options, to)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.over, d.seen = stop, make(chan struct{}), make(map[int64]int)
	go func() {
		defer close(d.over)
		t.Run(ctx, d.do)
	}()
	c.t.Cleanup(func() {
		stop()
		<-d.over
	})
	return t
}

func (d *desk) do(ctx context.Context, t *Task) error {
	d.mu.Lock()
	d.seen[t.Offset]++
	err, wait := d.fail[t.Offset], d.wait[t.Offset]
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.Leaving:
			return errors.New("leaving")
		}
	}
	if want := fmt.Sprintf("n-%d-%d", t.Partition, t.Offset); string(t.Key) != "u1" || !slices.Contains([]string{want}, idIn(t.Value)) {
		return fmt.Errorf("task %s has %s", want, t.Value)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = append(d.done, t.Offset)
	return nil
}

// idIn is the id in a record of cluster.produce.
func idIn(value []byte) string {
	var partition, i int
	if _, err := fmt.Sscanf(string(value), `{"id":"n-%d-%d"`, &partition, &i); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("n-%d-%d", partition, i)
}

func (d *desk) offsets() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.done)
}

func (d *desk) times(offset int64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[offset]
}

// Nothing is committed past a task that is not done, and no more are handed out than the
// window has room for.
func TestTasksCommitInOrder(t *testing.T) {
	c := newCluster(t, 1, []string{"jobs"})
	c.produce("jobs", 0, 0, 20)
	first := make(chan struct{})
	d := &desk{wait: map[int64]chan struct{}{2: first}}
	c.work(TasksOptions{Window: 6, AtOnce: 3}, d)
	eventually(t, "others are done, and what is before it is committed", func() bool { return len(d.offsets()) >= 4 && c.committed("g", "jobs", 0) == 2 })
	if got := d.offsets(); slices.Max(got) > 7 || d.times(2) != 1 {
		t.Errorf("%v are done with 2 open, want none behind 7", got)
	}
	close(first)
	eventually(t, "all is done and committed", func() bool { return len(d.offsets()) == 20 && c.committed("g", "jobs", 0) == 20 })
	for offset := range int64(20) {
		if n := d.times(offset); n != 1 {
			t.Errorf("offset %d was worked on %d times", offset, n)
		}
	}
}

// What fails is tried again, and the others go on.
func TestTasksAreRepeated(t *testing.T) {
	c := newCluster(t, 1, []string{"jobs"})
	c.produce("jobs", 0, 0, 3)
	d := &desk{fail: map[int64]error{0: errors.New("trouble")}}
	told := make(chan error, 100)
	c.work(TasksOptions{Failed: func(_ *Task, err error) { told <- err }}, d)
	if err := <-told; err.Error() != "trouble" {
		t.Errorf("told %v", err)
	}
	eventually(t, "the others are done", func() bool { return len(d.offsets()) == 2 })
	if at := c.committed("g", "jobs", 0); at > 0 {
		t.Errorf("committed %d past a task that fails", at)
	}
	d.mu.Lock()
	delete(d.fail, 0)
	d.mu.Unlock()
	eventually(t, "all are committed", func() bool { return c.committed("g", "jobs", 0) == 3 })
}

// A partition that leaves takes open tasks to its next owner, and no done ones.
func TestTasksLeave(t *testing.T) {
	c := newCluster(t, 1, []string{"jobs"})
	c.produce("jobs", 0, 0, 3)
	never := make(chan struct{})
	a := &desk{wait: map[int64]chan struct{}{1: never}}
	c.work(TasksOptions{}, a)
	eventually(t, "the first one has the rest done", func() bool { return len(a.offsets()) == 2 && a.times(1) == 1 })
	b := &desk{}
	a.stop()
	<-a.over
	if at := c.committed("g", "jobs", 0); at != 1 {
		t.Errorf("committed %d, want 1", at)
	}
	c.work(TasksOptions{}, b)
	eventually(t, "the second one has done the rest", func() bool { return c.committed("g", "jobs", 0) == 3 })
	if b.times(0) != 0 || b.times(1) != 1 || b.times(2) != 1 {
		t.Errorf("the second one worked on %v", b.seen)
	}
}

// A member that joins gets partitions, and both go on.
func TestTasksAreShared(t *testing.T) {
	c := newCluster(t, 6, []string{"jobs"})
	a, b := &desk{}, &desk{}
	c.work(TasksOptions{}, a)
	for p := range int32(6) {
		c.produce("jobs", p, 0, 5)
	}
	eventually(t, "the first one has done all", func() bool { return len(a.offsets()) == 30 })
	c.work(TasksOptions{}, b)
	// Partitions move when the first one has given them back.
	from := 5
	eventually(t, "the second one does some", func() bool {
		for p := range int32(6) {
			c.produce("jobs", p, from, 1)
		}
		from++
		return len(b.offsets()) > 0
	})
	eventually(t, "all are committed", func() bool {
		for p := range int32(6) {
			if c.committed("g", "jobs", p) != int64(from) {
				return false
			}
		}
		return true
	})
	if got, want := len(a.offsets())+len(b.offsets()), 6*from; got != want {
		t.Errorf("%d tasks were done of %d: without deaths none is done twice", got, want)
	}
}

func TestPlacer(t *testing.T) {
	c := newCluster(t, 4, []string{"lane"})
	p, err := NewPlacer(c.options, PlacerOptions{Records: 100, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	place := func(r *Placed) error {
		said := make(chan error, 1)
		p.Place(r, func(err error) { said <- err })
		return <-said
	}
	at := time.UnixMilli(1_700_000_000_000)
	for partition := range int32(4) {
		if err := place(&Placed{Topic: "lane", Partition: partition, Key: []byte("u1"), Value: []byte("v"), At: at, Headers: []Header{{"traceparent", []byte("00")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := place(&Placed{Topic: "lane", Partition: -1, Key: []byte("u1"), Value: []byte("by key")}); err != nil {
		t.Fatal(err)
	}
	if err := place(&Placed{Topic: "lane", Partition: 4, Key: []byte("u1")}); err == nil {
		t.Error("a partition that is not there took a record")
	}
	client, err := c.options.newClient(kgo.ConsumeTopics("lane"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var named, byKey []int32
	for len(named)+len(byKey) < 5 {
		client.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
			switch {
			case string(r.Value) == "by key":
				byKey = append(byKey, r.Partition)
			case r.Timestamp.Equal(at) && len(r.Headers) == 1:
				named = append(named, r.Partition)
			}
		})
	}
	slices.Sort(named)
	if !slices.Equal(named, []int32{0, 1, 2, 3}) || byKey[0] != PartitionOf([]byte("u1"), 4) {
		t.Errorf("partitions %v, by key %v", named, byKey)
	}
}
