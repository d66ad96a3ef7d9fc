package worker

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/kafka"
)

// gatewayRule stands before the name of a window where push.events tells of a limit of
// gateways: no rule of workers has a slash in its name.
const gatewayRule = "gateway/"

// quotaTeller tells push.events how near senders came to the limits of gateways.
type quotaTeller struct {
	quotas *quota.Quotas
	events *events.Collector
	send   func(r *kafka.Sent, done func(error))
	warn   func(msg string, args ...any)

	waiting  []byte     // the record that Kafka has not taken yet; nil = none
	answered chan error // capacity 1, never closed: of the record that is on its way
	onWay    bool
	failed   bool // the last one was not taken, and the log says so
}

func (g *openGateway) newQuotaTeller() *quotaTeller {
	return &quotaTeller{quotas: g.quotas, events: events.New(rand.Text(), time.Now()), warn: g.Log.Warn, answered: make(chan error, 1),
		send: func(r *kafka.Sent, done func(error)) { g.sender.Send(r, func(_ kafka.Offset, err error) { done(err) }) }}
}

// tellLimits has a teller tell until stop, which waits for it; ctx does not end it. Where
// senders have no limits it does nothing.
func (g *openGateway) tellLimits(ctx context.Context) (stop func()) {
	if g.quotas == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var telling sync.WaitGroup
	telling.Go(func() { g.newQuotaTeller().run(ctx) })
	return func() {
		end()
		telling.Wait()
	}
}

// run tells every ten seconds until ctx ends, and then what is not told yet. It is best
// effort, and nobody waits for it: while a record has not been taken there is no other one, and one that
// was refused is sent again.
func (t *quotaTeller) run(ctx context.Context) {
	ticker := time.NewTicker(limitsRound)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.tell(time.Now())
		case err := <-t.answered:
			t.taken(err)
		case <-ctx.Done():
			t.tell(time.Now()) // the sender's end waits for it
			return
		}
	}
}

// tell sends what waits, or else what there is to tell now.
func (t *quotaTeller) tell(now time.Time) {
	if t.onWay {
		return
	}
	if t.waiting == nil {
		if t.waiting = t.events.Limits(t.standings(), now); t.waiting == nil {
			return
		}
	}
	t.onWay = true
	t.send(&kafka.Sent{Topic: kafka.EventsTopic, Value: t.waiting, At: now}, func(err error) { t.answered <- err })
}

// taken hears what became of the record.
func (t *quotaTeller) taken(err error) {
	t.onWay = false
	if err == nil {
		t.waiting, t.failed = nil, false
		return
	}
	if !t.failed {
		t.warn("push.events does not take how near senders are to their limits; it is tried again", "error", err)
	}
	t.failed = true
}

// standings are how the fullest windows of senders stood since the last call.
func (t *quotaTeller) standings() (l events.Limits) {
	list, more := t.quotas.Fullest(mostStandings)
	for i := range list {
		f := &list[i]
		of := float64(f.Limit)
		l.Senders = append(l.Senders, events.SenderLimit{Rule: gatewayRule + f.Name, Sender: f.Sender, Limit: f.Limit, Window: f.Window.Seconds(),
			Share: float64(f.Greatest) / of, Now: float64(f.Now) / of, Limited: f.Refused})
	}
	l.Omitted = more
	return l
}
