package worker

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
)

// push.events is told how near senders came to the limits of gateways, while a gateway runs
// and when it ends; what Kafka has not taken is told later, and nothing waits for it.
func TestGatewaysTellOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Limits.Default = configs.SenderLimits{Hour: 8}
		client, stop := n.startGateway()
		time.Sleep(time.Minute + limitsRound/2) // Kafka is found, and nothing is told just now
		send := func(messages, accepted int) {
			t.Helper()
			for range messages {
				a, err := call(t, client, "POST", "http://gateway/v1/messages", `{"app": "shop", "service_type": "transactional", "user_id": "owl", "title": "x"}`)
				if err != nil {
					t.Fatal(err)
				}
				if a.status == http.StatusAccepted {
					accepted--
				}
			}
			if accepted != 0 {
				t.Errorf("%d more were to be accepted", accepted)
			}
		}
		told := func(want ...string) {
			t.Helper()
			var got []string
			for i, e := range n.toldLimits() {
				if e.Number != int64(i+1) || len(e.Limits.Senders) != 1 {
					t.Fatalf("record %d: %+v", i, e)
				}
				s := e.Limits.Senders[0]
				got = append(got, fmt.Sprint(s.Sender, " ", s.Rule, " ", s.Limit, " ", s.Window, " ", s.Fills, " ", s.Share, " ", s.Now, " ", s.Limited))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		send(2, 2)
		time.Sleep(limitsRound)
		told("orders gateway/hour 8 3600 0 0.25 0.25 0")
		time.Sleep(3 * limitsRound) // nobody has asked for anything
		send(9, 6)
		stop()
		told("orders gateway/hour 8 3600 0 0.25 0.25 0", "orders gateway/hour 8 3600 0 1 1 3")
	})
}

// A record that is not taken is the next one that is sent, as it is; while one is on its
// way there is no other.
func TestWhatIsToldOfLimitsWaitsForKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Limits.Default = configs.SenderLimits{Hour: 1000}
		o := gatewayOptions(n.config)
		o.Dial, o.OpenStatus = n.options.Dial, n.options.OpenStatus
		g, err := o.open()
		if err != nil {
			t.Fatal(err)
		}
		defer g.close()
		ask := func() { g.quotas.Of("orders").Standings(nil); g.quotas.Of("orders").Take(t.Context(), 1) }
		var sent []*events.Event
		var answer func(error)
		warnings := 0
		teller := g.newQuotaTeller()
		teller.warn = func(string, ...any) { warnings++ }
		teller.send = func(r *kafka.Sent, done func(error)) {
			e, err := events.Parse(r.Value)
			if err != nil || r.Topic != kafka.EventsTopic {
				t.Fatal(r.Topic, err)
			}
			sent, answer = append(sent, e), done
		}
		hear := func(err error) {
			answer(err)
			teller.taken(<-teller.answered)
		}
		now := time.Now()
		teller.tell(now) // there is nothing
		ask()
		teller.tell(now)
		ask()
		teller.tell(now) // the first one is on its way
		hear(errors.New("not allowed"))
		teller.tell(now)
		hear(errors.New("not allowed"))
		teller.tell(now)
		hear(nil)
		teller.tell(now)
		hear(nil)
		teller.tell(now) // there is nothing again
		var numbers []int64
		for _, e := range sent {
			numbers = append(numbers, e.Number)
		}
		if fmt.Sprint(numbers) != "[1 1 1 2]" || warnings != 1 || sent[3].Limits.Senders[0].Limit != 1000 {
			t.Errorf("sent %v, %d warnings", numbers, warnings)
		}
	})
}

// What is under way when a gateway is told to stop is answered as before: its sender is well
// under the limit.
func TestAStoppingGatewayLimitsAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Limits.Default = configs.SenderLimits{Hour: 1000}
		client, stop := n.startGateway()
		time.Sleep(time.Minute) // Kafka is found
		const message = `{"app": "shop", "service_type": "transactional", "user_id": "owl", "title": "x"}`
		if a, err := call(t, client, "POST", "http://gateway/v1/messages", message); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
		body, more := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://gateway/v1/messages", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+gatewayKey)
		req.Header.Set("Content-Type", "application/json")
		answered := make(chan struct{}) // closed by the next goroutine
		go func() {
			defer close(answered)
			r, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusAccepted {
				t.Errorf("%d %s", r.StatusCode, text)
			}
		}()
		_, _ = io.WriteString(more, message[:10])
		synctest.Wait()
		stopped := make(chan struct{}) // closed by the next goroutine
		go func() {
			defer close(stopped)
			stop()
		}()
		time.Sleep(500 * time.Millisecond)
		_, _ = io.WriteString(more, message[10:])
		_ = more.Close()
		<-answered
		<-stopped
	})
}

// What a gateway has counted under the limits of its sender, workers do not count again:
// their own limit of that sender is for who writes to Kafka himself.
func TestWorkersDoNotCountAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Limits.Default = configs.SenderLimits{Hour: 100}
		n.config.Limits.Senders = []configs.SenderRule{{Name: "hourly", Algorithm: "token_bucket", Max: 2, Window: time.Hour, Burst: 2, Wait: time.Minute}}
		n.worker()
		client, _ := n.startGateway()
		time.Sleep(time.Minute)
		var ids []string
		for range 6 {
			a, err := call(t, client, "POST", "http://gateway/v1/messages", toTheOwl)
			if err != nil || a.status != http.StatusAccepted {
				t.Fatalf("%+v, %v", a, err)
			}
			ids = append(ids, a.id)
		}
		for i := range 4 {
			id := fmt.Sprint("own-", i)
			n.produce(id, "owl", map[string]any{"sender_id": "orders"})
			ids = append(ids, id)
		}
		time.Sleep(time.Minute)
		sent := 0
		for i, id := range ids {
			if _, pushed := n.became(id); len(pushed) == 1 {
				sent++
			} else if i < 6 {
				t.Errorf("%s of the gateway was pushed at %v", id, pushed)
			}
		}
		if sent != 6+2 {
			t.Errorf("%d were sent, want those of the gateway and two others", sent)
		}
	})
}
