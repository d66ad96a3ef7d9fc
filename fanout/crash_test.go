package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pushfleet/pushfleet/kafka"
)

// patience ends a wait that hangs. It is no measurement.
const patience = 2 * time.Minute

// fleet is a broker, an audience and notes that outlive the processes that work there.
type fleet struct {
	t       *testing.T
	cluster *kfake.Cluster
	crowd   *crowd
	notes   *Memory
	limits  Limits
	job     *Job
}

const lane = "promotional"

// atOnce is how many chunks a process of a fleet works on at once.
const atOnce = 2

func newFleet(t *testing.T, members []Member, change ...func(*Job)) *fleet {
	t.Helper()
	// The lane has the partitions of aJob.
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SeedTopics(3, JobsTopic, ChunksTopic(lane), HoldTopic(lane), DeadTopic), kfake.SeedTopics(6, "push.promotional"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return &fleet{t: t, cluster: cluster, crowd: newCrowd(members...), notes: NewMemory(),
		limits: Limits{Page: 10, Records: 1000, Bytes: 1 << 20, Lag: 1 << 40, Open: 3}, job: aJob(t, func(j *Job) {
			j.To.Parts = 8
			j.Expires = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
			for _, c := range change {
				c(j)
			}
		})}
}

// accept produces the job, as a gateway does.
func (f *fleet) accept() {
	f.t.Helper()
	value, err := EncodeJob(f.job)
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := kafka.NewPlacer(f.options(nil), kafka.PlacerOptions{Records: 10, Bytes: 1 << 20})
	if err != nil {
		f.t.Fatal(err)
	}
	defer p.Close(f.t.Context())
	if err := put(f.t.Context(), placer{p}, Record{Topic: JobsTopic, Partition: -1, Key: f.job.Message[:], Value: value}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) options(dial func(context.Context, string, string) (net.Conn, error)) kafka.Options {
	return kafka.Options{Brokers: f.cluster.ListenAddrs(), Dial: dial}
}

// placer is a Placer as the stages need it.
type placer struct{ *kafka.Placer }

func (p placer) Produce(records []Record, done func(error)) {
	for i := range records {
		r := &records[i]
		p.Place(&kafka.Placed{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, At: r.At}, done)
	}
}

// trap kills a process at a point of the way, the nth time that it comes there.
type trap struct {
	point string
	after int // times that it is passed before
	kill  func()

	mu   sync.Mutex
	dead bool // guarded by mu
	met  int  // guarded by mu
}

var errDead = errors.New("the process is dead")

func (t *trap) at(point string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return errDead
	}
	if point != t.point {
		return nil
	}
	if t.met++; t.met <= t.after {
		return nil
	}
	t.dead = true
	t.kill()
	return errDead
}

// around calls do between two points.
func (t *trap) around(point string, do func() error) error {
	if err := t.at("before " + point); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return t.at("after " + point)
}

// mortal is what a process has to do with, as long as it lives.
type mortal struct {
	*trap
	fleet    *fleet
	producer Producer
	produces string // what it produces besides the lane's records
}

func (m *mortal) Page(ctx context.Context, j *Job, part int, after string, limit int) (page []Member, err error) {
	err = m.around("page", func() error {
		page, err = m.fleet.crowd.Page(ctx, j, part, after, limit)
		return err
	})
	return page, err
}

func (m *mortal) Produce(records []Record, done func(error)) {
	point := "ack"
	if records[0].Topic != m.fleet.job.Topic {
		point = m.produces
	}
	if err := m.at("before " + point); err != nil {
		for range records {
			done(err)
		}
		return
	}
	m.producer.Produce(records, func(err error) {
		if err == nil {
			err = m.at("after " + point)
		}
		done(err)
	})
}

func (m *mortal) Begin(ctx context.Context, j *Job) (first *Job, err error) {
	err = m.around("begin", func() error {
		first, err = m.fleet.notes.Begin(ctx, j)
		return err
	})
	return first, err
}

func (m *mortal) Ended(ctx context.Context, message uuid.UUID, part int) (ended bool, err error) {
	err = m.around("look", func() error {
		ended, err = m.fleet.notes.Ended(ctx, message, part)
		return err
	})
	return ended, err
}

func (m *mortal) End(ctx context.Context, message uuid.UUID, part int, c *Counts) error {
	return m.around("note", func() error { return m.fleet.notes.End(ctx, message, part, c) })
}

func (m *mortal) State(ctx context.Context, message uuid.UUID) (s State, err error) {
	err = m.around("state", func() error {
		s, err = m.fleet.notes.State(ctx, message)
		return err
	})
	return s, err
}

func (m *mortal) Lag(context.Context, string) (Backlog, error) { return Backlog{}, m.at("lag") }

// do is the work of a stage. When it has come to a good end the process may die before
// that is committed, or after, when it begins the next piece.
func (m *mortal) do(stage func(context.Context, *Work) error) func(context.Context, *kafka.Task) error {
	return func(ctx context.Context, t *kafka.Task) error {
		if err := m.at("after commit"); err != nil {
			return err
		}
		if err := stage(ctx, &Work{Topic: t.Topic, Key: t.Key, Value: t.Value, Leaving: t.Leaving, At: t.Timestamp}); err != nil {
			return err
		}
		return m.at("before commit")
	}
}

// process is one that runs all stages.
type process struct {
	stop context.CancelFunc
	over chan struct{} // closed when it has ended
	dead chan struct{} // closed when it was killed
}

// start starts a process. From the moment when it is killed it reaches no broker: what it
// has not sent, a commit or a farewell to its group, is never sent.
func (f *fleet) start(point string, after int) *process {
	f.t.Helper()
	p := &process{over: make(chan struct{}), dead: make(chan struct{})}
	lines := &wires{}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	trap := &trap{point: point, after: after, kill: func() {
		lines.cut()
		stop()
		close(p.dead)
	}}
	placed, err := kafka.NewPlacer(f.options(lines.dial), kafka.PlacerOptions{Records: 10_000, Bytes: 16 << 20})
	if err != nil {
		f.t.Fatal(err)
	}
	m := &mortal{trap: trap, fleet: f, producer: placer{placed}, produces: "next"}
	expands := &mortal{trap: trap, fleet: f, producer: placer{placed}, produces: "expand"}
	metrics, log := NewMetrics(nil), slog.New(slog.NewTextHandler(io.Discard, nil))
	stages := map[string]func(context.Context, *kafka.Task) error{
		JobsTopic:         expands.do((&Expander{Producer: expands, Notes: expands, Open: f.limits.Open, Metrics: metrics, Log: log}).Do),
		ChunksTopic(lane): m.do(NewEmitter(lane, Options{Audience: m, Producer: m, Notes: m, Lag: m, Limits: f.limits, Metrics: metrics, Log: log}).Do),
		HoldTopic(lane):   m.do((&Holder{Producer: m, Notes: m, Metrics: metrics, Log: log}).Do),
	}
	var running sync.WaitGroup
	for topic, do := range stages {
		tasks, err := kafka.NewTasks(f.options(lines.dial), kafka.TasksOptions{Topic: topic, Group: "fanout." + topic, AtOnce: atOnce,
			Session: 3 * time.Second, Rebalance: 10 * time.Second, Drain: 2 * time.Second, Commit: time.Second})
		if err != nil {
			f.t.Fatal(err)
		}
		running.Go(func() { tasks.Run(ctx, do) })
	}
	go func() {
		defer close(p.over)
		running.Wait()
		ended, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		placed.Close(ended)
	}()
	f.t.Cleanup(func() {
		stop()
		<-p.over
	})
	return p
}

// wires are a process's connections.
type wires struct {
	mu   sync.Mutex
	open []net.Conn // guarded by mu
	gone bool       // guarded by mu
}

func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	gone := w.gone
	w.mu.Unlock()
	if gone {
		return nil, errDead
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		_ = c.Close()
		return nil, errDead
	}
	w.open = append(w.open, c)
	return c, nil
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for _, c := range w.open {
		_ = c.Close()
	}
}

