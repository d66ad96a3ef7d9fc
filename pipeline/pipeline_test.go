package pipeline_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// lease is a right to send, in the hands of a test; nil = without end.
type lease struct{ until atomic.Int64 } // Unix ns

func (l *lease) Extend(until time.Time) { l.until.Store(until.UnixNano()) }

func (l *lease) Lapsed(now time.Time) bool { return l != nil && now.UnixNano() > l.until.Load() }

// world is everything around a pipeline, in memory and with faults: a source
// of a few partitions, a stage, two providers, a status store, Kafka to hand
// over to. All of it is guarded by mu.
type world struct {
	lives // what is told of collapse keys

	mu     sync.Mutex
	random *rand.Rand
	faults bool

	limit        pipeline.Limit // nil = none
	stageWorkers int            // 0 = 2
	tier         time.Duration  // the only one; 0 = 30 s

	trackers map[int32]*pipeline.Tracker
	batches  []*pipeline.Batch
	rows     map[string][]push.Row // by id
	retried  map[string]int
	held     map[string]int
	due      map[string]time.Time // of what is held
	dead     map[string]int
	sender   map[string]string   // by id
	told     map[string][]string // by id; what senders were told
	awayFor  string              // the topic of this sender takes nothing
	allAway  bool                // no topic of what senders are told takes anything, nor that of dead letters
	buried   map[string][]string // by id; what is a dead letter of webhooks, and why
	feed     chan struct{}       // tells Next of more batches; nil = there will be none
	feedback map[string]int
	sentAt   map[string]time.Time // by device
	untrue   []string             // what hand-overs and deadlines tell that is not so
	seen     map[string]int
	accepted map[string]int  // by id/device
	commits  map[int32]int64 // committed offset
	rewinds  int
	read     int // ids whose rows were read
	// confirmed is when the rows of every fourth item were read before.
	confirmed time.Time
	early     []string // ids committed before they had an outcome and the filter knew it
	ids       map[int32][]string
	lease     *lease       // nil = without end
	once      bool         // mode at_most_once
	drops     bool         // what is ambiguous ends UNKNOWN
	frozen    bool         // nothing is committed
	breaks    bool         // after the next end that orders is told, its topic takes nothing
	mends     bool         // as soon as a dead letter of webhooks is taken, all topics take what they are given
	gates     *gates.Gates // nil = the pipeline's own
	// exposed are sends that may have been accepted and have no row yet.
	exposed     map[string]bool
	mostExposed int
	registry    *prometheus.Registry // of the pipeline that was made last
}

func newWorld(seed uint64) *world {
	return &world{random: rand.New(rand.NewPCG(seed, 1)), faults: true,
		trackers: map[int32]*pipeline.Tracker{}, rows: map[string][]push.Row{}, retried: map[string]int{}, held: map[string]int{}, due: map[string]time.Time{},
		dead: map[string]int{}, sender: map[string]string{}, told: map[string][]string{}, buried: map[string][]string{}, feedback: map[string]int{}, sentAt: map[string]time.Time{}, seen: map[string]int{}, accepted: map[string]int{},
		commits: map[int32]int64{}, ids: map[int32][]string{}}
}

// calm is a filled world without faults.
func calm(seed uint64, partitions int32, n int) *world {
	w := newWorld(seed)
	w.faults = false
	w.fill(partitions, n)
	return w
}

// chance is true with probability p, and never once the faults are over. The
// caller holds mu.
func (w *world) chance(p float64) bool { return w.faults && w.random.Float64() < p }

// fill makes n records for each of the partitions, in batches of up to 100.
func (w *world) fill(partitions int32, n int) {
	for part := range partitions {
		w.fillPartition(part, n)
	}
}

