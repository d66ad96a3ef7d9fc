package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
)

// slowLog acknowledges slowly, or fails.
type slowLog struct {
	takes time.Duration
	err   error

	mu    sync.Mutex
	times []time.Time // when each record arrived
}

func (l *slowLog) Append(ctx context.Context, records []kafka.Record) error {
	l.mu.Lock()
	for range records {
		l.times = append(l.times, time.Now())
	}
	l.mu.Unlock()
	select {
	case <-time.After(l.takes):
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newLoading(t *testing.T, rate float64, count int, w appender) *loading {
	f := loadFlags{rate: rate, count: count, app: "shop", seed: 1}
	people, err := f.crowd()
	if err != nil {
		t.Fatal(err)
	}
	return &loading{flags: f, records: people.Records(), writer: w, show: newProgress(io.Discard)}
}

// The rate is kept although each append takes far longer than the pause between
// two records, and the acknowledgement times show it.
func TestLoadIsOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{takes: 2 * time.Second}
		l := newLoading(t, 1000, 5000, log)
		if err := l.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		first, last := log.times[0], log.times[len(log.times)-1]
		if len(log.times) != 5000 || last.Sub(first) < 4900*time.Millisecond || last.Sub(first) > 5100*time.Millisecond {
			t.Errorf("%d records within %v, want 5000 within 5s", len(log.times), last.Sub(first))
		}
		if got := l.acks.quantile(0.99); got < 2*time.Second || got > 2100*time.Millisecond {
			t.Errorf("p99 %v, want 2s and at most a tick more", got)
		}
		if l.acked.Load() != 5000 || l.took < 6900*time.Millisecond {
			t.Errorf("%d acknowledged in %v", l.acked.Load(), l.took)
		}
	})
}

func TestLoadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("no leader")
		l := newLoading(t, 1000, 1_000_000, &slowLog{takes: time.Second, err: failed})
		if err := l.run(t.Context()); !errors.Is(err, failed) || l.acked.Load() != 0 || l.produced > 2100 {
			t.Errorf("failing: %v, %d produced", err, l.produced)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		l = newLoading(t, 1000, 1_000_000, &slowLog{takes: time.Second})
		if err := l.run(ctx); !errors.Is(err, context.DeadlineExceeded) || l.acked.Load() != int64(l.produced) || l.produced < 2900 || l.produced > 3100 {
			t.Errorf("interrupted: %v, %d produced, %d acknowledged", err, l.produced, l.acked.Load())
		}
	})
}

func TestLoadRegistersAndProduces(t *testing.T) {
	f := startFleet(t, true)
	f.startRegistry()
	var got loadAnswer
	if err := json.Unmarshal([]byte(f.ok("load", "--rate", "20000", "--count", "2000", "--users", "50", "--app", "shop", "--register", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	fates := 0
	for _, n := range got.Fates {
		fates += n
	}
	if got.Produced != 2000 || fates != 2000 || got.Fates[crowd.Reaches.String()] == 0 || got.Fates[crowd.IsCopy.String()] == 0 || got.AckP99 < got.AckP50 {
		t.Errorf("%+v", got)
	}
	if n := len(f.records(laneTopic)); n != 2000 {
		t.Errorf("%d records in the topic", n)
	}
	people, err := (&loadFlags{rate: 1, count: 2000, users: 50, app: "shop", seed: 1}).crowd()
	if err != nil {
		t.Fatal(err)
	}
	for i := range people.Users {
		u := people.User(i)
		if len(u.Devices) == 0 {
			continue
		}
		if out := f.ok("devices", "get", u.ID); !strings.Contains(out, u.Devices[0].Hash) {
			t.Errorf("%s is not registered: %s", u.ID, out)
		}
	}
	if out := f.ok("load", "--rate", "20000", "--count", "200", "--app", "shop", "--plain", "-o", "json"); !strings.Contains(out, `"reaches": 200`) {
		t.Errorf("--plain: %s", out)
	}
}

func TestAckTimes(t *testing.T) {
	var acks ackTimes
	if acks.quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 100_000 {
		acks.add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 50 * time.Millisecond, 0.99: 99 * time.Millisecond} {
		if got := acks.quantile(q); got < want-time.Microsecond || got > want+want/60 {
			t.Errorf("quantile %v is %v, want %v and at most 1/64 more", q, got, want)
		}
	}
	for us := uint64(1); us < 1<<46; us = us*3/2 + 1 {
		i := bucketOf(us)
		if end := bucketEnd(i); end < us || i > 0 && bucketEnd(i-1) >= us {
			t.Fatalf("%d is in bucket %d, which ends at %d", us, i, end)
		}
	}
}
