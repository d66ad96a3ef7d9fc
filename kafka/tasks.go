package kafka

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// TasksOptions are the options of Tasks. A zero value means the default unless stated
// otherwise.
type TasksOptions struct {
	Topic string // required
	Group string // required; one group per topic, so that it spreads evenly
	// Window is how many records of a partition may lie between its committed offset and
	// the newest one handed out: so many a killed process leaves to be done again; 8.
	Window int
	AtOnce int // records that are worked on at once, of all partitions, without those that wait to be repeated; 4

	Balancer  string        // as of SourceOptions, as what follows
	Protocol  string        //
	Session   time.Duration //
	Rebalance time.Duration //
	Drain     time.Duration // how long work may go on after its partition is to leave
	Commit    time.Duration //
	Health    func(push.Partition, error)
	Metrics   *Metrics

	// Failed, if set, is told of each attempt that failed and is repeated.
	Failed func(t *Task, err error)
	Log    *slog.Logger // nil = none
}

// Task is one record to be worked on. Its slices must not be changed.
type Task struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte
	Value     []byte // nil = a tombstone, or one too large to be unpacked
	// Leaving is closed when the partition is to leave: what is not finished soon is
	// done again by its next owner.
	Leaving <-chan struct{}
}

// Tasks hands out the records of a topic, each as a piece of work of its own, and commits
// by the rules of a Source: never past one whose work has not ended well. It is for
// records that are no messages.
type Tasks struct {
	source *Source
	o      TasksOptions
	log    *slog.Logger

	places  chan struct{}  // capacity AtOnce; who works has one in it, and not who waits to repeat
	moved   chan struct{}  // capacity 1; gets one when there may be something to commit
	working sync.WaitGroup // grows only in Run's goroutine

	mu   sync.Mutex
	open map[*underWay]struct{} // guarded by mu
}

// underWay is a task that is being worked on.
type underWay struct {
	item    *pipeline.Item
	tracker *pipeline.Tracker
	leaving chan struct{} // closed by watch
	left    bool          // leaving is closed; guarded by the Tasks' mu
	cancel  context.CancelFunc
}

// NewTasks makes Tasks that have not joined their group yet: Run does that.
func NewTasks(o Options, to TasksOptions) (*Tasks, error) {
	to.Window, to.AtOnce = cmp.Or(to.Window, 8), cmp.Or(to.AtOnce, 4)
	if to.Window < 1 || to.AtOnce < 1 {
		return nil, fmt.Errorf("kafka tasks: a window of %d and %d at once, want at least 1", to.Window, to.AtOnce)
	}
	const largest = 1 << 20 // bytes of a batch, and so of what is open at least
	source, err := NewSource(o, SourceOptions{Topics: []SourceTopic{{Name: to.Topic}}, Group: to.Group, Balancer: to.Balancer, Protocol: to.Protocol,
		BatchRecords: 1, OpenBatches: to.Window, OpenRecords: 1 << 20, BatchBytes: largest, OpenBytes: 16 * largest,
		Session: to.Session, Rebalance: to.Rebalance, Drain: to.Drain, Commit: to.Commit, Health: to.Health, Metrics: to.Metrics})
	if err != nil {
		return nil, fmt.Errorf("kafka tasks: %w", err)
	}
	// The records are no messages: without an id none is a copy of another one.
	source.decode = func([]byte, *push.Message) *push.Defect { return nil }
	t := &Tasks{source: source, o: to, log: to.Log, places: make(chan struct{}, to.AtOnce), moved: make(chan struct{}, 1), open: make(map[*underWay]struct{})}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	return t, nil
}

// How often it is looked whether partitions are leaving, and how often something is
// committed that nobody has reported.
const (
	watchEvery  = 2 * recheck
	commitEvery = time.Second
)

// Run joins the group and calls do with each record, several at once, until ctx ends;
// then it leaves the group and returns. do returns nil when all that follows from the
// record is durable; then its offset may be committed. After an error it is called again,
// later, unless the partition has left or ctx has ended. do's context ends when its
// partition belongs to somebody else, or has not been given back in time. Run is called
// once.
func (t *Tasks) Run(ctx context.Context, do func(context.Context, *Task) error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // of what outlives ctx: giving back what was begun
	var own sync.WaitGroup
	own.Go(func() { t.watch(life) })
	own.Go(func() { t.commit(life) })
	t.source.Join()
	for t.next(ctx, life, do) {
	}
	drain, cancel := context.WithTimeout(life, t.source.options.Drain+t.source.options.Commit)
	if err := t.source.Close(drain); err != nil {
		t.log.Warn("a consumer did not leave its group in order: what it has done since its last commit is done again", "topic", t.o.Topic, "error", err)
	}
	cancel()
	end()
	t.working.Wait()
	own.Wait()
}