func (w *world) fillPartition(part int32, n int) {
	p := push.Partition{Topic: "push.test", ID: part}
	t := pipeline.NewTracker(pipeline.TrackerOptions{Partition: p, Capacity: n, Lease: w.lease})
	w.trackers[part] = t
	for from := 0; from < n; from += 100 {
		b := &pipeline.Batch{Partition: p, Tracker: t, Items: make([]pipeline.Item, min(100, n-from))}
		for i := range b.Items {
			offset := int64(from+i) * 2 // offsets have gaps
			it := &b.Items[i]
			it.Partition, it.Offset, it.Timestamp, it.FirstSeen = p, offset, push.At(time.Now()), push.At(time.Now())
			it.Message = push.Message{ID: fmt.Sprintf("id-%d-%d", part, from+i), UserID: fmt.Sprintf("u%d", i%17), App: "shop", SenderID: senders[i%len(senders)]}
			w.ids[part], w.sender[it.ID] = append(w.ids[part], it.ID), it.SenderID
			keys(from+i, it)
			if (from+i)%50 == 49 {
				it.Decide(push.Dead, push.BadJSON, "")
			}
		}
		t.Admit(b)
		w.batches = append(w.batches, b)
	}
}

// retry makes the records retries, some of them last tries.
func (w *world) retry() {
	for _, b := range w.batches {
		for i := range b.Items {
			b.Items[i].Attempt = i % 4
		}
	}
}