// finished waits until all chunks have ended.
func (f *fleet) finished() *Progress {
	f.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		p, err := f.notes.Look(f.t.Context(), f.job.Message)
		if err != nil {
			f.t.Fatal(err)
		}
		if p != nil && len(p.Ended) == f.job.To.Parts {
			return p
		}
	}
	p, _ := f.notes.Look(f.t.Context(), f.job.Message)
	f.t.Fatalf("not finished: %+v", p)
	return nil
}

// judge reads the whole lane: each receiver has its id, in its partition, and no other
// one. It returns the receivers and how many records there are more than these.
func (f *fleet) judge() (receivers map[string]int, repeats int) {
	f.t.Helper()
	admin, err := kafka.NewAdmin(f.options(nil))
	if err != nil {
		f.t.Fatal(err)
	}
	defer admin.Close()
	ends, err := admin.EndOffsets(f.t.Context(), f.job.Topic)
	if err != nil {
		f.t.Fatal(err)
	}
	left := int64(0)
	for _, end := range ends {
		left += end
	}
	follower, err := kafka.NewFollower(f.options(nil), f.job.Topic, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer follower.Close()
	receivers = make(map[string]int)
	for left > 0 {
		records, err := follower.Poll(f.t.Context(), 1000)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range records {
			m := mustDecode(f.t, r.Value)
			if m.ID != ID(f.job.Message, m.UserID) || r.Partition != PartitionOf(m.UserID, f.job.Partitions) || string(r.Key) != m.UserID {
				f.t.Fatalf("%s got %s in partition %d", m.UserID, m.ID, r.Partition)
			}
			if receivers[m.UserID]++; receivers[m.UserID] > 1 {
				repeats++
			}
			left--
		}
	}
	return receivers, repeats
}

// largest is the most members that a chunk has.
func (f *fleet) largest() int {
	var in [Slices]int
	most := 0
	for _, m := range f.crowd.members {
		part := SliceOf(m.User) * f.job.To.Parts / Slices
		in[part]++
		most = max(most, in[part])
	}
	return most
}

// A process that is killed, at any point of the way, loses nobody. It repeats the chunks
// that it had open, with the same ids.
func TestKilledAnywhere(t *testing.T) { killedAnywhere(t) }

// The same for all users of an app.
func TestKilledAnywhereOfAnApp(t *testing.T) { killedAnywhere(t, ofApp) }

func killedAnywhere(t *testing.T, change ...func(*Job)) {
	t.Helper()
	for _, point := range []string{"before begin", "after begin", "before expand", "after expand", "before look", "before state", "lag", "before page", "after page", "before ack", "after ack",
		"before next", "after next", "before note", "after note", "before commit", "after commit"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, manyUsers(300), change...)
			passes := map[string]int{"after ack": 60, "before ack": 5, "before page": 7, "after page": 6, "after commit": 3, "before note": 2, "after note": 1, "before commit": 2}[point]
			victim := f.start(point, passes)
			f.accept()
			select {
			case <-victim.dead:
			case <-time.After(patience):
				t.Fatalf("nobody died %s", point)
			}
			heir := f.start("", 0)
			p := f.finished()
			receivers, repeats := f.judge()
			if len(receivers) != 300 {
				t.Errorf("%d of 300 receivers got it", len(receivers))
			}
			if bound := atOnce * f.largest(); repeats > bound {
				t.Errorf("%d records were repeated, at most %d were open", repeats, bound)
			}
			if p.Emitted != 300 {
				t.Errorf("%d were counted", p.Emitted)
			}
			heir.stop()
			<-heir.over
			t.Logf("%d repeated", repeats)
		})
	}
}

