package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// webhookQueue is the topic of dead webhooks in memory, one partition.
type webhookQueue struct {
	letters []*kafka.DeadWebhook
	sent    []*kafka.DeadWebhook
	calls   int
	cut     int // from this call of Redeliver on it fails; 0 = never
	after   func()
	since   time.Time // as Extent was asked
	until   time.Time
}

func (q *webhookQueue) Extent(_ context.Context, since, until time.Time) (kafka.Extent, error) {
	q.since, q.until = since, until
	return kafka.Extent{0: {From: 0, To: int64(len(q.letters))}}, nil
}

func (q *webhookQueue) Read(_ context.Context, e kafka.Extent, each func(*kafka.DeadWebhook) error) error {
	for _, d := range q.letters[e[0].From:e[0].To] {
		if err := each(d); err != nil {
			return err
		}
	}
	return nil
}

func (q *webhookQueue) Redeliver(_ context.Context, letters []*kafka.DeadWebhook) error {
	if q.calls++; q.cut > 0 && q.calls >= q.cut {
		return errors.New("cut")
	}
	q.sent = append(q.sent, letters...)
	if q.after != nil {
		q.after()
	}
	return nil
}

func deadWebhooks(n int, sender, reason string) (all []*kafka.DeadWebhook) {
	for i := range n {
		all = append(all, &kafka.DeadWebhook{Sender: sender, Reason: reason, Value: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	return all
}

func TestRedeliver(t *testing.T) {
	at := time.Now()
	for name, tt := range map[string]struct {
		change func(*RedeliverOptions)
		sent   int
		want   Redelivered
	}{
		"a dry run":  {func(o *RedeliverOptions) { o.Do = false }, 0, Redelivered{DryRun: true, Matched: 48, Redelivered: 40, Senders: map[string]int{"orders": 25, "auth": 15}, Reasons: map[string]int{"refused": 15, "topic_refused": 25}}},
		"all":        {func(*RedeliverOptions) {}, 40, Redelivered{Matched: 48, Redelivered: 40, Senders: map[string]int{"orders": 25, "auth": 15}, Reasons: map[string]int{"refused": 15, "topic_refused": 25}}},
		"one sender": {func(o *RedeliverOptions) { o.Senders = []string{"auth"} }, 15, Redelivered{Matched: 16, Redelivered: 15, Senders: map[string]int{"auth": 15}, Reasons: map[string]int{"refused": 15}}},
		"a reason":   {func(o *RedeliverOptions) { o.Reasons = []string{"topic_refused"} }, 25, Redelivered{Matched: 25, Redelivered: 25, Senders: map[string]int{"orders": 25}, Reasons: map[string]int{"topic_refused": 25}}},
		"some":       {func(o *RedeliverOptions) { o.Limit = 7 }, 7, Redelivered{Matched: 7, Redelivered: 7, Senders: map[string]int{"orders": 7}, Reasons: map[string]int{"topic_refused": 7}}},
		"times":      {func(o *RedeliverOptions) { o.Since, o.Until, o.Limit = at, at.Add(1), 1 }, 1, Redelivered{Matched: 1, Redelivered: 1, Senders: map[string]int{"orders": 1}, Reasons: map[string]int{"topic_refused": 1}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &webhookQueue{letters: append(deadWebhooks(25, "orders", "topic_refused"), deadWebhooks(15, "auth", "refused")...)}
			q.letters = append(q.letters, deadWebhooks(7, "former", "expired")...)
			q.letters = append(q.letters, &kafka.DeadWebhook{Sender: "auth", Reason: "unreadable", Value: []byte("no JSON")})
			o := RedeliverOptions{Told: []string{"orders", "auth"}, Rate: 200, Do: true}
			told := 0
			o.Progress = func(v Redelivered) { told = v.Redelivered }
			tt.change(&o)
			began := time.Now()
			v, err := Redeliver(t.Context(), q, o)
			if err != nil || v.DryRun != tt.want.DryRun || v.Matched != tt.want.Matched || v.Redelivered != tt.want.Redelivered || !maps.Equal(v.Senders, tt.want.Senders) || !maps.Equal(v.Reasons, tt.want.Reasons) {
				t.Errorf("%s: %+v, %v; want %+v", name, v, err, tt.want)
			}
			if len(q.sent) != tt.sent || told != tt.sent {
				t.Errorf("%s: sent %d, told of %d, want %d", name, len(q.sent), told, tt.sent)
			}
			for _, d := range q.sent {
				if d.Sender == "former" || d.Reason == "unreadable" {
					t.Errorf("%s: sent %+v", name, d)
				}
			}
			if name == "all" && (v.Skipped[SkipUntold] != 7 || v.Skipped[SkipUnusable] != 1) {
				t.Errorf("left out %v", v.Skipped)
			}
			if least := time.Duration(tt.sent-10) * time.Second / 200; time.Since(began) < least {
				t.Errorf("%s: sent %d in %v", name, tt.sent, time.Since(began))
			}
			if !q.since.Equal(o.Since) || !q.until.Equal(o.Until) {
				t.Errorf("%s: read from %v to %v", name, q.since, q.until)
			}
		})
	}
}

// A redelivery that fails, or is interrupted, says what is done.
func TestARedeliveryThatEndsEarly(t *testing.T) {
	q := &webhookQueue{letters: deadWebhooks(30, "orders", "refused"), cut: 3}
	o := RedeliverOptions{Told: []string{"orders"}, Rate: 200, Do: true}
	v, err := Redeliver(t.Context(), q, o)
	if more, ok := errors.AsType[*UncountedError](err); !ok || more.Letters != 10 || v.Redelivered != 20 || len(q.sent) != 20 {
		t.Errorf("%+v, %v", v, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q = &webhookQueue{letters: deadWebhooks(30, "orders", "refused"), after: stop}
	if v, err := Redeliver(ctx, q, o); !errors.Is(err, context.Canceled) || v.Redelivered != 10 || len(q.sent) != 10 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestRedeliverOptions(t *testing.T) {
	at := time.Now()
	for _, o := range []RedeliverOptions{
		{Rate: 0}, {Rate: 1e6}, {Rate: 1, Limit: -1}, {Rate: 1, Since: at, Until: at}, {Rate: 1, Told: []string{"a"}, Senders: []string{"b"}},
	} {
		q := &webhookQueue{letters: deadWebhooks(1, "a", "refused")}
		o.Do = true
		_, err := Redeliver(t.Context(), q, o)
		if _, ok := errors.AsType[*OptionError](err); !ok || len(q.sent) > 0 {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
