//go:build unix

package endtoend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
)

// killedFanout is a fleet in which a message to all subscribers of a topic is under way, while
// the processes of fan-outs die.
type killedFanout struct {
	*world
	size    int // subscribers when the message is accepted
	people  *crowd.Crowd
	caller  fleet.Caller
	http    *http.Client
	gateway string // host:port

	fates   []fate        // by the crowd's number; of those who come and go once they have
	turn    chan struct{} // lets some more come and go; closed by who sends
	receipt string
}

// The topic and its message. A topic of medium size has so many chunks.
const (
	fanoutTopic  = "/v1/topics/everybody"
	fanoutChunks = 256
	fanoutAtOnce = 2
	changing     = 50 // one of so many subscribers leaves, and as many others come, as far as mostChanges
	mostChanges  = 2000
)

// changers is how many of n subscribers leave, and how many others come.
func changers(n int) int { return min(n/changing, mostChanges) }

// waiting is as of the other tests, and longer where a million are waited for.
func (f *killedFanout) waiting() context.Context {
	f.t.Helper()
	within := patience + time.Duration(f.size/1000)*time.Second
	ctx, cancel := context.WithTimeoutCause(f.t.Context(), within, fmt.Errorf("not within %v", within))
	f.t.Cleanup(cancel)
	return ctx
}