func (w *world) Next(ctx context.Context) (*pipeline.Batch, error) {
	w.mu.Lock()
	if len(w.batches) > 0 {
		b := w.batches[0]
		w.batches = w.batches[1:]
		w.mu.Unlock()
		return b, nil
	}
	w.mu.Unlock()
	select {
	case <-w.feed:
		return w.Next(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Commit also checks what the whole project is about: nothing is committed
// whose record has no durable outcome.
func (w *world) Commit(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chance(0.2) {
		return errors.New("not the coordinator")
	}
	if w.frozen {
		return errors.New("rebalance in progress")
	}
	for part, t := range w.trackers {
		next, ok := t.Watermark()
		if !ok {
			continue
		}
		if next < w.commits[part] {
			w.rewinds++
		}
		for i := w.commits[part] / 2; i*2 < next; i++ {
			if id := w.ids[part][i]; len(w.rows[id]) == 0 || w.seen[id] == 0 && !w.once { // once: the next owner rereads what is not yet seen
				w.early = append(w.early, id)
			} else if !w.once && isTold(w.sender[id]) && w.finals(id) > 0 && len(w.told[id])+len(w.buried[id]) == 0 {
				w.early = append(w.early, id+" of which its sender was not told")
			}
		}
		w.commits[part] = max(next, w.commits[part])
		t.Committed(next)
	}
	return nil
}

func (w *world) Produce(_ context.Context, hs []pipeline.Handover) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, h := range hs {
		if i == len(hs)/2 && w.chance(0.3) {
			return errors.New("half of it is there")
		}
		if h.To == pipeline.ToEnds && h.Item.SenderID == w.awayFor || w.allAway && (h.To == pipeline.ToEnds || h.To == pipeline.ToDeadEnds) {
			return &pipeline.PartlyError{Open: numbers(i, len(hs)), Err: errors.New("unknown topic")}
		}
		w.lives.written(&h)
		switch h.To {
		case pipeline.ToEnds:
			w.told[h.Item.ID] = append(w.told[h.Item.ID], string(h.Event))
			if w.breaks && h.Item.SenderID == "orders" {
				w.breaks, w.awayFor = false, "orders"
			}
		case pipeline.ToDeadEnds:
			w.buried[h.Item.ID] = append(w.buried[h.Item.ID], string(h.Event)+": "+h.Detail)
			if w.mends {
				w.awayFor, w.allAway = "", false
			}
		case pipeline.ToRetry:
			w.retried[h.Item.ID]++
		case pipeline.ToHold:
			w.held[h.Item.ID]++
			w.due[h.Item.ID] = h.NotBefore
		case pipeline.ToDLQ:
			w.dead[h.Item.ID]++
		case pipeline.ToFeedback:
			w.feedback[h.Item.ID]++
			if sent := w.sentAt[h.Device.Hash]; !h.SentAt.Equal(sent) {
				w.untrue = append(w.untrue, fmt.Sprintf("%s: feedback names a send at %v, it was at %v", h.Item.ID, h.SentAt, sent))
			}
		}
	}
	return nil
}

// numbers are those from one to before another.
func numbers(i, n int) (all []int) {
	for ; i < n; i++ {
		all = append(all, i)
	}
	return all
}

func (w *world) Write(_ context.Context, rows []push.Row) error {
	time.Sleep(time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chance(0.2) {
		return errors.New("write timeout")
	}
	for _, r := range rows {
		if !slices.ContainsFunc(w.rows[r.ID], func(o push.Row) bool { return o.Device == r.Device && o.Step == r.Step && o.State == r.State }) {
			w.rows[r.ID] = append(w.rows[r.ID], r)
		}
		if r.State != push.StateSending {
			delete(w.exposed, r.Device)
		}
	}
	return nil
}

func (w *world) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read += len(ids)
	if w.chance(0.2) {
		return nil, errors.New("read timeout")
	}
	rows := make([][]push.Row, len(ids))
	for i, id := range ids {
		rows[i] = slices.Clone(w.rows[id])
	}
	return rows, nil
}

func (*world) Bucket(id string) int64 { return int64(len(id)) }

func (w *world) Add(_ context.Context, ids []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chance(0.3) {
		return errors.New("filter is full")
	}
	for _, id := range ids {
		w.seen[id]++
	}
	return nil
}

// Stage: fails now and then, suppresses some, gives the others 1 to 3 devices.
func (w *world) Name() pipeline.Step { return "devices" }

func (w *world) Apply(_ context.Context, b *pipeline.Batch) error {
	w.lives.applied(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chance(0.3) {
		return errors.New("store is down")
	}
	for i := range b.Items {
		it := &b.Items[i]
		if it.Verdict != push.Undecided {
			continue
		}
		if i%20 == 3 {
			it.Decide(push.Suppressed, push.OptedOutAll, "")
			continue
		}
		if i%4 == 0 {
			it.Confirmed = pipeline.UptimeAt(w.confirmed)
		}
		for d := range 1 + i%3 {
			r := push.Route{Platform: push.APNS, App: "shop"}
			if d == 1 {
				r.Platform = push.FCM
			}
			it.Deliveries = append(it.Deliveries, pipeline.Delivery{Item: it, Route: r,
				Device: pipeline.Device{Hash: fmt.Sprintf("%s-d%d", it.ID, d)}, Expires: push.At(time.Now().Add(time.Hour))})
		}
	}
	return nil
}

const sendDeadline = time.Second

// provider answers each delivery after a random time with a random result.
type provider struct {
	w   *world
	out sync.WaitGroup
}

func (p *provider) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.w.mu.Lock()
		if it := d.Item; p.w.once && p.w.commits[it.Partition.ID] <= it.Offset {
			p.w.early = append(p.w.early, it.ID+" was sent before its offset was committed")
		}
		p.w.sentAt[d.Device.Hash] = time.Now()
		if left := time.Until(d.Deadline.Time()); left != sendDeadline {
			p.w.untrue = append(p.w.untrue, fmt.Sprintf("%s: sent with %v left for its answer, want %v", d.Item.ID, left, sendDeadline))
		}
		wait := time.Duration(p.w.random.IntN(200)) * time.Millisecond
		pick := p.w.random.IntN(11)
		p.w.mu.Unlock()
		p.out.Go(func() {
			time.Sleep(wait)
			switch pick {
			case 10: // given back unsent: to be sent later
			case 0:
				d.Result = push.Result{Class: push.Again, Reason: "ServiceUnavailable"}
			case 1:
				d.Result = push.Result{Class: push.Gone, Reason: "Unregistered"}
			case 2:
				d.Result = push.Result{Class: push.Refused, Reason: "PayloadTooLarge"}
			default:
				d.Result = push.Result{Class: push.Delivered}
				p.w.mu.Lock()
				p.w.accepted[d.Device.Hash]++
				p.w.mu.Unlock()
			}
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

func (w *world) pipeline(t *testing.T, window int) (*pipeline.Pipeline, *provider) {
	t.Helper()
	pr := &provider{w: w}
	return w.pipelineTo(t, window, pr, pr), pr
}

func (w *world) pipelineTo(t *testing.T, window int, apns, fcm pipeline.Provider) *pipeline.Pipeline {
	t.Helper()
	return w.make(t, w, w, window, apns, fcm)
}

// pipelineFrom takes its batches, and their devices, from another source.
func (w *world) pipelineFrom(t *testing.T, in *partition, apns, fcm pipeline.Provider) *pipeline.Pipeline {
	t.Helper()
	return w.make(t, in, in, 50, apns, fcm)
}

func (w *world) make(t *testing.T, in pipeline.Source, devices pipeline.Stage, window int, apns, fcm pipeline.Provider) *pipeline.Pipeline {
	t.Helper()
	w.registry = prometheus.NewRegistry()
	p, err := pipeline.New(pipeline.Options{
		Lane: "test", Source: in, Stages: []pipeline.Stage{devices}, Producer: w, Status: w, Ledger: w, Seen: w, Latest: &w.lives,
		Routes: map[push.Route]pipeline.Provider{{Platform: push.APNS, App: "shop"}: apns, {Platform: push.FCM, App: "shop"}: fcm},
		Policy: pipeline.Policy{MaxRetries: 3, RetryDelays: []time.Duration{cmp.Or(w.tier, 30*time.Second)}, DropAmbiguous: w.once || w.drops}, StageWorkers: cmp.Or(w.stageWorkers, 2), Window: window,
		SendDeadline: sendDeadline, StatusTimeout: time.Second, Drain: 5 * time.Second, CommitTimeout: time.Second, CommitInterval: 50 * time.Millisecond,
		Once: w.once, Gates: w.gates, Limit: w.limit, Ends: toldSenders{}, Metrics: pipeline.NewMetrics(w.registry), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConservation feeds records through a pipeline in which everything fails
// now and then: every record ends with rows for all its devices, the offsets
// end at the log's end, and no commit ever passed an open record.
func TestConservation(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(seed)
				w.confirmed = time.Now().Add(-time.Minute) // so they are read again
				w.fill(3, 1000)
				if seed%4 == 3 {
					w.retry()
				}
				p, pr := w.pipeline(t, 300)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() {
					if err := p.Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
				})
				w.wait(t)
				stop()
				run.Wait()
				pr.out.Wait()
				w.check(t)
			})
		})
	}
}

// wait lets virtual time pass until every partition is committed to its end.
func (w *world) wait(t *testing.T) {
	t.Helper()
	for range 3600 {
		time.Sleep(time.Second)
		w.mu.Lock()
		open := 0
		for _, tr := range w.trackers {
			open += tr.Open()
		}
		w.mu.Unlock()
		if open == 0 {
			return
		}
	}
	t.Fatal("not finished within an hour of virtual time")
}

func (w *world) check(t *testing.T) {
	t.Helper()
	w.faults = false
	w.lives.check(t)
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for part, ids := range w.ids {
		if got, want := w.commits[part], int64(len(ids)-1)*2+1; got != want {
			t.Errorf("partition %d committed up to %d, want %d", part, got, want)
		}
	}
	if len(w.untrue) > 0 {
		t.Errorf("wrong hand-overs or deadlines: %v", w.untrue)
	}
	if w.rewinds > 0 || len(w.early) > 0 {
		t.Errorf("%d rewinds, committed without outcome: %v", w.rewinds, w.early)
	}
	for hash, n := range w.accepted {
		if n > 1 {
			t.Errorf("device %s was sent to %d times", hash, n)
		}
	}
	states := map[push.State]int{}
	for _, ids := range w.ids {
		for _, id := range ids {
			w.checkOne(t, id, states)
		}
	}
	for _, s := range []push.State{push.StateDelivered, push.StateFailed, push.StateSuppressed, push.StateDeadLettered, push.StateRetrying} {
		if states[s] == 0 {
			t.Errorf("setup: no row has state %v", s)
		}
	}
}

// checkOne checks the rows of one notification and the records they promise.
func (w *world) checkOne(t *testing.T, id string, states map[push.State]int) {
	t.Helper()
	rows := w.rows[id]
	if w.once {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r push.Row) bool { return r.State == push.StateSending })
	}
	if len(rows) == 0 {
		t.Errorf("%s has no row", id)
	}
	devices := map[string]bool{}
	for _, r := range rows {
		states[r.State]++
		if devices[r.Device] {
			t.Errorf("%s has two rows for one device: %+v", id, rows)
		}
		devices[r.Device] = true
		switch {
		case r.State == push.StateRetrying && w.retried[id] == 0:
			t.Errorf("%s is RETRYING without a retry record", id)
		case r.State == push.StateDeadLettered && w.dead[id] == 0:
			t.Errorf("%s is DEAD_LETTERED without a copy in the DLQ", id)
		case r.Reason == "Unregistered" && w.feedback[id] == 0:
			t.Errorf("%s has a dead token without feedback", id)
		case r.State == push.StateDelivered && w.accepted[r.Device] != 1:
			t.Errorf("%s is DELIVERED, but the provider accepted it %d times", r.Device, w.accepted[r.Device])
		}
	}
}

