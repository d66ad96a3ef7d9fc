//go:build linux

package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
)

// One-time passwords come at a fixed rate, whether those before have arrived or not, each for the next of some users.
const (
	passwordEvery = time.Second / 20
	passwordUsers = 200
	passwordLife  = 5 * time.Minute
)

// passwords are one-time passwords that were produced.
type passwords struct {
	writer *kafka.Writer
	people *crowd.Crowd

	mu       sync.Mutex
	produced []timed // guarded by mu
	err      error   // guarded by mu; the first of producing
}

// timed is one notification whose acceptance the simulator writes down. Of a one-time password the time is when it was
// handed to the Kafka client.
type timed struct {
	id   string
	user int
	at   time.Time
}

func newPasswords(w *world) (*passwords, error) {
	options, err := wiring.Kafka(w.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	for _, l := range w.Config.Lanes {
		if l.Name == passwordLane {
			writer, err := kafka.NewWriter(options, kafka.WriterOptions{Topic: l.Topic})
			return &passwords{writer: writer, people: w.people}, err
		}
	}
	return nil, fmt.Errorf("there is no lane %q", passwordLane)
}

// produce produces one after the other until ctx ends, and returns when all of them are acknowledged.
func (p *passwords) produce(ctx context.Context) {
	ticker := time.NewTicker(passwordEvery)
	defer ticker.Stop()
	var appending sync.WaitGroup
	defer appending.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			appending.Go(func() { p.one(n % min(passwordUsers, p.people.Users)) })
		}
	}
}

// appendTime bounds the producing of one password, which Ctrl-C does not cut off: what is counted was written.
const appendTime = 30 * time.Second

func (p *passwords) one(user int) {
	now := time.Now()
	one := timed{crowd.Mint(now), user, now}
	ctx, cancel := context.WithTimeout(context.Background(), appendTime)
	defer cancel()
	err := p.writer.Append(ctx, []kafka.Record{{Key: []byte(p.people.User(user).ID), Value: one.value(p.people)}})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.err == nil {
			p.err = fmt.Errorf("producing a one-time password: %w", err)
		}
		return
	}
	p.produced = append(p.produced, one)
}

func (o *timed) value(people *crowd.Crowd) []byte {
	return fmt.Appendf(nil, `{"id":%q,"app":%q,"user_id":%q,"type":"one_time_password","priority":"critical","sender_id":"sign-in",`+
		`"title":"Your code","body":"%06d is your code. It is good for five minutes; do not tell it to anybody.","expires_at":%q}`,
		o.id, fleet.App, people.User(o.user).ID, o.at.UnixMicro()%1_000_000, o.at.Add(passwordLife).UTC().Format(time.RFC3339))
}

// taken are those produced so far.
func (p *passwords) taken() ([]timed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.produced), p.err
}

// hashes are the devices of all users that get any.
func (p *passwords) hashes() (devices []string) {
	for i := range min(passwordUsers, p.people.Users) {
		devices = append(devices, p.people.Targets(i).Live...)
	}
	return devices
}

// wait is how long one took until a provider accepted it.
type wait struct {
	at   time.Time // when it was produced
	took time.Duration
}

// waits are those of notifications produced in a time, by what the simulator wrote down; of several devices the first. All
// of them must be there.
func waits(list []timed, noted []servers.Noted, from, to time.Time) (found []wait, err error) {
	accepted := make(map[string]time.Time, len(noted))
	for _, n := range noted {
		if at, is := accepted[n.ID]; !is || n.At.Before(at) {
			accepted[n.ID] = n.At
		}
	}
	for _, o := range list {
		if o.at.Before(from) || o.at.After(to) {
			continue
		}
		at, is := accepted[o.id]
		if !is {
			return nil, fmt.Errorf("%s was not accepted", o.id)
		}
		found = append(found, wait{o.at, at.Sub(o.at)})
	}
	return found, nil
}

// quantile is, in ms, the least time that this part of the waits does not exceed; nil of none.
func quantile(list []wait, part float64) *float64 {
	if len(list) == 0 {
		return nil
	}
	took := make([]time.Duration, len(list))
	for i, w := range list {
		took[i] = w.took
	}
	slices.Sort(took)
	ms := took[max(0, int(math.Ceil(part*float64(len(took))))-1)].Seconds() * 1000
	return &ms
}
