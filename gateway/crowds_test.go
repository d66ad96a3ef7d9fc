package gateway

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
)

func (w *world) crowd(topic, key string) *reply {
	w.t.Helper()
	return w.do(request{method: "GET", path: "/v1/topics/" + topic + "/counts", key: key})
}

// crowded says how many an answer has.
func crowded(a *reply) string {
	return fmt.Sprint(a.json["push"], " ", a.json["pull"], " ", a.json["whole"])
}

// gather lets a topic have so many subscribers more of a mode.
func (w *world) gather(name string, mode subscriptions.Mode, prefix string, n int) {
	w.t.Helper()
	topic, err := w.topics.Memory.Topic(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	changes := make([]subscriptions.Change, n)
	for i := range changes {
		changes[i] = subscriptions.Change{User: fmt.Sprint(prefix, i), Mode: mode, At: time.Now()}
	}
	for _, r := range w.topics.Memory.Apply(w.t.Context(), &topic, changes) {
		if r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
}

func TestHowManyHaveSubscribed(t *testing.T) {
	w, _ := fanoutWorld(t)
	anew := func() { w.gateway.crowds = newRenewed[string, SubscriberCounts](crowdAge) }
	if a := w.crowd("snow", keyOrders); a.status != http.StatusOK || crowded(a) != "0 0 true" || a.string("topic") != "snow" {
		t.Errorf("nobody: %d %s", a.status, a.text)
	}
	w.gather("snow", subscriptions.Push, "a", 30)
	if got := crowded(w.crowd("snow", keyOrders)); got != "0 0 true" {
		t.Errorf("within a minute it is not counted anew: %s", got)
	}
	anew()
	if got := crowded(w.crowd("snow", keyOrders)); got != "30 0 true" {
		t.Errorf("30 have subscribed: %s", got)
	}
	anew()
	w.gather("snow", subscriptions.Left, "a", 10)
	if got := crowded(w.crowd("snow", keyOrders)); got != "20 0 true" {
		t.Errorf("10 of 30 have left: %s", got)
	}
	for why, tt := range map[string]struct{ topic, key, code string }{
		"no such topic":  {"rain", keyOrders, "no_such_topic"},
		"of another app": {"snow", keyReader, "no_such_topic"},
		"no topic":       {"~", keyOrders, "invalid_field"},
	} {
		if a := w.crowd(tt.topic, tt.key); a.code() != tt.code {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
	anew()
	w.topics.set(func() { w.topics.err = errAway })
	if a := w.crowd("snow", keyOrders); a.code() != "topics_away" {
		t.Errorf("Cassandra is away: %s", a.text)
	}
}

// readBoard counts the rows that are read.
type readBoard struct {
	*board
	rows int
}

func (b *readBoard) Run(ctx context.Context, topic string, l subscriptions.Layout, first, last int, after subscriptions.Position, limit int) ([]subscriptions.Subscription, subscriptions.Position, bool, error) {
	list, next, end, err := b.board.Run(ctx, topic, l, first, last, after, limit)
	b.rows += len(list)
	return list, next, end, err
}

// Of many a part is counted, and what is told of all is near to what is so.
func TestManySubscribersAreEstimated(t *testing.T) {
	w, _ := fanoutWorld(t)
	const push, pull = 36_000, 12_000
	w.makeTopic("flood", `{"app": "shop", "service_type": "transactional", "modes": ["push", "pull"]}`)
	w.gather("flood", subscriptions.Push, "u", push)
	w.gather("flood", subscriptions.Pull, "p", pull)
	w.gather("flood", subscriptions.Push, "l", 1000)
	w.gather("flood", subscriptions.Left, "l", 1000)
	read := &readBoard{board: w.topics}
	w.gateway.o.Topics = read
	a := w.crowd("flood", keyOrders)
	near := func(name string, want float64) {
		// Of 10,000 rows among 49,000: four standard deviations.
		if got := a.json[name].(float64); math.Abs(got-want) > 4*math.Sqrt(want*5) {
			t.Errorf("%s: %v, want about %v", name, got, want)
		}
	}
	near("push", push)
	near("pull", pull)
	if a.json["whole"] != false || read.rows > crowdMost+subscriptions.MaxPage {
		t.Errorf("%s, %d rows read", a.text, read.rows)
	}
}

// Estimates are by whole slices, whichever of them have nobody.
func TestScaled(t *testing.T) {
	got := SubscriberCounts{Push: 100, Pull: 3, Whole: true}.scaled(256)
	if got.Push != 400 || got.Pull != 12 || got.Whole {
		t.Errorf("%+v", got)
	}
}

// Who has left is no subscriber: a topic that many have left is counted as far as one of as
// many who are there.
func TestWhoHasLeftTakesNobodysPlaceInACount(t *testing.T) {
	w, _ := fanoutWorld(t)
	w.makeTopic("ebb", `{"app": "shop", "service_type": "transactional", "modes": ["push", "pull"]}`)
	w.gather("ebb", subscriptions.Push, "u", 4000)
	w.gather("ebb", subscriptions.Push, "l", 16_000)
	w.gather("ebb", subscriptions.Left, "l", 16_000)
	if got := crowded(w.crowd("ebb", keyOrders)); got != "4000 0 true" {
		t.Errorf("4,000 of 20,000 are there: %s", got)
	}
}

// However many have left, no more than so many rows are read.
func TestRowsOfWhoHasLeftAreBounded(t *testing.T) {
	w, _ := fanoutWorld(t)
	w.makeTopic("ebb", `{"app": "shop", "service_type": "transactional", "modes": ["push", "pull"]}`)
	w.gather("ebb", subscriptions.Push, "u", 1000)
	w.gather("ebb", subscriptions.Left, "l", crowdRows+10_000)
	read := &readBoard{board: w.topics}
	w.gateway.o.Topics = read
	if a := w.crowd("ebb", keyOrders); a.json["whole"] != false || read.rows > crowdRows+subscriptions.MaxPage {
		t.Errorf("%s, %d rows read", a.text, read.rows)
	}
}