// next hands out one batch; false = there will be no more.
func (t *Tasks) next(ctx, life context.Context, do func(context.Context, *Task) error) bool {
	b, err := t.source.Next(ctx)
	if err != nil {
		return false // ctx has ended
	}
	for i := range b.Items {
		it := &b.Items[i]
		if !t.place(ctx, b.Tracker) {
			b.Tracker.Abandon([]*pipeline.Item{it})
			continue
		}
		own, cancel := context.WithCancel(life)
		w := &underWay{item: it, tracker: b.Tracker, leaving: make(chan struct{}), cancel: cancel}
		t.mu.Lock()
		t.open[w] = struct{}{}
		t.mu.Unlock()
		t.working.Go(func() {
			defer cancel()
			t.work(own, w, do)
		})
	}
	return true
}

// place waits for one; false = it is not needed any more.
func (t *Tasks) place(ctx context.Context, tracker *pipeline.Tracker) bool {
	for !tracker.Draining() && ctx.Err() == nil {
		select {
		case t.places <- struct{}{}:
			return true
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
	return false
}

// work does one task.
func (t *Tasks) work(ctx context.Context, w *underWay, do func(context.Context, *Task) error) {
	it := w.item
	task := &Task{Topic: it.Partition.Topic, Partition: it.Partition.ID, Offset: it.Offset, Timestamp: it.Timestamp.Time(), Key: it.Key, Value: it.Value, Leaving: w.leaving}
	err := t.repeat(ctx, task, do)
	t.mu.Lock()
	delete(t.open, w)
	t.mu.Unlock()
	items := []*pipeline.Item{it}
	if err != nil {
		w.tracker.Abandon(items)
		return
	}
	w.tracker.Done(items)
	select {
	case t.moved <- struct{}{}:
	default:
	}
}

// repeat calls do until it returns nil, or nobody wants that any more. It gives its place back,
// also while it waits for the next attempt: what fails again and again keeps nobody waiting.
func (t *Tasks) repeat(ctx context.Context, task *Task, do func(context.Context, *Task) error) error {
	backoff := push.Backoff{First: 100 * time.Millisecond, Longest: 10 * time.Second}
	for failed := 1; ; failed++ {
		err := do(ctx, task)
		<-t.places
		if err == nil || ctx.Err() != nil || ended(task.Leaving) {
			return err
		}
		if t.o.Failed != nil {
			t.o.Failed(task, err)
		}
		wait(ctx, task.Leaving, time.Now().Add(backoff.After(failed)))
		select {
		case t.places <- struct{}{}:
		case <-ctx.Done():
			return err
		case <-task.Leaving:
			return err
		}
		if ctx.Err() != nil || ended(task.Leaving) {
			<-t.places
			return err
		}
	}
}

// ended reports whether a channel is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// watch tells tasks when their partitions leave, and ends those whose partitions others
// may have.
func (t *Tasks) watch(life context.Context) {
	for tick := time.NewTicker(watchEvery); ; {
		select {
		case <-life.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		t.mu.Lock()
		for w := range t.open {
			if !w.left && w.tracker.Draining() {
				w.left = true
				close(w.leaving)
			}
			if _, possible := w.tracker.IsCommitted(w.item); !possible {
				w.cancel()
			}
		}
		t.mu.Unlock()
	}
}

// commit commits what has moved, soon after it has. Closing the source commits once more.
func (t *Tasks) commit(life context.Context) {
	for tick := time.NewTicker(commitEvery); ; {
		select {
		case <-life.Done():
			tick.Stop()
			return
		case <-tick.C:
		case <-t.moved:
		}
		if err := t.source.Commit(life); err != nil && life.Err() == nil {
			t.log.Warn("offsets are not committed: what is done is done again if this process dies", "topic", t.o.Topic, "error", err)
		}
	}
}
