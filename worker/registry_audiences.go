package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// AudienceStore is where a registry notes who uses an app.
type AudienceStore interface {
	audiences.Adder
	Check(ctx context.Context) error
}

// audiencesState is the name of audiences in a registry's /readyz.
const audiencesState = "audiences"

// audiencesPoll is how many records are noted between two commits: with 32 at once, in well
// under the minute that a group waits for one of its members.
const audiencesPoll = 2000

// openAudiences is OpenAudiences, or opens Cassandra.
func (o *RegistryOptions) openAudiences() (func(context.Context) (AudienceStore, func(), error), error) {
	if o.OpenAudiences != nil {
		return o.OpenAudiences, nil
	}
	so, err := wiring.Cassandra(o.Config, o.Metrics, o.Log)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (AudienceStore, func(), error) {
		session, err := status.OpenSession(ctx, so)
		if err != nil {
			return nil, nil, err
		}
		store := audiences.New(audiences.Options{Tables: session, Concurrency: o.Config.Cassandra.Concurrency})
		if err := store.Check(ctx); err != nil {
			session.Close()
			return nil, nil, fmt.Errorf("%w (pushctl schema apply)", err)
		}
		return store, session.Close, nil
	}, nil
}

// startAudiences begins to note who uses an app, where the configuration says so. What it
// returns ends that, and waits for the end.
func (o *RegistryOptions) startAudiences(ctx context.Context, options kafka.Options, admin *kafka.Admin, h *health) (stop func(), err error) {
	if !o.Config.Registry.Audiences {
		return func() {}, nil
	}
	open, err := o.openAudiences()
	if err != nil {
		return nil, err
	}
	aside := newHealth(audiencesState)
	h.tell(func() []string {
		_, lines := aside.report()
		return lines
	})
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{}) // closed when it has ended
	go func() {
		defer close(over)
		if err := o.noteAudiences(ctx, options, admin, aside, open); ctx.Err() == nil {
			aside.set(audiencesState, err)
			o.Log.Error("audiences: nobody notes who uses an app", "error", err)
		}
	}()
	return func() {
		cancel()
		<-over
	}, nil
}

// noteAudiences notes until ctx ends who uses an app. It reads push.users by itself, so that
// Redis is kept filled however Cassandra is; aside tells how that is, and makes nobody unready.
func (o *RegistryOptions) noteAudiences(ctx context.Context, options kafka.Options, admin *kafka.Admin, aside *health,
	open func(context.Context) (AudienceStore, func(), error)) error {
	c := o.Config
	metrics := audiences.NewMetrics(o.Metrics)
	var store AudienceStore
	done := func() {}
	err := connect(ctx, o.Log, aside, audiencesState, strings.Join(c.Cassandra.Hosts, ","), func(ctx context.Context) error {
		return limited(ctx, 4*c.Cassandra.Timeout, func(ctx context.Context) (err error) {
			store, done, err = open(ctx)
			return err
		})
	})
	if err != nil {
		return err
	}
	defer done()
	consumer, err := kafka.NewConsumer(options, kafka.UsersTopic, c.Registry.AudiencesGroup())
	if err != nil {
		return err
	}
	defer consumer.Close()
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() {
		checkStore(ctx, aside, audiencesState, store.Check)
	})
	watches.Go(func() {
		checkStore(ctx, aside, audiencesState+" in push.users", func(ctx context.Context) error {
			backlog, err := backlogOf(ctx, admin, c.Registry.AudiencesGroup(), kafka.UsersTopic)
			if err == nil {
				metrics.SetLag(backlog.Sum())
			}
			return err
		})
	})
	f := audiences.NewFiller(audiences.FillerOptions{Source: usersSource{consumer}, Store: store, Metrics: metrics, Log: o.Log,
		Retry: push.Backoff{First: 100 * time.Millisecond, Longest: 10 * time.Second}})
	return f.Run(ctx)
}

// usersSource reads push.users for package audiences.
type usersSource struct{ *kafka.Consumer }

// Poll implements audiences.Source.
func (s usersSource) Poll(ctx context.Context) ([]audiences.Record, error) {
	polled, err := s.Consumer.Poll(ctx, audiencesPoll)
	if err != nil {
		return nil, err
	}
	records := make([]audiences.Record, len(polled))
	for i, r := range polled {
		records[i] = audiences.Record{Key: string(r.Key), Value: r.Value, At: r.Timestamp}
	}
	return records, nil
}
