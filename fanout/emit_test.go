package fanout

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

func mustDecode(t *testing.T, value []byte) *push.Message {
	t.Helper()
	var m push.Message
	if d := decode.Message(value, &m); d != nil {
		t.Fatalf("a worker cannot read %s: %v", value, d)
	}
	return &m
}

// aliveJob is a job that has not expired in the time of a bubble, which begins in 2000.
func aliveJob(t *testing.T, change ...func(*Job)) *Job {
	return aJob(t, append([]func(*Job){func(j *Job) { j.To.Parts = 1 }}, change...)...)
}

func TestChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := append(manyUsers(95),
			Member{User: "puller", Pull: true},
			Member{User: "gone", Left: true, Pull: true},
			Member{User: "early", Since: since(0)},
			Member{User: "late", Since: since(time.Millisecond)},
			Member{User: "low", Priority: push.Low},
			Member{User: "higher", Priority: push.Critical},
			Member{User: strings.Repeat("x", maxUser+1)},
			Member{User: "\xff"})
		w := newWorld(members)
		j := aliveJob(t)
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		p, err := w.notes.Look(t.Context(), j.Message)
		if err != nil || p != nil {
			t.Fatalf("a job that nobody began: %v, %v", p, err)
		}
		if _, err := w.notes.Begin(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if p, err = w.notes.Look(t.Context(), j.Message); err != nil {
			t.Fatal(err)
		}
		if want := map[string]int64{"pull": 1, "left": 1, "later": 1, "bad_user": 2}; len(p.Ended) != 1 || p.Emitted != 98 || !reflect.DeepEqual(p.ByReason(), want) {
			t.Errorf("noted %+v, skipped %v", p, p.ByReason())
		}
		by := w.ledger.receivers(t, j.Topic)
		if len(by) != 98 || by["early"] == nil || by["user-000094"] == nil {
			t.Errorf("%d receivers", len(by))
		}
		for user, ids := range by {
			if len(ids) != 1 || ids[ID(j.Message, user)] != 1 {
				t.Errorf("%s got %v", user, ids)
			}
		}
		for i, r := range w.ledger.written {
			m := mustDecode(t, r.Value)
			want := map[string]push.Priority{"low": push.Low}[m.UserID]
			if want == 0 {
				want = j.Priority
			}
			if string(r.Key) != m.UserID || r.Partition != PartitionOf(m.UserID, 6) || !r.At.Equal(j.Accepted) || m.Priority != want {
				t.Errorf("record %d for %s: key %s, partition %d, at %v, priority %v", i, m.UserID, r.Key, r.Partition, r.At, m.Priority)
			}
		}
		// Once more, as after a death before the commit: nothing is repeated.
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil || len(w.ledger.written) != 98 {
			t.Errorf("the repeat of a chunk that has ended: %v, %d records", err, len(w.ledger.written))
		}
	})
}

// Of a message no more than Open chunks are in Kafka: each brings the one Open on.
func TestChunksBringOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(40))
		j := aliveJob(t, func(j *Job) { j.To.Parts = 4 })
		x := &Expander{Producer: w.ledger, Notes: w.notes, Open: 2, Metrics: w.Metrics, Log: w.Log}
		value, err := EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Do(t.Context(), &Work{Topic: JobsTopic, Value: value}); err != nil {
			t.Fatal(err)
		}
		var parts []int
		for i := 0; i < len(w.ledger.in(ChunksTopic(j.Lane))); i++ {
			if open := len(w.ledger.in(ChunksTopic(j.Lane))) - i; open > 2 {
				t.Errorf("%d chunks are open", open)
			}
			c, err := DecodeChunk(w.ledger.in(ChunksTopic(j.Lane))[i])
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, c.Part)
			if err := w.do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(parts, []int{0, 1, 2, 3}) || len(w.ledger.receivers(t, j.Topic)) != 40 {
			t.Errorf("parts %v, %d receivers", parts, len(w.ledger.receivers(t, j.Topic)))
		}
	})
}

