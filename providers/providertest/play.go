// Package providertest tests a provider as the rest of a worker sees it: against
// the simulator and its ledger, and against the requests that the vendor's own
// client makes.
package providertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// hang is how long nothing may happen before a test gives up. It is no
// measure of speed: test machines can be slow.
const hang = 2 * time.Minute

// Client is what the providers' clients have in common.
type Client interface {
	Lane(lane int) pipeline.Provider
	Stats() h2.Stats
	Close(ctx context.Context) error
}

// Credentials are the app's that Simulator knows. Its keys take a second to
// make under the race detector, so all tests share them.
var Credentials = sync.OnceValue(func() *sim.Credentials {
	c, err := sim.NewCredentials("shop", "com.example.shop")
	if err != nil {
		panic(err)
	}
	return c
})

// Simulator starts one that ends with the test.
func Simulator(t *testing.T, o sim.Options) *sim.Server {
	t.Helper()
	o.Apps = append(o.Apps, Credentials().App())
	s, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// CloseAfter closes a client at the end of the test, which fails if requests
// are left in it.
func CloseAfter(t *testing.T, c Client) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Deliveries makes those numbered from up to, and without, to. No two of
// different numbers have the id or, if token is fair, the device in common.
func Deliveries(platform push.Platform, from, to int, token func(i int) string) []*pipeline.Delivery {
	ds := make([]*pipeline.Delivery, 0, to-from)
	for i := from; i < to; i++ {
		d := delivery(platform, token(i), push.Message{
			ID: fmt.Sprintf("n%d", i), App: "shop", Priority: push.High, PushType: "alert", Title: "hello", CollapseKey: "k"})
		d.Expires = push.At(time.Now().Add(time.Hour))
		ds = append(ds, d)
	}
	return ds
}

func delivery(platform push.Platform, token string, m push.Message) *pipeline.Delivery {
	return &pipeline.Delivery{
		Item:    &pipeline.Item{Message: m},
		Device:  pipeline.Device{Token: token, Hash: push.DeviceHash(platform, token)},
		Route:   push.Route{Platform: platform},
		Expires: push.At(m.ExpiresAt), Deadline: pipeline.UptimeAt(time.Now().Add(hang / 2)),
	}
}

// Push submits and waits until every delivery is handed back, once.
func Push(t *testing.T, lane pipeline.Provider, ds []*pipeline.Delivery) {
	t.Helper()
	var (
		mu   sync.Mutex // guards left
		left = make(map[*pipeline.Delivery]bool, len(ds))
		all  = make(chan struct{})
		end  = sync.OnceFunc(func() { close(all) })
	)
	for _, d := range ds {
		left[d] = true
	}
	n, err := lane.Submit(t.Context(), ds, func(back []*pipeline.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range back {
			if !left[d] {
				t.Errorf("%s handed back twice", d.Item.ID)
			}
			delete(left, d)
		}
		if len(left) == 0 {
			end()
		}
	})
	if n != len(ds) || err != nil {
		t.Fatalf("Submit: %d, %v", n, err)
	}
	select {
	case <-all:
	case <-time.After(hang):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d of %d are not handed back", len(left), len(ds))
	}
}

// Play is a simulator that is about to misbehave, and a client of it.
type Play struct {
	*testing.T
	Sim    *sim.Server
	Client Client
	Sent   []*pipeline.Delivery // by Make, in its order

	vendor     sim.Provider
	deliveries func(from, to int) []*pipeline.Delivery
}

// NewPlay makes a Play of client, which is one of s, where it talks to vendor.
func NewPlay(t *testing.T, vendor sim.Provider, s *sim.Server, client Client, deliveries func(from, to int) []*pipeline.Delivery) *Play {
	return &Play{T: t, Sim: s, Client: client, vendor: vendor, deliveries: deliveries}
}

// Order gives the simulator a command.
func (p *Play) Order(c sim.Command) {
	p.Helper()
	c.Provider = p.vendor.String()
	if err := p.Sim.Command(c); err != nil {
		p.Fatal(err)
	}
}

// Latency is that of answers to pushes that come from now on.
func (p *Play) Latency(d time.Duration) {
	p.Helper()
	if err := p.Sim.SetFaults(p.vendor, sim.Faults{Latency: d}); err != nil {
		p.Fatal(err)
	}
}

// Make makes n deliveries that no earlier one is like.
func (p *Play) Make(n int) []*pipeline.Delivery {
	ds := p.deliveries(len(p.Sent), len(p.Sent)+n)
	p.Sent = append(p.Sent, ds...)
	return ds
}

// Push sends and waits for the results.
func (p *Play) Push(ds []*pipeline.Delivery) []*pipeline.Delivery {
	p.Helper()
	Push(p.T, p.Client.Lane(0), ds)
	return ds
}

// During sends, does something when all have arrived, and waits for the
// results.
func (p *Play) During(ds []*pipeline.Delivery, do func()) []*pipeline.Delivery {
	p.Helper()
	before := p.Arrived()
	var wg sync.WaitGroup
	wg.Go(func() { Push(p.T, p.Client.Lane(0), ds) })
	p.Until("they have arrived", func() bool { return p.Arrived() >= before+uint64(len(ds)) })
	do()
	wg.Wait()
	return ds
}

// Arrived is how many pushes the simulator has received.
func (p *Play) Arrived() uint64 { return p.Sim.Ledger().Totals().Providers[p.vendor.String()].Received }

// Until waits until ok.
func (p *Play) Until(what string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("not within %v: %s", hang, what)
		}
	}
}

