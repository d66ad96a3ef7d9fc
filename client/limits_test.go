package client

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// limited is a world whose sender may send three messages a minute. Its time is Redis's, and
// moves by the client's pauses alone.
func limited(t *testing.T) *world {
	t.Helper()
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	quotas, err := quota.New(shardstest.Connect(t, redis.Addr()), quota.Options{Fleet: "f", Member: "g", Gateways: 1, Default: quota.Limits{Minute: 3}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}) // closed by the next goroutine
	go func() {
		defer close(ended)
		quotas.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	w := newWorld(t, func(o *gateway.Options) { o.Quotas, o.Times.Confirm = quotas, 5*time.Second })
	now := time.Unix(1_800_000_010, 0) // of a minute 10 s are over
	redis.Mini.SetTime(now)
	w.client.pause = func(ctx context.Context, d time.Duration) error {
		w.pauses = append(w.pauses, d)
		now = now.Add(d)
		redis.Mini.SetTime(now)
		for sender := quotas.Of("orders"); sender.Standings(nil)[0].Remaining == 0 && ctx.Err() == nil; {
			sender.Refresh(ctx)
		}
		return ctx.Err()
	}
	return w
}

// Beyond the limit of its sender the client waits for as long as it is told, and sends again
// with the same id.
func TestSendBeyondALimit(t *testing.T) {
	w := limited(t)
	var ids []string
	for range 4 {
		m := message()
		accepted, err := w.client.Send(t.Context(), m)
		if err != nil || accepted.ID != m.ID {
			t.Fatalf("%+v, %v", accepted, err)
		}
		ids = append(ids, m.ID)
	}
	if !slices.Equal(w.produced, ids) {
		t.Errorf("produced %q of %q", w.produced, ids)
	}
	if ends := w.forMinutes(); len(ends) != 1 || ends[0] < 49*time.Second || ends[0] > 62*time.Second {
		t.Errorf("it paused for %v, and the minute has 50 s left", w.pauses)
	}
}

// forMinutes are the pauses until a minute ends. Where the machine is so busy that a lease is not there in
// 50 ms, the gateway says to come again after one or two seconds.
func (w *world) forMinutes() []time.Duration {
	return slices.DeleteFunc(slices.Clone(w.pauses), func(d time.Duration) bool { return d < 3*time.Second })
}

// Of a batch the lines beyond the limit are sent again, and no other.
func TestBatchBeyondALimit(t *testing.T) {
	w := limited(t)
	var ms []*Message
	var ids []string
	for i := range 7 {
		m := message()
		m.ID = fmt.Sprint("m-", i)
		ms, ids = append(ms, m), append(ids, m.ID)
	}
	results, err := w.client.SendBatch(t.Context(), ms)
	if err != nil || len(results) != 7 {
		t.Fatalf("%+v, %v", results, err)
	}
	if !slices.Equal(w.produced, ids) || len(w.forMinutes()) != 2 {
		t.Errorf("produced %q after pauses of %v", w.produced, w.pauses)
	}
}

// A 429 of something between, that says no more, is repeated as well.
func TestTooManyWithoutWords(t *testing.T) {
	w := newWorld(t)
	attempts := 0
	w.before = func(rw http.ResponseWriter, _ *http.Request) bool {
		if attempts++; attempts > 1 {
			return false
		}
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	m := message()
	if accepted, err := w.client.Send(t.Context(), m); err != nil || accepted.ID != m.ID || len(w.pauses) != 1 {
		t.Errorf("%+v, %v after %v", accepted, err, w.pauses)
	}
}

// The sender's limits are told as they stand, and none where there are none.
func TestSenderLimits(t *testing.T) {
	w := limited(t)
	if _, err := w.client.Send(t.Context(), &Message{App: "shop", UserID: "u", ServiceType: "transactional", Title: "x"}); err != nil {
		t.Fatal(err)
	}
	l, err := w.client.SenderLimits(t.Context())
	if err != nil || l.Sender != "orders" || !l.Shared || len(l.Limits) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	got := l.Limits[0]
	if want := (SenderLimit{Name: "minute", Window: 60, Limit: 3, Used: 1, Remaining: 2, Reset: got.Reset, ResetAt: got.ResetAt}); got != want || got.Reset < 1 || got.Reset > 60 || got.ResetAt.IsZero() {
		t.Errorf("%+v, want %+v", got, want)
	}
	if l, err := newWorld(t).client.SenderLimits(t.Context()); err != nil || len(l.Limits) != 0 {
		t.Errorf("without limits: %+v, %v", l, err)
	}
}