// TestDrainOnRevoke: a partition leaves in the middle. What was sent has its
// rows, what was not is abandoned, and a second owner that starts at the
// committed offset, with confirm reads, leaves nothing open and sends nothing
// twice.
func TestDrainOnRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(7)
		w.faults = false
		w.stageWorkers = 1 // the first record is among the first that are sent
		w.fill(1, 2000)
		p, pr := w.pipeline(t, 50)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(2 * time.Second)

		tracker := w.trackers[0]
		drain, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := tracker.Drain(drain); err != nil {
			t.Fatalf("drain: %v, %d open", err, tracker.Open())
		}
		next, ok := tracker.Watermark()
		if !ok || next == 0 || tracker.Open() == 0 {
			t.Fatalf("setup: watermark %d (%v) with %d open, want progress and open records", next, ok, tracker.Open())
		}
		tracker.Fence()
		if _, ok := tracker.Watermark(); ok {
			t.Error("a fenced tracker still returns a watermark")
		}
		for i, id := range w.ids[0] {
			if int64(i)*2 < next && len(w.rows[id]) == 0 {
				t.Errorf("%s is below the watermark but has no row", id)
			}
		}
		for hash := range w.accepted {
			if !slices.ContainsFunc(slices.Collect(maps.Values(w.rows)), func(rows []push.Row) bool {
				return slices.ContainsFunc(rows, func(r push.Row) bool { return r.Device == hash })
			}) {
				t.Errorf("%s was accepted before the fence but has no row", hash)
			}
		}
		stop()
		run.Wait()
		pr.out.Wait()
	})
}