// The job that came first holds: a repeat that was accepted later has other pins.
func TestFirstJobHolds(t *testing.T) {
	w := newWorld(nil)
	x := &Expander{Producer: w.ledger, Notes: w.notes, Open: 2, Metrics: w.Metrics, Log: w.Log}
	for _, partitions := range []int32{6, 12} {
		value, err := EncodeJob(aJob(t, func(j *Job) {
			j.Partitions, j.Accepted = partitions, j.Accepted.Add(time.Duration(partitions)*time.Second)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Do(t.Context(), &Work{Topic: JobsTopic, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	chunks := w.ledger.in(ChunksTopic("promotional"))
	if len(chunks) != 4 {
		t.Fatalf("%d chunks", len(chunks))
	}
	for _, value := range chunks {
		if c, err := DecodeChunk(value); err != nil || c.Partitions != 6 || !c.Accepted.Equal(since(6*time.Second)) {
			t.Errorf("chunk %+v, %v", c, err)
		}
	}
}

// What fails leaves no note, and what is done again has the same ids.
func TestFailuresAreRepeated(t *testing.T) {
	for name, trouble := range map[string]func(*world) (mend func()){
		"a page cannot be read": func(w *world) func() {
			w.crowd.onRead = func(read int) {
				if read == 3 {
					w.crowd.err = errFake
				}
			}
			return func() { w.crowd.onRead, w.crowd.err = nil, nil }
		},
		"a record is not acknowledged": func(w *world) func() {
			w.ledger.ack = func(n int, _ *Record) error {
				if n == 17 {
					return errFake
				}
				return nil
			}
			return func() { w.ledger.ack = nil }
		},
		"the lag is not known": func(w *world) func() {
			w.lag.set(0, errFake)
			return func() { w.lag.set(0, nil) }
		},
		"the next chunk is not acknowledged": func(w *world) func() {
			w.ledger.ack = func(_ int, r *Record) error {
				if r.Topic == ChunksTopic("promotional") {
					return errFake
				}
				return nil
			}
			return func() { w.ledger.ack = nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(manyUsers(60))
				j := aliveJob(t, func(j *Job) { j.To.Parts = 4 })
				mend := trouble(w)
				err := w.do(t.Context(), &Chunk{Job: j})
				if !errors.Is(err, errFake) {
					t.Fatalf("error %v", err)
				}
				if ended, _ := w.notes.Ended(t.Context(), j.Message, 0); ended {
					t.Error("noted although it failed")
				}
				mend()
				if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
					t.Fatal(err)
				}
				if ended, _ := w.notes.Ended(t.Context(), j.Message, 0); !ended {
					t.Error("not noted")
				}
				first, end := j.To.Slices(0)
				for _, m := range w.crowd.members {
					if in := SliceOf(m.User) >= first && SliceOf(m.User) < end; in != (w.ledger.receivers(t, j.Topic)[m.User][ID(j.Message, m.User)] > 0) {
						t.Errorf("%s, in the part: %v", m.User, in)
					}
				}
			})
		})
	}
}

// A paused chunk is out of the way at once, and goes on where it was.
func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60))
		j := aliveJob(t)
		w.crowd.onRead = func(read int) {
			if read == 3 {
				_ = w.notes.Order(t.Context(), j.Message, Paused, time.Now())
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		held := w.ledger.in(HoldTopic(j.Lane))
		if len(held) != 1 || len(w.ledger.in(j.Topic)) != 30 {
			t.Fatalf("%d chunks are held, %d receivers have got it", len(held), len(w.ledger.in(j.Topic)))
		}
		h := &Holder{Producer: w.ledger, Notes: w.notes, Metrics: w.Metrics, Log: w.Log}
		start := time.Now()
		if err := h.Do(t.Context(), &Work{Topic: HoldTopic(j.Lane), Value: held[0], At: start}); err != nil {
			t.Fatal(err)
		}
		if again := w.ledger.in(HoldTopic(j.Lane)); len(again) != 2 || time.Since(start) != HoldFor || string(again[1]) != string(held[0]) {
			t.Fatalf("held %d times after %v", len(again), time.Since(start))
		}
		if err := w.notes.Order(t.Context(), j.Message, Running, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := h.Do(t.Context(), &Work{Topic: HoldTopic(j.Lane), Value: held[0], At: start.Add(time.Hour)}); err != nil { // written by a clock that is ahead
			t.Fatal(err)
		}
		chunks := w.ledger.in(ChunksTopic(j.Lane))
		if len(chunks) != 1 || time.Since(start) != 2*HoldFor {
			t.Fatalf("%d chunks after %v", len(chunks), time.Since(start))
		}
		if err := w.Do(t.Context(), &Work{Value: chunks[0]}); err != nil {
			t.Fatal(err)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 60 || len(w.ledger.in(j.Topic)) != 60 {
			t.Errorf("%d records for %d receivers: nobody is to get it twice", len(w.ledger.in(j.Topic)), len(by))
		}
		if _, err := w.notes.Begin(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if p, _ := w.notes.Look(t.Context(), j.Message); p.Emitted != 60 || len(p.Ended) != 1 {
			t.Errorf("noted %+v", p)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60))
		j := aliveJob(t, func(j *Job) { j.To.Parts = 2 })
		if _, err := w.notes.Begin(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		w.limits.Open = 1
		w.crowd.onRead = func(read int) {
			if read == 2 {
				_ = w.notes.Order(t.Context(), j.Message, Cancelled, time.Now())
				_ = w.notes.Order(t.Context(), j.Message, Running, time.Now().Add(time.Hour)) // too late
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		p, _ := w.notes.Look(t.Context(), j.Message)
		if p.State != Cancelled || p.Emitted != 20 || len(p.Ended) != 1 || len(w.ledger.in(j.Topic)) != 20 || len(w.ledger.in(ChunksTopic(j.Lane))) != 0 {
			t.Errorf("noted %+v, %d records", p, len(w.ledger.in(j.Topic)))
		}
		held := (&Chunk{Job: j, Part: 1, Done: Cursor{"user-000001", Counts{Emitted: 7}}}).encode()
		h := &Holder{Producer: w.ledger, Notes: w.notes, Metrics: w.Metrics, Log: w.Log}
		if err := h.Do(t.Context(), &Work{Value: held, At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if p, _ := w.notes.Look(t.Context(), j.Message); p.Emitted != 27 || len(p.Ended) != 2 {
			t.Errorf("noted %+v", p)
		}
		value, _ := EncodeJob(j)
		x := &Expander{Producer: w.ledger, Notes: w.notes, Open: 2, Metrics: w.Metrics, Log: w.Log}
		if err := x.Do(t.Context(), &Work{Value: value}); err != nil || len(w.ledger.in(ChunksTopic(j.Lane))) != 0 {
			t.Errorf("a cancelled job was expanded: %v", err)
		}
	})
}

// A partition that leaves gets the chunk back where it was, and the next owner goes on.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60))
		j := aliveJob(t)
		leaving := make(chan struct{})
		w.crowd.onRead = func(read int) {
			if read == 4 {
				close(leaving)
			}
		}
		work := &Work{Value: (&Chunk{Job: j}).encode(), Leaving: leaving}
		if err := w.Do(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		back := w.ledger.in(ChunksTopic(j.Lane))
		if len(back) != 1 || len(w.ledger.in(j.Topic)) != 40 {
			t.Fatalf("%d chunks, %d records", len(back), len(w.ledger.in(j.Topic)))
		}
		if err := w.Do(t.Context(), work); !errors.Is(err, errLeaving) || len(w.ledger.in(ChunksTopic(j.Lane))) != 1 {
			t.Errorf("what has not begun is the next owner's as it is: %v", err)
		}
		if err := w.Do(t.Context(), &Work{Value: back[0]}); err != nil {
			t.Fatal(err)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 60 || len(w.ledger.in(j.Topic)) != 60 {
			t.Errorf("%d records for %d receivers", len(w.ledger.in(j.Topic)), len(by))
		}
	})
}

// A chunk begins only when the workers have caught up, and once begun goes on.
func TestPacedByLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60))
		j := aliveJob(t)
		w.lag.set(1000, nil)
		ended := make(chan error, 1)
		go func() { ended <- w.do(t.Context(), &Chunk{Job: j}) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(w.ledger.in(j.Topic)); n != 0 || w.lag.asked > 62 {
			t.Fatalf("%d records while the lane was behind, asked %d times", n, w.lag.asked)
		}
		w.lag.set(999, nil)
		if err := <-ended; err != nil || len(w.ledger.in(j.Topic)) != 60 {
			t.Fatalf("%d records: %v", len(w.ledger.in(j.Topic)), err)
		}
		// What was produced since counts, before the group's commits show it.
		if behind, err := w.pace.behind(t.Context(), nil); !behind || err != nil {
			t.Errorf("behind %v, %v", behind, err)
		}
		time.Sleep(lookEvery)
		if behind, err := w.pace.behind(t.Context(), nil); behind || err != nil {
			t.Errorf("later: behind %v, %v", behind, err)
		}
	})
}

func TestPacedByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60), func(l *Limits) { l.Rate = 5 })
		start := time.Now()
		if err := w.do(t.Context(), &Chunk{Job: aliveJob(t)}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("6 pages of 10 at 5 a second took %v, want 10s: the last one leaves after that", took)
		}
	})
}