// All checks that every result is the same, but for the provider's id and the connection.
func (p *Play) All(ds []*pipeline.Delivery, want push.Result) {
	p.Helper()
	for _, d := range ds {
		if got := Bare(d.Result); got != want {
			p.Fatalf("%s: got  %+v\nwant %+v", d.Item.ID, got, want)
		}
	}
}

// Bare is a result without what differs from one push to the next: the provider's id, and
// the connection.
func Bare(r push.Result) push.Result {
	r.ProviderID, r.Conn, r.Ended = "", 0, false
	return r
}

// Tally counts results by class and certainty.
func Tally(ds []*pipeline.Delivery) map[string]int {
	n := map[string]int{}
	for _, d := range ds {
		n[fmt.Sprint(d.Result.Class, "/", [...]string{"not accepted", "accepted", "ambiguous"}[d.Result.Certainty])]++
	}
	return n
}

// Tally checks how many results there are of each class and certainty.
func (p *Play) Tally(ds []*pipeline.Delivery, want map[string]int) {
	p.Helper()
	if got := Tally(ds); fmt.Sprint(got) != fmt.Sprint(want) {
		p.Errorf("got %v, want %v", got, want)
	}
}

// End checks, against the simulator's ledger, that no result says anything
// wrong, and that nothing is left anywhere.
func (p *Play) End() {
	p.Helper()
	for _, d := range p.Sent {
		accepted := p.Sim.Ledger().Accepted(d.Item.ID, d.Device.Hash)
		switch r := d.Result; {
		case r.Class == push.Unsent:
			p.Errorf("%s has no result", d.Item.ID)
		case r.Class == push.Delivered && (accepted != 1 || r.Certainty != push.Accepted):
			p.Errorf("%s: %+v, accepted %d times", d.Item.ID, r, accepted)
		case r.Class != push.Delivered && (r.Certainty == push.Accepted || r.Certainty == push.NotAccepted && accepted != 0):
			p.Errorf("%s: %+v, and accepted %d times", d.Item.ID, r, accepted)
		case accepted > 1:
			p.Errorf("%s: accepted %d times", d.Item.ID, accepted)
		}
	}
	if st := p.Client.Stats(); st.InFlight != 0 || st.Waiting != 0 {
		p.Errorf("left: %+v", st)
	}
}
