package kafka

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// handed is a batch that was handed out: when, counted from the first record of a test on, and how many records.
type handed struct {
	at      time.Duration
	records int
}

// handedOut is what a source of the topic t hands out, when n records are produced at each of some times after it has
// been there for a while. They are due.
func handedOut(t *testing.T, o SourceOptions, after time.Duration, at []time.Duration, n int) (got []handed) {
	t.Helper()
	v := newVirtual(t, kfake.SeedTopics(1, "t"))
	o.Group = "g"
	s, err := NewSource(v.options(v.network.DialContext), o)
	if err != nil {
		t.Fatal(err)
	}
	s.Join()
	writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	time.Sleep(after) // it has its partition, and polls
	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	reading := make(chan struct{}) // closed when nothing is read any more
	go func() {
		defer close(reading)
		var open []*pipeline.Batch
		for {
			b, err := s.Next(ctx)
			if err != nil {
				done(open...)
				return
			}
			got, open = append(got, handed{time.Since(began), len(b.Items)}), append(open, b)
		}
	}()
	headers := []kgo.RecordHeader{header("pf-v", "1")}
	if o.Topics[0].Kind == Hold {
		headers = append(headers, header("pf-not-before", strconv.FormatInt(began.Add(-time.Second).UnixMilli(), 10)))
	}
	for _, d := range at {
		time.Sleep(d - time.Since(began))
		some := make([]*kgo.Record, n)
		for i := range some {
			some[i] = &kgo.Record{Topic: "t", Value: []byte("{}"), Headers: headers}
		}
		if err := writer.ProduceSync(t.Context(), some...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second)
	stop()
	<-reading
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return got
}

// A record that comes alone is handed out at once; those that follow it closely are handed out when a
// linger has passed, all together, and wait for no more than a quarter more.
func TestWhenRecordsAreHandedOut(t *testing.T) {
	const linger = 20 * time.Millisecond
	at := func(ms ...int) (times []time.Duration) {
		for _, n := range ms {
			times = append(times, time.Duration(n)*time.Millisecond)
		}
		return times
	}
	for _, row := range []struct {
		why    string
		topics []SourceTopic
		linger time.Duration
		at     []time.Duration // when the records are produced
		want   []handed        // each no later than 2 ms after
	}{
		{"alone", mainTopic("t"), linger, at(0), []handed{{0, 1}}},
		{"alone again, after the rest", mainTopic("t"), linger, at(0, 50), []handed{{0, 1}, {50 * time.Millisecond, 1}}},
		{"one during the rest, which the client holds: it has waited for nothing since it came to the worker", mainTopic("t"), linger, at(0, 10), []handed{{0, 1}, {25 * time.Millisecond, 1}}},
		{"more during the rest: one batch of what the client held and of what was still at the broker", mainTopic("t"), linger, at(0, 2, 4, 8, 16, 19), []handed{{0, 1}, {21 * time.Millisecond, 5}}},
		{"and the next rest", mainTopic("t"), linger, at(0, 5, 15, 25, 35), []handed{{0, 1}, {21 * time.Millisecond, 2}, {42 * time.Millisecond, 2}}},
		{"a delayed topic waits for those that become due next", tier("t", time.Second), linger, at(0), []handed{{linger + time.Second, 1}}},
		{"no rest is as long as this linger", mainTopic("t"), 1500 * time.Millisecond, at(0, 700), []handed{{1500 * time.Millisecond, 2}}},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := handedOut(t, SourceOptions{Topics: row.topics, Linger: row.linger}, 5*time.Second, row.at, 1)
				if !slices.EqualFunc(got, row.want, func(g, w handed) bool {
					return g.records == w.records && g.at >= w.at && g.at <= w.at+2*time.Millisecond
				}) {
					t.Errorf("handed out %v, want %v", got, row.want)
				}
			})
		})
	}
}

// What a batch has taken waits no more, and what came afterwards does.
func TestSettledRecords(t *testing.T) {
	o := options(nil)
	a := part(o, 0)
	a.take(sized(3, 1, start), start)
	if ok, _ := a.ready(start); ok {
		t.Fatal("three records are ready before the linger has passed")
	}
	a.settle()
	a.take(sized(2, 1, start), start.Add(time.Millisecond))
	if ok, _ := a.ready(start.Add(time.Millisecond)); !ok {
		t.Fatal("what is to wait for nothing is not ready")
	}
	a.drop(2, a.waiting[0].bytes()+a.waiting[1].bytes())
	if ok, _ := a.ready(start.Add(time.Millisecond)); !ok {
		t.Error("the last of those that are to wait for nothing is not ready")
	}
	a.drop(1, a.waiting[0].bytes())
	if ok, again := a.ready(start.Add(time.Millisecond)); ok || !again.Equal(start.Add(time.Millisecond+o.Linger)) {
		t.Errorf("what came afterwards: ready %t, to be asked again after %v; want a linger after it came", ok, again.Sub(start))
	}
	a.settle()
	a.end()
	if ok, _ := a.ready(start.Add(time.Hour)); ok || a.settled != 0 {
		t.Error("an assignment that has ended has something that is ready")
	}
}

// The linger of what a poll has waited for begins when it comes, and not when the poll began: records of a delayed topic
// that are due when they come share a batch with what follows.
func TestTheLingerBeginsWhenRecordsCome(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		why string
		at  []time.Duration
		n   int // at each
	}{
		{"one by one", []time.Duration{0, 2 * ms, 4 * ms}, 1},
		{"in numbers", []time.Duration{0, 5 * ms}, 600},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Polls begin on whole seconds here: it is in the midst of one.
				got := handedOut(t, SourceOptions{Topics: []SourceTopic{{Name: "t", Kind: Hold}}, Linger: 20 * ms}, 5500*ms, row.at, row.n)
				want, all := row.n*len(row.at), 0
				for _, g := range got {
					all += g.records
				}
				// Which fetch brings which of those in numbers is the broker's affair: some wait for two short rests.
				if latest := row.at[len(row.at)-1] + 32*ms; all != want || got[0].at < 20*ms || got[0].at > 22*ms || got[len(got)-1].at > latest {
					t.Errorf("handed out %v; want the first after 20 ms, and all %d after %v at the latest", got, want, latest)
				}
			})
		})
	}
}