// No more is on its way than the window has room for, and memory is not used again before
// its records are acknowledged.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60), func(l *Limits) { l.Records = 25 })
		w.ledger.hold = true
		j := aliveJob(t)
		ended := make(chan error, 1)
		go func() { ended <- w.do(t.Context(), &Chunk{Job: j}) }()
		for range 6 {
			synctest.Wait()
			w.ledger.release()
		}
		if err := <-ended; err != nil || w.ledger.most != 20 {
			t.Errorf("%v, %d records were on their way at once", err, w.ledger.most)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 60 {
			t.Errorf("%d receivers", len(by))
		}
	})
}

func TestPagesFitTheWindow(t *testing.T) {
	w := newWorld(nil, func(l *Limits) { l.Page, l.Records = 5000, 5000 })
	large := aJob(t, func(j *Job) {
		j.Rest = []byte(`"sender_id":"shop","app":"shop","title":"` + strings.Repeat("x", 60_000) + `"}`)
	})
	if got := w.pageOf(large); got != 8 {
		t.Errorf("pages of %d records of 60 KB", got)
	}
	if got := w.pageOf(aJob(t)); got < 400 || got > 1000 {
		t.Errorf("pages of %d small records in 1 MiB", got)
	}
}

// After its expiry nobody gets a message, and all are counted.
func TestExpired(t *testing.T) {
	w := newWorld(manyUsers(30))
	j := aliveJob(t)
	j.Accepted, j.Expires = time.UnixMilli(1000).UTC(), time.UnixMilli(2000).UTC()
	if err := j.prepare(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
		t.Fatal(err)
	}
	if p, _ := w.notes.Look(t.Context(), j.Message); p.Emitted != 0 || p.Skipped[SkipExpired] != 30 || len(w.ledger.written) != 0 {
		t.Errorf("noted %+v, %d records", p, len(w.ledger.written))
	}
}