// TestNothingIsSentWithoutALease: while the coordinator is silent nothing goes
// out, and what was given back goes on when it answers, with no attempt
// counted. A worker that ends meanwhile abandons it to the next owner.
func TestNothingIsSentWithoutALease(t *testing.T) {
	for _, heardAgain := range []bool{true, false} {
		t.Run(fmt.Sprint("heard again ", heardAgain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(11)
				w.faults, w.lease = false, new(lease)
				w.lease.Extend(time.Now().Add(2 * time.Second))
				w.fill(1, 2000)
				p, pr := w.pipeline(t, 50)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				time.Sleep(3 * time.Second)
				sent := w.sent()
				time.Sleep(time.Minute)
				if now := w.sent(); sent == 0 || now != sent || w.trackers[0].Open() == 0 {
					t.Errorf("got %d sends at the end of the lease, %d a minute later, and %d open records; want no new sends and some open", sent, now, w.trackers[0].Open())
				}
				if heardAgain {
					w.lease.Extend(time.Now().Add(time.Hour))
					w.wait(t)
				}
				stop()
				run.Wait()
				pr.out.Wait()
				if heardAgain {
					w.check(t)
				} else if now := w.sent(); now != sent {
					t.Errorf("%d were sent without a lease during the stop", now-sent)
				}
			})
		})
	}
}

