//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/crowd"
)

// topic is what is sent to all its subscribers, some of whom come and go meanwhile.
type topic struct {
	doors    []*slot
	caller   fleet.Caller
	http     *http.Client
	people   *crowd.Crowd
	audience int // users who have subscribed at the beginning
	messages int
	seed     uint64

	mu      sync.Mutex
	changes []invariants.Change // guarded by mu
	fanouts []invariants.Fanout // guarded by mu
}

const (
	topicPath = "/v1/topics/everybody"
	// topicPause is the time between two attempts, and between two looks at a receipt.
	topicPause = 250 * time.Millisecond
)

func newTopic(w *world, o *Options) *topic {
	t := w.scenario.through
	return &topic{doors: w.doors(), caller: caller(), people: w.people, audience: t.audience(o.Length == o.Scenario.Full), messages: t.messages, seed: o.Seed,
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: callPatience}}
}

// ask makes a request of any gateway until it is answered with 2xx. Every attempt is told to
// each, if that is given.
func (t *topic) ask(ctx context.Context, draw *rand.Rand, method, path string, body []byte, into any, each func(invariants.Attempt, []byte), headers ...string) error {
	for {
		door := t.doors[draw.IntN(len(t.doors))]
		from := time.Now()
		status, text, err := t.caller.Ask(ctx, t.http, method, "http://"+door.door.Addr()+path, body, headers...)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if each != nil {
			each(invariants.Attempt{Gateway: door.name, From: from, To: time.Now(), Status: status}, text)
		}
		switch {
		case err == nil && status/100 == 2 && status != http.StatusMultiStatus:
			if into == nil {
				return nil
			}
			return json.Unmarshal(text, into)
		case err == nil && status/100 == 4 && status != http.StatusTooManyRequests:
			return fmt.Errorf("%s %s is answered %d %s", method, path, status, bytes.TrimSpace(text))
		}
		hold(ctx, topicPause)
	}
}

// open makes the topic, and subscribes all who are there at the beginning.
func (t *topic) open(ctx context.Context) error {
	draw := rand.New(rand.NewPCG(t.seed, 0x746f706963))
	body := fmt.Appendf(nil, `{"app":%q,"service_type":%q,"modes":["push"],"size":"small","metadata":{"priority":"high"}}`, fleet.App, fleet.Lane)
	if err := t.ask(ctx, draw, http.MethodPut, topicPath, body, nil, nil); err != nil {
		return err
	}
	const lines = 100 // which a busy machine makes in the time that a gateway gives them
	for i := 0; i < t.audience; i += lines {
		var body []byte
		for j := i; j < min(i+lines, t.audience); j++ {
			body = fmt.Appendf(body, `{"user_id":%q}`+"\n", t.people.User(j).ID)
		}
		from := time.Now()
		if err := t.ask(ctx, draw, http.MethodPost, topicPath+"/subscriptions/batch", body, nil, nil, "Content-Type", "application/x-ndjson"); err != nil {
			return err
		}
		t.mu.Lock()
		for j := i; j < min(i+lines, t.audience); j++ {
			t.changes = append(t.changes, invariants.Change{User: t.people.User(j).ID, From: from, To: time.Now()})
		}
		t.mu.Unlock()
	}
	return nil
}

// run sends its messages, spread over the first half of a time, and returns when all have
// ended. Meanwhile subscribers come and go.
func (t *topic) run(ctx context.Context, length time.Duration) error {
	going, stop := context.WithCancel(ctx)
	var changing sync.WaitGroup
	errs := make(chan error, t.messages+goers)
	for i := range goers {
		changing.Go(func() { errs <- t.comeAndGo(going, i) })
	}
	var sending sync.WaitGroup
	for i := range t.messages {
		sending.Go(func() {
			hold(ctx, time.Second+length*time.Duration(i)/time.Duration(2*t.messages))
			errs <- t.send(ctx, i)
		})
	}
	sending.Wait()
	stop()
	changing.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// goers are how many users change at once, and goPause is the time between two of them.
const (
	goers   = 4
	goPause = 300 * time.Millisecond
)

// comeAndGo has users leave and come back, and others come who were not there, until ctx
// ends. Nobody else touches those users.
func (t *topic) comeAndGo(ctx context.Context, number int) error {
	draw := rand.New(rand.NewPCG(t.seed, uint64(number)))
	there := map[int]bool{}
	few := t.audience / apart
	for ; ctx.Err() == nil; hold(ctx, millis(draw, goPause/2, 2*goPause)) {
		user := goers*draw.IntN(few/goers) + number // of those who leave, by turns
		if draw.IntN(2) == 0 {
			user += t.audience // of those who come
		} else {
			user *= apart
		}
		if _, known := there[user]; !known {
			there[user] = user < t.audience
		}
		method, body := http.MethodPut, []byte(`{}`)
		if there[user] {
			method, body = http.MethodDelete, nil
		}
		ch := invariants.Change{User: t.people.User(user).ID, Leaves: there[user], From: time.Now()}
		err := t.ask(ctx, draw, method, topicPath+"/subscriptions/"+ch.User, body, nil, nil)
		ch.To = time.Now()
		t.mu.Lock()
		t.changes = append(t.changes, ch) // also if it is not known whether it was made
		t.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		there[user] = !there[user]
	}
	return nil
}

// send sends one message to all, sometimes again when it is answered, and asks for its
// receipt until it has ended.
func (t *topic) send(ctx context.Context, number int) error {
	draw := rand.New(rand.NewPCG(t.seed, uint64(1000+number)))
	f := invariants.Fanout{Name: fmt.Sprintf("fan-out-%d", number)}
	body := fmt.Appendf(nil, `{"id":%q,"type":"news","title":"Snow is on its way","body":"Up to 40 cm.","expires_at":%q,"data":{"call":%q}}`,
		crowd.Mint(time.Now()), time.Now().Add(time.Hour).UTC().Format(time.RFC3339), f.Name)
	var accepted struct{ ID, Receipt string }
	each := func(a invariants.Attempt, text []byte) {
		var said struct{ ID string }
		if json.Unmarshal(text, &said) == nil {
			a.ID = said.ID
		}
		f.Sent = append(f.Sent, a)
	}
	for range 1 + draw.IntN(2) {
		if err := t.ask(ctx, draw, http.MethodPost, topicPath+"/messages", body, &accepted, each); err != nil {
			return err
		}
	}
	for {
		var said struct {
			Final  bool
			Fanout struct {
				State   string
				Emitted int
				Skipped map[string]int
			}
		}
		if err := t.ask(ctx, draw, http.MethodGet, "/v1/receipts/"+accepted.Receipt, nil, &said, nil); err != nil {
			return err
		}
		if said.Final {
			f.Ended, f.State, f.Emitted = time.Now(), said.Fanout.State, said.Fanout.Emitted
			for _, n := range said.Fanout.Skipped {
				f.Skipped += n
			}
			break
		}
		hold(ctx, topicPause)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fanouts = append(t.fanouts, f)
	return nil
}

// seal ends the ledgers.
func (t *topic) seal() (invariants.Ledger[invariants.Fanout], invariants.Ledger[invariants.Change]) {
	if t == nil {
		return invariants.Seal[invariants.Fanout](nil), invariants.Seal[invariants.Change](nil)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return invariants.Seal(t.fanouts), invariants.Seal(t.changes)
}
