//go:build linux

package gates

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// session is a Redis, the users in it, and the ways to decide about them.
type session struct {
	server *local.Server
	client shards.Client
	people *people

	stages    []pipeline.Stage
	records   *users.Reader // without limiter states
	published string        // hash of the script

	loads []*load // one for each stage worker
}

// answerTime is how long Redis may take to answer: on a machine that is too slow
// the rate is low, and nothing is asked twice.
const answerTime = time.Minute

func open(ctx context.Context, o *Options) (s *session, err error) {
	s = &session{}
	defer func(begun *session) { // s is nil by then
		if err != nil {
			err = errors.Join(err, begun.close())
		}
	}(s)
	if s.people, err = newPeople(o.Users); err != nil {
		return nil, err
	}
	o.Progress("starting Redis")
	if s.server, err = local.StartRedis(ctx, local.RedisOptions{}); err != nil {
		return nil, err
	}
	ro := shards.DefaultOptions()
	ro.Addrs, ro.ReadTimeout, ro.WriteTimeout = []string{s.server.Addr()}, answerTime, answerTime
	if s.client, err = shards.Open(ro); err != nil {
		return nil, err
	}
	if s.stages, err = newStages(s.client, s.people); err != nil {
		return nil, err
	}
	if s.published, err = s.client.ScriptLoad(ctx, slidingLog).Result(); err != nil {
		return nil, fmt.Errorf("loading the script: %w", err)
	}
	s.records = users.NewReader(s.client, false)
	for range configs.Default().Batch.Workers {
		s.loads = append(s.loads, newLoad())
	}
	return s, nil
}

// close may be called of a session that is not complete.
func (s *session) close() error {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(errs...)
}

// newStages are those of a worker from preferences to limits, as it makes them.
func newStages(client shards.Client, p *people) ([]pipeline.Stage, error) {
	c := configs.Default()
	hours, err := wiring.Quiet(c)
	if err != nil {
		return nil, err
	}
	policy := quiet.New(hours)
	limiter, err := limits.New(client, rules(), limits.WriteVersion2())
	if err != nil {
		return nil, err
	}
	return []pipeline.Stage{
		&stages.Preferences{Users: users.NewReader(client, true), Rules: stages.Rules{Quiet: policy}.Fixed()},
		&stages.Devices{},
		&stages.Limits{Limiter: func() stages.Limiter { return limiter }, Lane: "main", Zone: policy.Zone, Segments: p.segmentsOf},
	}, nil
}

// work is done with a batch that has been filled.
type work func(ctx context.Context, l *load) error

// inFlight does n batches, as many at once as there are stage workers.
func (s *session) inFlight(ctx context.Context, n int, do func(ctx context.Context, l *load, k int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var taken atomic.Int64
	for _, l := range s.loads {
		group.Go(func() error {
			for ctx.Err() == nil {
				k := int(taken.Add(1)) - 1
				if k >= n {
					return nil
				}
				if err := do(ctx, l, k); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// judge takes a batch through the stages.
func (s *session) judge(ctx context.Context, l *load) error {
	for _, stage := range s.stages {
		if err := stage.Apply(ctx, &l.Batch); err != nil {
			return fmt.Errorf("stage %s: %w", stage.Name(), err)
		}
	}
	return nil
}

// decide is judge for batches in which nobody has reached a cap.
func (s *session) decide(ctx context.Context, l *load) error {
	if err := s.judge(ctx, l); err != nil {
		return err
	}
	for i := range l.Items {
		if it := &l.Items[i]; !it.Allowed || it.Verdict != push.Undecided || len(it.Deliveries) != 1 {
			return fmt.Errorf("this is no measurement: a notification was not allowed: %v, %s %s, %d deliveries", it.Verdict, it.Reason, it.Detail, len(it.Deliveries))
		}
	}
	return nil
}

// readRecords reads and decodes the users of a batch.
func (s *session) readRecords(ctx context.Context, l *load) error {
	owners, found, out := make([]string, len(l.Items)), make([]push.User, len(l.Items)), make([]*push.User, len(l.Items))
	for i := range l.Items {
		owners[i], out[i] = l.Items[i].Owner(), &found[i]
	}
	if err := s.records.Fetch(ctx, owners, out); err != nil {
		return err
	}
	for i := range found {
		if len(found[i].Devices) != 1 || found[i].Profile.Number != uint32(l.users[i]) {
			return fmt.Errorf("this is no measurement: user %s has %d devices and number %d", owners[i], len(found[i].Devices), found[i].Profile.Number)
		}
	}
	return nil
}
