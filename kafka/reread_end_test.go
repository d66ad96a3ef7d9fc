package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// What is read again may end exactly at the committed offset, where the log ends. It
// must not take up room for ever: what comes later is read. Every restart may find
// this: the last commit is made when the intents are durable, and none follows when
// they have their results, so it still names them as unresolved.
func TestWhatIsReadAgainAtTheEndOfTheLogTakesNoRoom(t *testing.T) {
	for reason, set := range map[string]func(*SourceOptions){
		"one open batch":                 func(o *SourceOptions) { o.OpenBatches = 1 },
		"a small share of a retry topic": func(o *SourceOptions) { o.Topics, o.OpenRecords = tier("push", time.Millisecond), 10 },
	} {
		for _, killed := range []bool{true, false} {
			t.Run(fmt.Sprint(reason, ", killed ", killed), func(t *testing.T) {
				c := newCluster(t, 1, []string{"push"})
				options := SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Reread: 10, Drain: mortal}
				set(&options)
				put := func(from, n int) {
					rs := make([]*kgo.Record, n)
					for i := range rs {
						rs[i] = record("push", 0, from+i)
						rs[i].Headers = []kgo.RecordHeader{header("pf-v", "1")}
					}
					c.produceRecords(rs...)
				}
				put(0, 9)
				first := c.source(options)
				var bs []*pipeline.Batch
				for got := 0; got < 9; {
					b := nextItems(t, first, 1)[0]
					got, bs = got+len(b.Items), append(bs, b)
					b.Tracker.Intend(itemsOf(b))
				}
				commits := func(s *Source) {
					if err := s.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				commits(first)
				for _, b := range bs {
					if killed {
						b.Tracker.Abandon(itemsOf(b))
					} else {
						done(b) // the results are there, and it ends in order
					}
				}
				if err := first.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				second := c.source(options)
				again := make(chan int)
				go func() {
					defer close(again)
					for {
						b, err := second.Next(t.Context())
						if err != nil {
							return
						}
						done(b)
						again <- len(b.Items)
					}
				}()
				read := 0
				wait := func(n int) {
					limit := time.After(10 * time.Second)
					for read < n {
						select {
						case got := <-again:
							read += got
						case <-limit:
							return
						}
					}
				}
				wait(9)
				t.Logf("%d are read again", read)
				for range 3 {
					commits(second)
				}
				before := read
				put(9, 5)
				if wait(before + 5); read < before+5 {
					t.Errorf("of what came later %d of 5 are read: %+v, stands still %+v", read-before, second.State(), second.Standstill(time.Now()))
				}
				_ = second.Close(t.Context())
				for range again {
				}
			})
		}
	}
}

// Where only the mark of a transaction follows what is read again, there is no lag: the
// watchdog would end the process for it.
func TestAMarkBehindWhatIsReadAgainIsNoLag(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	producer, err := c.options.newClient(kgo.TransactionalID("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := producer.ProduceSync(t.Context(), record("push", 0, i)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for _, killed := range []bool{false, true} {
		group := map[bool]string{false: "calm", true: "killed"}[killed]
		options := SourceOptions{Group: group, Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Reread: 10, Drain: mortal}
		first := c.source(options)
		b := nextItems(t, first, 5)[0]
		b.Tracker.Intend(itemsOf(b))
		if err := first.Commit(t.Context()); err != nil { // ahead of the results, as commitThrough does
			t.Fatal(err)
		}
		if killed {
			b.Tracker.Abandon(itemsOf(b))
		} else {
			done(b) // and it ends in order
		}
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := c.source(options)
		done(nextItems(t, second, 5)...) // read again
		for range 3 {
			if err := second.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, fmt.Sprintf("nothing lags where the owner before was killed: %v", killed), func() bool {
			second.lookOnce(t.Context())
			st := second.State()
			return len(st) == 1 && st[0].End == 6 && len(second.Standstill(time.Now())) == 0
		})
	}
}
