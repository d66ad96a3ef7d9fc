//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// ofGateways reports whether a target is a gateway, or a process of fan-outs.
func ofGateways(target string) bool {
	return strings.HasPrefix(target, gatewayTarget) || strings.HasPrefix(target, fanoutTarget)
}

// gateway does something to the process of a gateway, or to one of fan-outs. Nothing of it
// makes anything be pushed again.
func (n *nemesis) gateway(ctx context.Context, a Action) error {
	s, err := n.world.find(a.Target)
	if err != nil {
		return err
	}
	s.busy.Lock()
	defer s.busy.Unlock()
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Of: a.Target, Start: time.Now()}
	if s.door == nil && a.Fault != Stop {
		e.Again = n.world.again()
	}
	switch a.Fault {
	case Kill:
		err = s.kill()
		hold(ctx, a.For)
		err = errors.Join(err, s.start())
	case KillUnheard:
		return n.killUnheard(ctx, s)
	case Stop:
		err = errors.Join(s.term(ctx, n.world.gatewayBudget(s)), s.start())
	case Pause:
		e.Stands = true
		if err := s.pause(); err != nil {
			return err
		}
		hold(ctx, a.For)
		err = s.resume()
	default:
		return errors.New("nobody knows how")
	}
	n.note(e)
	return err
}

// unheardPatience is how long a gateway may take to be sent something.
const unheardPatience = 3 * time.Second

// killUnheard holds what Kafka says back until it has taken what a gateway was sent and has
// not answered, and kills the gateway then. For that time nobody hears of Kafka.
func (n *nemesis) killUnheard(ctx context.Context, s *slot) error {
	n.world.serving[Kafka].Lock()
	defer n.world.serving[Kafka].Unlock()
	held := invariants.Event{Kind: string(HalfOpen), Target: Kafka, Start: time.Now(), Stalls: true, Mute: true, Bars: true,
		Repeats: n.world.scenario.bound() * len(n.world.workers()), Again: n.world.again() * n.world.fanoutProcesses()}
	way := n.world.proxies[Kafka]
	way.Set(proxy.HalfOpen())
	defer way.Set(proxy.Fault{}) // also after an error
	for n.callers.unanswered(s.name) == 0 && time.Since(held.Start) < unheardPatience && ctx.Err() == nil {
		hold(ctx, 2*time.Millisecond)
	}
	e := invariants.Event{Kind: string(KillUnheard), Target: s.name, Of: s.name, Start: time.Now(), Unheard: n.callers.unanswered(s.name)}
	err := s.kill()
	way.Set(proxy.Fault{})
	n.note(held)
	n.note(e)
	return errors.Join(err, s.start())
}

// visit has one process of fan-outs more for a time.
func (n *nemesis) visit(ctx context.Context, a Action) error {
	s := n.world.newFanout()
	s.busy.Lock()
	defer s.busy.Unlock()
	e := invariants.Event{Kind: string(Visit), Target: s.name, Of: s.name, Start: time.Now()}
	if err := s.start(); err != nil {
		return err
	}
	hold(ctx, a.For)
	err := s.term(ctx, n.world.gatewayBudget(s))
	n.note(e)
	return err
}

const (
	// grown is how many partitions the lane has then.
	grown = partitions + 4
	// unnoticed is how long workers take to see that: they look for new partitions every 30 s.
	unnoticed = 35 * time.Second
)

// grow gives the lane more partitions. The others go on.
func (n *nemesis) grow(ctx context.Context) error {
	client, err := n.world.kafkaClient()
	if err != nil {
		return err
	}
	defer client.Close()
	e := invariants.Event{Kind: string(Grow), Target: Kafka, Start: time.Now(), Stalls: true, Mute: true}
	done, err := kadm.NewClient(client).UpdatePartitions(ctx, grown, fleet.Topic)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		return fmt.Errorf("growing the lane: %w", err)
	}
	e.End = e.Start.Add(unnoticed)
	n.note(e)
	return nil
}