// sent is how many sends were accepted.
func (w *world) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.accepted)
}

// TestStatusDownStopsSending: without durable rows, whether the store refuses
// them or never answers, no more is sent than the window, nothing is committed,
// and all goes on when the store is back.
func TestStatusDownStopsSending(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(3, 1, 3000)
			const window = 40
			p, pr := w.pipeline(t, window)
			down := &downStatus{world: w, hangs: hangs, back: make(chan struct{})}
			p.Options().Status = down
			stop := w.starts(t, p)
			time.Sleep(3 * time.Minute)
			w.mu.Lock()
			// Only Delivered and Refused hold their place until their row is
			// durable; two routes, a window each.
			if n := len(w.accepted); n == 0 || n > 2*window {
				t.Errorf("hangs %v: got %d sends while the status store was down, want 1 to two windows of %d", hangs, n, window)
			}
			if w.commits[0] > 0 {
				t.Errorf("hangs %v: committed up to %d while the status store was down", hangs, w.commits[0])
			}
			w.mu.Unlock()
			if stalls, _ := p.Declared(); len(stalls) == 0 || stalls[0].Name != "status" {
				t.Errorf("hangs %v: got stalls %v, want the status store's first", hangs, stalls)
			}
			close(down.back)
			w.wait(t)
			stop()
			pr.out.Wait()
			w.check(t)
		})
	}
}

// TestFilterDownHoldsTheCommit: what the filter could not be told is not
// committed, so that the next owner confirms it; and a partition that leaves
// does not wait for the filter.
func TestFilterDownHoldsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(5, 1, 2000)
		p, pr := w.pipeline(t, 50)
		p.Options().Seen = downFilter{w}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(time.Minute)
		w.mu.Lock()
		if len(w.rows) == 0 || w.commits[0] > 0 {
			t.Errorf("got rows of %d ids and a commit up to %d; want some rows and no commit", len(w.rows), w.commits[0])
		}
		w.mu.Unlock()
		drain, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := w.trackers[0].Drain(drain); err != nil {
			t.Errorf("drain: %v, %d open", err, w.trackers[0].Open())
		}
		if next, _ := w.trackers[0].Watermark(); next > 0 {
			t.Errorf("got watermark %d after the partition left, want none", next)
		}
		stop()
		run.Wait()
		pr.out.Wait()
	})
}

// downFilter takes nothing.
type downFilter struct{ *world }

func (downFilter) Add(context.Context, []string) error { return errors.New("redis is away") }

// downStatus takes no rows before it is back: it refuses them, or does not answer.
type downStatus struct {
	*world
	hangs bool
	back  chan struct{}
}

func (s *downStatus) Write(ctx context.Context, rows []push.Row) error {
	if s.hangs {
		select {
		case <-s.back:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-s.back:
		return s.world.Write(ctx, rows)
	default:
	}
	if len(rows) > 0 {
		return errors.New("no hosts available in the pool")
	}
	return nil
}