// A process that joins, and one that goes in order, repeat nothing.
func TestProcessesComeAndGo(t *testing.T) {
	f := newFleet(t, manyUsers(600))
	var first, second *process
	first = f.start("", 0)
	reached := make(chan int, 1000)
	f.crowd.onRead = func(read int) { reached <- read }
	f.accept()
	for read := range reached {
		if read == 5 {
			second = f.start("", 0)
		}
		if read == 20 {
			break
		}
	}
	first.stop()
	<-first.over
	p := f.finished()
	receivers, repeats := f.judge()
	if len(receivers) != 600 || p.Emitted != 600 {
		t.Errorf("%d of 600 receivers got it, %d were counted", len(receivers), p.Emitted)
	}
	if repeats > 0 {
		t.Errorf("%d records were repeated although nobody died", repeats)
	}
	second.stop()
	<-second.over
}

// A lane that grows changes nothing for a message that is under way.
func TestLaneGrowsMeanwhile(t *testing.T) {
	f := newFleet(t, manyUsers(300))
	once := sync.OnceFunc(func() {
		admin, err := kafka.NewAdmin(f.options(nil))
		if err != nil {
			t.Error(err)
			return
		}
		defer admin.Close()
		states, err := admin.EnsureTopics(context.Background(), []kafka.TopicSpec{{Name: f.job.Topic, Partitions: 9, Replication: 1}}, kafka.EnsureOptions{AddPartitions: true})
		if err != nil || states[0].State != kafka.TopicPartitionsAdded {
			t.Errorf("%v: %v", states, err)
		}
	})
	f.crowd.onRead = func(read int) {
		if read == 10 {
			once()
		}
	}
	p := f.start("", 0)
	f.accept()
	f.finished()
	// And once more with what is right by now: the first job holds.
	f.job.Partitions = 9
	f.accept()
	eventually(t, "the repeat has been seen", func() bool { return f.committed(JobsTopic) == 2 && f.committed(ChunksTopic(lane)) == 8+3 })
	f.job.Partitions = 6
	if receivers, repeats := f.judge(); len(receivers) != 300 || repeats != 0 {
		t.Errorf("%d receivers, %d repeats", len(receivers), repeats)
	}
	p.stop()
	<-p.over
}

// Who joins after the message was accepted does not get it, and who leaves before his page
// is read does not either.
func TestMembersComeAndGo(t *testing.T) {
	members := manyUsers(300)
	f := newFleet(t, members)
	last := f.crowd.members[299].User // in the last part
	f.crowd.onRead = func(read int) {
		if read == 4 {
			f.crowd.set(Member{User: "newcomer", Since: f.job.Accepted.Add(time.Hour)})
			f.crowd.set(Member{User: last, Left: true})
		}
	}
	p := f.start("", 0)
	f.accept()
	got := f.finished()
	receivers, _ := f.judge()
	if receivers["newcomer"] != 0 {
		t.Error("a newcomer got what was accepted before")
	}
	if want := 300 - int(got.Skipped[SkipLeft]); len(receivers) != want || got.Emitted != int64(want) {
		t.Errorf("%d receivers, counted %+v", len(receivers), got.Counts)
	}
	p.stop()
	<-p.over
}

func (f *fleet) committed(topic string) (sum int64) {
	f.t.Helper()
	admin, err := kafka.NewAdmin(f.options(nil))
	if err != nil {
		f.t.Fatal(err)
	}
	defer admin.Close()
	offsets, err := admin.Committed(f.t.Context(), "fanout."+topic, topic)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, at := range offsets {
		sum += at
	}
	return sum
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal(fmt.Sprint("timed out waiting until ", what))
}
