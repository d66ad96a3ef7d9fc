//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// The rights that Forbid takes away, by its form.
const (
	readLane   = iota // of the lane's topic: fetches and commits are refused
	writeAside        // of its retry, hold and dead-letter topics: hand-overs are refused
	joinGroup         // of both groups: heartbeats and commits are refused
	rights            // how many there are
)

// forbid takes a right from everybody for a time, as an operator does who
// rewrites the rules. A resource without rules is everybody's here, and one with
// a rule is nobody's but for what it allows, so all else is allowed beside it.
func (n *nemesis) forbid(ctx context.Context, a Action) error {
	n.world.serving[Kafka].Lock()
	defer n.world.serving[Kafka].Unlock()
	client, err := n.world.kafkaClient()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	all, denied, err := n.rules(ctx, admin, a.Form)
	if err != nil {
		return err
	}
	e := invariants.Event{Kind: string(Forbid) + ": " + [rights]string{"to read the lane", "to write aside", "to be in the group"}[a.Form],
		Target: Kafka, Start: time.Now(), Stalls: true, Mute: true}
	if a.Form == joinGroup {
		// The group may give partitions away whose owners are not heard any more.
		e.Repeats = n.world.scenario.bound() * len(n.world.workers())
	}
	at := n.begin(e)
	for _, rule := range []*kadm.ACLBuilder{all, denied} {
		if err := created(admin.CreateACLs(ctx, rule)); err != nil {
			return err
		}
	}
	hold(ctx, a.For)
	// Also at the end of a run that was interrupted.
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
	defer cancel()
	for _, rule := range []*kadm.ACLBuilder{denied, all} {
		if err := deleted(admin.DeleteACLs(undoing, rule)); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events[at].End = time.Now()
	n.events[at].ComesBack = a.Form != writeAside // what is not handed over need not stop what goes well
	return nil
}

// rules are one that allows everything of some resources, and one that denies
// what a form of Forbid is about.
func (n *nemesis) rules(ctx context.Context, admin *kadm.Client, form int) (all, denied *kadm.ACLBuilder, err error) {
	const everybody = "User:*"
	all, denied = kadm.NewACLs().Allow(everybody).AllowHosts(), kadm.NewACLs().Deny(everybody).DenyHosts()
	on := func(b *kadm.ACLBuilder, o ...kadm.ACLOperation) *kadm.ACLBuilder {
		b = b.ResourcePatternType(kadm.ACLPatternLiteral).Operations(o...)
		return b
	}
	c := n.world.fleet.Config
	switch form {
	case joinGroup:
		groups := []string{c.Kafka.LaneGroup(fleet.Lane), c.Kafka.RetryGroup(fleet.Lane)}
		return on(all.Groups(groups...), kadm.OpAll), on(denied.Groups(groups...), kadm.OpRead), nil
	case writeAside:
		aside, err := laneTopics(ctx, admin, fleet.Topic)
		if err != nil {
			return nil, nil, err
		}
		topics := slices.Concat(aside[waiting], aside[dead])
		return on(all.Topics(topics...), kadm.OpAll), on(denied.Topics(topics...), kadm.OpWrite), nil
	}
	return on(all.Topics(fleet.Topic), kadm.OpAll), on(denied.Topics(fleet.Topic), kadm.OpRead), nil
}

func created(results kadm.CreateACLsResults, err error) error {
	for _, r := range results {
		if err == nil && r.Err != nil {
			err = fmt.Errorf("a rule for %s: %w", r.Name, r.Err)
		}
	}
	return err
}

func deleted(results kadm.DeleteACLsResults, err error) error {
	rules := 0
	for _, r := range results {
		if err == nil && r.Err != nil {
			err = fmt.Errorf("removing rules: %w", r.Err)
		}
		rules += len(r.Deleted)
	}
	if err == nil && rules == 0 {
		err = fmt.Errorf("removing rules: there are none")
	}
	return err
}
