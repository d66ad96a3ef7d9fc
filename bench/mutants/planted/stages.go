//go:build planted

package planted

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/users"
)

// plantedStage does something else in place of a stage, or around it.
type plantedStage struct {
	pipeline.Stage
	apply func(ctx context.Context, b *pipeline.Batch) error
}

func (s plantedStage) Apply(ctx context.Context, b *pipeline.Batch) error { return s.apply(ctx, b) }

// each replaces the stages for which f returns something.
func (s *soil) each(f func(pipeline.Stage) pipeline.Stage) {
	s.Stages = slices.Clone(s.Stages)
	for i, stage := range s.Stages {
		if other := f(stage); other != nil {
			s.Stages[i] = other
		}
	}
}

// emptyLedger knows nothing of anybody.
type emptyLedger struct{}

func (emptyLedger) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	return make([][]push.Row, len(ids)), nil
}

// confirmFromNothing answers every confirm read with no rows.
func confirmFromNothing(s *soil) {
	s.Ledger = emptyLedger{}
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		if d, ok := stage.(*stages.Dedupe); ok {
			return &stages.Dedupe{Filter: d.Filter, Ledger: emptyLedger{}}
		}
		return nil
	})
}

// trustFilter drops whatever the Bloom filter may have seen, unconfirmed.
func trustFilter(s *soil) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		d, ok := stage.(*stages.Dedupe)
		if !ok {
			return nil
		}
		return plantedStage{d, func(ctx context.Context, b *pipeline.Batch) error {
			items := b.Undecided(nil)
			if b.Retry || len(items) == 0 {
				return d.Apply(ctx, b)
			}
			ids, maybe := make([]string, len(items)), make([]bool, len(items))
			for i, it := range items {
				ids[i] = it.ID
			}
			if err := d.Filter.Check(ctx, ids, maybe); err != nil {
				return err
			}
			for i, it := range items {
				if maybe[i] {
					it.Decide(push.Duplicate, "", "")
				}
			}
			return nil
		}}
	})
}

// loseOnStoreError gives up the items of a batch when a store that a stage
// asks is away.
func loseOnStoreError(s *soil) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		return plantedStage{stage, func(ctx context.Context, b *pipeline.Batch) error {
			err := stage.Apply(ctx, b)
			if err == nil || ctx.Err() != nil {
				return err
			}
			for _, it := range b.Undecided(nil) {
				it.Decide(push.Duplicate, "", "")
			}
			return nil
		}}
	})
}

// skipThirdDevice never sends to a user's third device.
func skipThirdDevice(s *soil) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		d, ok := stage.(*stages.Devices)
		if !ok {
			return nil
		}
		return plantedStage{d, func(ctx context.Context, b *pipeline.Batch) error {
			err := d.Apply(ctx, b)
			for i := range b.Items {
				if ds := b.Items[i].Deliveries; len(ds) > 2 {
					b.Items[i].Deliveries = slices.Delete(ds, 2, 3)
				}
			}
			return err
		}}
	})
}

// plantedUsers changes what the registry's records say.
type plantedUsers struct {
	stages.Users
	fetched func(found []*push.User, err error) error
}

func (u plantedUsers) Fetch(ctx context.Context, owners []string, found []*push.User) error {
	return u.fetched(found, u.Users.Fetch(ctx, owners, found))
}

func (s *soil) fetched(f func(found []*push.User, err error) error) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		if p, ok := stage.(*stages.Preferences); ok {
			planted := *p
			planted.Users = plantedUsers{p.Users, f}
			return &planted
		}
		return nil
	})
}

// wipedIsNoDevice takes a shard that was wiped for one whose users have no
// device.
func wipedIsNoDevice(s *soil) {
	s.fetched(func(found []*push.User, err error) error {
		var unbuilt *users.UnbuiltError
		if !errors.As(err, &unbuilt) {
			return err
		}
		for _, u := range found {
			*u = push.User{}
		}
		return nil
	})
}

// ignoreOptOut sends to users who opted out.
func ignoreOptOut(s *soil) {
	s.fetched(func(found []*push.User, err error) error {
		for _, u := range found {
			u.Preferences = push.Preferences{}
		}
		return err
	})
}

// plantedLimiter decides in another way than the limiter.
type plantedLimiter struct {
	stages.Limiter
	decide deciding
}

// deciding is how a planted limiter decides.
type deciding func(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits, inner stages.Limiter) error

func (l plantedLimiter) DecideWith(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits) error {
	return l.decide(ctx, reqs, senders, l.Limiter)
}

func (s *soil) decide(f deciding) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		if l, ok := stage.(*stages.Limits); ok && l.Limiter != nil {
			planted := func() stages.Limiter {
				if inner := l.Limiter(); inner != nil {
					return plantedLimiter{inner, f}
				}
				return nil
			}
			return &stages.Limits{Limiter: planted, Senders: l.Senders, Lane: l.Lane, Zone: l.Zone, Segments: l.Segments, Consent: l.Consent, Checks: l.Checks}
		}
		return nil
	})
}

// limiterCountsTwice spends two of a user's budget for every notification.
func limiterCountsTwice(s *soil) {
	s.decide(func(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits, inner stages.Limiter) error {
		if err := inner.DecideWith(ctx, reqs, senders); err != nil {
			return err
		}
		again := make([]*limits.Request, 0, len(reqs))
		for _, r := range reqs {
			if r.Allowed && !r.Exempt {
				second := *r
				second.ID += ".again"
				again = append(again, &second)
			}
		}
		return inner.DecideWith(ctx, again, nil)
	})
}

// limiterForgets counts a notification again that it has allowed before: a
// record that is delivered again to the next owner may be over the limit.
func limiterForgets(s *soil) {
	var calls atomic.Int64
	boot := strconv.FormatInt(started.UnixNano(), 36)
	s.decide(func(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits, inner stages.Limiter) error {
		suffix := "." + boot + "." + strconv.FormatInt(calls.Add(1), 36)
		for _, r := range reqs {
			id := r.ID
			r.ID += suffix
			defer func() { r.ID = id }()
		}
		return inner.DecideWith(ctx, reqs, senders)
	})
}