// Copies of a chunk wait for each other: one emits, and the others see that it has ended.
func TestCopiesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(30))
		w.ledger.hold = true
		j := aliveJob(t, func(j *Job) { j.To.Parts = 1 })
		ended := make(chan error, 3)
		for range 3 {
			go func() { ended <- w.do(t.Context(), &Chunk{Job: j}) }()
		}
		for w.release(); len(ended) < 3; w.release() {
			synctest.Wait()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := len(w.ledger.in(j.Topic)); n != 30 {
			t.Errorf("%d records of 30 receivers", n)
		}
	})
}

func (w *world) release() { w.ledger.release() }

// What cannot be read goes where operators find it, and a later release's waits.
func TestBrokenRecords(t *testing.T) {
	w := newWorld(nil)
	x := &Expander{Producer: w.ledger, Notes: w.notes, Open: 2, Metrics: w.Metrics, Log: w.Log}
	h := &Holder{Producer: w.ledger, Notes: w.notes, Metrics: w.Metrics, Log: w.Log}
	for i, do := range []func(context.Context, *Work) error{w.Do, x.Do, h.Do} {
		if err := do(t.Context(), &Work{Topic: "t", Key: []byte("k"), Value: []byte("nonsense")}); err != nil {
			t.Error(err)
		}
		if dead := w.ledger.in(DeadTopic); len(dead) != i+1 || string(dead[i]) != "nonsense" {
			t.Errorf("%d dead records", len(dead))
		}
	}
	later := aJob(t).append(nil)
	later[0] = sealedVersion + 1
	if err := x.Do(t.Context(), &Work{Value: later}); !errors.Is(err, ErrVersion) || len(w.ledger.in(DeadTopic)) != 3 {
		t.Errorf("of a later release: %v", err)
	}
}