// newKilledFanout starts all but workers and processes of fan-outs. Those who leave are among
// the subscribers, then there are those who come, and as many who never do.
func newKilledFanout(t *testing.T) *killedFanout {
	t.Helper()
	n, err := subscribersWanted()
	check(t, err)
	f := &killedFanout{size: n, fates: make([]fate, n+2*changers(n)), turn: make(chan struct{}, fanoutKills),
		caller: fleet.Caller{Key: "killed-killed-killed-killed-killed-killed", Sender: "orders", Apps: []string{fleet.App}, Rights: []string{"send", "read", "users"}},
		http:   &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for i := range n {
		f.fates[i] = stays
	}
	dir := t.TempDir()
	check(t, fleet.WriteCallers(dir, f.caller))
	f.world = newWorld(t, setup{configure: func(c *configs.Config) {
		fleet.UseCallers(c, dir)
		c.Gateway.Topics, c.Gateway.Fanout.Enabled = true, true
		g := &c.Gateway.Fanout
		// It waits for no worker: with Redis wiped these stand still.
		g.AtOnce, g.OpenChunks, g.Lag, g.LagTime = fanoutAtOnce, 8, 1_000_000_000, 0
		g.Page = n / fanoutChunks / 4
		c.Dedupe.Capacity = int64(2 * n)
	}})
	f.people, err = crowd.New(crowd.Options{Seed: 1, App: fleet.App, Users: len(f.fates), Devices: 1})
	check(t, err)
	check(t, f.Register(f.waiting(), f.people))
	_, err = f.StartRegistry()
	check(t, err)
	check(t, f.AwaitUsers(f.waiting(), f.people))
	g, err := f.StartGateway()
	check(t, err)
	check(t, g.AwaitReady(f.waiting()))
	f.gateway, err = g.AwaitCallers(f.waiting())
	check(t, err)
	return f
}

// ask makes a request of the gateway until it is answered for good, and reads that into into, if
// it is given. What is asked may be asked twice: a gateway does not wait for Cassandra.
func (f *killedFanout) ask(ctx context.Context, method, path, body string, into any) error {
	for {
		status, text, err := f.caller.Ask(ctx, f.http, method, "http://"+f.gateway+path, []byte(body))
		switch {
		case err != nil:
			return err
		case status == http.StatusServiceUnavailable:
			time.Sleep(receiptPause)
			continue
		case status/100 != 2:
			return fmt.Errorf("%s %s is answered %d %s", method, path, status, bytes.TrimSpace(text))
		case into == nil:
			return nil
		}
		return json.Unmarshal(text, into)
	}
}

// receiptPause is between two questions to a gateway.
const receiptPause = 100 * time.Millisecond

// session is one of Cassandra.
func (f *killedFanout) session() *status.Session {
	f.t.Helper()
	o, err := wiring.Cassandra(f.Config, nil, slog.New(slog.DiscardHandler))
	check(f.t, err)
	o.Timeout = time.Minute
	session, err := status.OpenSession(f.waiting(), o)
	check(f.t, err)
	return session
}

// openTopic makes the topic and its subscribers.
func (f *killedFanout) openTopic() {
	f.t.Helper()
	ctx := f.waiting()
	check(f.t, f.ask(ctx, http.MethodPut, fanoutTopic, fmt.Sprintf(`{"app":%q,"service_type":%q,"modes":["push"],"size":"medium"}`, fleet.App, fleet.Lane), nil))
	session := f.session()
	defer session.Close()
	topic, err := subscriptions.New(subscriptions.Options{Tables: session}).Topic(ctx, "everybody")
	check(f.t, err)
	check(f.t, fleet.WriteSubscribers(ctx, session, &topic, f.size, func(i int) string { return f.people.User(i).ID }))
}

// goAndCome has subscribers leave and others come in so many turns, each as f.turn says. What
// it returns is closed when the last has.
func (f *killedFanout) goAndCome(turns int) <-chan struct{} {
	over := make(chan struct{})
	all := changers(f.size)
	go func() {
		defer close(over)
		done := 0
		for n := 1; ; n++ {
			select {
			case _, more := <-f.turn:
				if !more {
					return
				}
			case <-f.t.Context().Done():
				return
			}
			for ; done < all*n/turns && f.t.Context().Err() == nil; done++ {
				f.change(http.MethodDelete, done*(f.size/all), leaves)
				f.change(http.MethodPut, f.size+done, joins)
			}
		}
	}()
	return over
}

// change makes one come or go.
func (f *killedFanout) change(method string, user int, to fate) {
	body := ""
	if method == http.MethodPut {
		body = "{}"
	}
	f.fates[user] = to
	if err := f.ask(f.waiting(), method, fanoutTopic+"/subscriptions/"+f.people.User(user).ID, body, nil); err != nil {
		f.t.Errorf("user %d, who %s: %v", user, to, err)
	}
}

// accept sends the message, and returns when it is accepted.
func (f *killedFanout) accept() {
	f.t.Helper()
	var accepted struct{ Receipt string }
	body := fmt.Sprintf(`{"id":%q,"title":"Snow until Sunday","body":"Up to 40 cm above 1,200 m."}`, crowd.Mint(time.Now()))
	check(f.t, f.ask(f.waiting(), http.MethodPost, fanoutTopic+"/messages", body, &accepted))
	f.receipt = accepted.Receipt
}

// startMortal starts a process of fan-outs.
func (f *killedFanout) startMortal(m mortal) *fleet.Process {
	f.t.Helper()
	p, err := f.StartMortal("fanout", os.Args[0], m.env())
	check(f.t, err)
	return p
}

// account waits until all is done, and is what has come of it.
func (f *killedFanout) account(workers ...*fleet.Process) *fannedOut {
	f.t.Helper()
	ctx := f.waiting()
	a := &fannedOut{Users: make([]reached, len(f.fates)), Open: fanoutAtOnce * f.largestChunk(), Chunks: fanoutChunks}
	for {
		check(f.t, f.ask(ctx, http.MethodGet, "/v1/receipts/"+f.receipt, "", &a.Receipt))
		if a.Receipt.Final {
			break
		}
		time.Sleep(receiptPause)
	}
	f.t.Logf("the fan-out has ended: %+v", a.Receipt)
	check(f.t, f.AwaitDone(ctx))
	for _, w := range workers {
		metrics, err := w.Metrics(ctx)
		check(f.t, err)
		a.Bound = max(a.Bound, int(metrics.Sum("push_duplicate_bound")))
	}
	for i := range a.Users {
		a.Users[i].Fate = f.fates[i]
	}
	ids := make([]map[string]bool, len(a.Users))
	f.readLane(ctx, a, ids)
	f.readLedger(a, ids)
	for i := range ids {
		a.Users[i].IDs = len(ids[i])
	}
	return a
}

// largestChunk is how many users a chunk has at most.
func (f *killedFanout) largestChunk() int {
	var sizes [fanoutChunks]int
	largest := 0
	for i := range f.size {
		part := fanout.SliceOf(f.people.User(i).ID) * fanoutChunks / fanout.Slices
		sizes[part]++
		largest = max(largest, sizes[part])
	}
	return largest
}

// readLane counts the records of each user.
func (f *killedFanout) readLane(ctx context.Context, a *fannedOut, ids []map[string]bool) {
	f.t.Helper()
	o, err := wiring.Kafka(f.Config, slog.New(slog.DiscardHandler))
	check(f.t, err)
	check(f.t, fleet.ReadTopic(ctx, o, fleet.Topic, func(r kafka.Record) {
		var m push.Message
		decode.Message(r.Value, &m)
		i, known := f.people.Find(m.UserID)
		if !known {
			a.Foreign++
			return
		}
		a.Users[i].Records++
		note(ids, i, m.ID)
	}))
}

// readLedger counts the pushes that the provider has accepted for each user.
func (f *killedFanout) readLedger(a *fannedOut, ids []map[string]bool) {
	of := make(map[string]int, len(a.Users)) // users by their devices
	for i := range a.Users {
		of[f.people.User(i).Devices[0].Hash] = i
	}
	f.Sim.Ledger().Each(func(e sim.Entry) bool {
		i, known := of[e.Device]
		if !known {
			a.Foreign++
			return true
		}
		a.Users[i].Pushes += e.Accepted
		note(ids, i, e.ID)
		return true
	})
}

// note notes an id of a user's.
func note(ids []map[string]bool, user int, id string) {
	if ids[user] == nil {
		ids[user] = make(map[string]bool, 1)
	}
	ids[user][id] = true
}

// judge says what is wrong, and what was seen.
func (f *killedFanout) judge(a *fannedOut) {
	f.t.Helper()
	for _, s := range a.findings() {
		f.t.Error(s)
	}
	var of, pushed [joins + 1]int
	pushesAgain, records, recordsAgain := 0, 0, 0
	for i := range a.Users {
		u := &a.Users[i]
		of[u.Fate]++
		pushed[u.Fate] += min(1, u.Pushes)
		pushesAgain += max(0, u.Pushes-1)
		records += u.Records
		recordsAgain += max(0, u.Records-1)
	}
	if recordsAgain == 0 {
		f.t.Error("no record is in the lane again: no kill hit a chunk in the middle, so nothing was tested")
	}
	for which := range of {
		f.t.Logf("%d %s; %d of them were pushed", of[which], fate(which), pushed[which])
	}
	f.t.Logf("%d processes of fan-outs were killed; %d records in the lane, %d of them again, of %d that may be; %d pushes again, of %d that may be",
		a.Killed, records, recordsAgain, a.Killed*a.Open, pushesAgain, a.WorkersKilled*a.Bound)
}
