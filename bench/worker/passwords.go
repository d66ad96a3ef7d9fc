//go:build linux

package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/latency"
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
	produced []latency.Sent // guarded by mu
	err      error          // guarded by mu; the first of producing
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
	latency.Every(ctx, passwordEvery, func(n int, _ time.Time) { p.one(n % min(passwordUsers, p.people.Users)) })
}

// appendTime bounds the producing of one password, which Ctrl-C does not cut off: what is counted was written.
const appendTime = 30 * time.Second

func (p *passwords) one(user int) {
	now := time.Now() // when it is handed to the Kafka client
	one := latency.Sent{ID: crowd.Mint(now), User: user, At: now}
	ctx, cancel := context.WithTimeout(context.Background(), appendTime)
	defer cancel()
	err := p.writer.Append(ctx, []kafka.Record{{Key: []byte(p.people.User(user).ID), Value: passwordOf(&one, p.people)}})
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

// passwordOf is what is produced.
func passwordOf(o *latency.Sent, people *crowd.Crowd) []byte {
	return fmt.Appendf(nil, `{"id":%q,"app":%q,"user_id":%q,"type":"one_time_password","priority":"critical","sender_id":"sign-in",`+
		`"title":"Your code","body":"%06d is your code. It is good for five minutes; do not tell it to anybody.","expires_at":%q}`,
		o.ID, fleet.App, people.User(o.User).ID, o.At.UnixMicro()%1_000_000, o.At.Add(passwordLife).UTC().Format(time.RFC3339))
}

// taken are those produced so far.
func (p *passwords) taken() ([]latency.Sent, error) {
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

// waits are those of notifications produced in a time, all of which must have been accepted.
func waits(list []latency.Sent, noted []servers.Noted, from, to time.Time) ([]latency.Wait, error) {
	found, missing := latency.Waits(list, noted, from, to)
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s was not accepted", missing[0].ID)
	}
	return found, nil
}
