package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// demo is one run.
type demo struct {
	flags   flags
	world   *demoWorld
	people  *crowd.Crowd
	options kafka.Options
	log     *slog.Logger
	stderr  io.Writer
	latency *latencies

	// records is written by produce alone, and read after it has returned.
	records    []produced
	sent       atomic.Int64 // records acknowledged by Kafka
	registered atomic.Bool  // all users are in push.users
	answered   atomic.Int64 // answers from the providers
	began      time.Time
}

// runDemo does the whole demo and prints its result.
func runDemo(ctx context.Context, f flags, stdout, stderr io.Writer) error {
	options := crowd.Default(demoApp, f.notifications)
	people, err := crowd.New(options)
	if err != nil {
		return err
	}
	world, err := startDemoWorld(f.latency, options.Cap)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	defer world.close()
	d := &demo{flags: f, world: world, people: people, latency: newLatencies(), stderr: stderr,
		log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if d.options, err = wiring.Kafka(world.config, d.log); err != nil {
		return &exitError{exitFailed, err}
	}
	var background sync.WaitGroup
	defer background.Wait()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	show := newProgress(stderr)
	result, err := d.run(ctx, running, &background, show)
	show.end()
	if err != nil {
		return &exitError{exitFailed, err}
	}
	if err := d.report(result, stdout, stderr); err != nil {
		return &exitError{exitFailed, err}
	}
	switch {
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, errors.New("interrupted")}
	case !result.clean():
		return &exitError{exitFailed, errors.New("not everything is accounted for")}
	}
	if f.serve {
		err = d.serve(ctx, f.listen, d.invite)
	} else if err = d.tour(ctx); ctx.Err() != nil {
		return &exitError{exitInterrupted, errors.New("interrupted")}
	}
	if err != nil {
		return &exitError{exitFailed, err}
	}
	return nil
}

func (d *demo) report(r *demoResult, stdout, stderr io.Writer) error {
	if !d.flags.json {
		return r.print(stdout)
	}
	if err := r.print(stderr); err != nil {
		return err
	}
	return terminal.WriteJSON(stdout, r, "")
}

// run registers the users, lets the worker deliver until ctx ends, and accounts for
// everything. The registry goes on until running ends.
func (d *demo) run(ctx, running context.Context, background *sync.WaitGroup, show *progress) (*demoResult, error) {
	show.line("registering %d users", d.people.Users)
	caughtUp, err := d.startRegistry(running, background)
	if err != nil {
		return nil, err
	}
	if err := d.register(ctx, caughtUp); err != nil && ctx.Err() == nil {
		return nil, err
	}

	working, stopWorker := context.WithCancel(running)
	defer stopWorker()
	worked := make(chan error, 1)
	background.Go(func() { worked <- d.work(working) })

	d.began = time.Now()
	failed := make(chan error, 1)
	var producing sync.WaitGroup
	producing.Go(func() { failed <- d.produce(ctx) })
	err = d.await(ctx, show, failed, worked)
	took := time.Since(d.began)
	producing.Wait()
	stopWorker()
	if err != nil {
		return nil, err
	}
	if err := <-worked; err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	asking := context.WithoutCancel(ctx)
	letters, err := d.letters(asking)
	if err != nil {
		return nil, err
	}
	result, err := account(asking, &evidence{people: d.people, records: d.records, status: d.world.status,
		ledger: d.world.sim.Ledger(), letters: letters, interrupted: ctx.Err() != nil})
	if err == nil {
		result.measure(took, d.latency)
	}
	return result, err
}

// startRegistry runs the registry in the background. It closes the channel once
// the registry has applied all users.
func (d *demo) startRegistry(ctx context.Context, background *sync.WaitGroup) (<-chan struct{}, error) {
	caughtUp := make(chan struct{})
	since := 0 // checks since all users were registered; the first one may have begun before
	background.Go(func() {
		// Errors only: that the registry builds an empty Redis is no news in a demo.
		quiet := slog.New(slog.NewTextHandler(d.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
		err := worker.RunRegistry(ctx, worker.RegistryOptions{Config: d.world.config, Log: quiet, Metrics: prometheus.NewRegistry(), Progress: func(p users.Progress) {
			if d.registered.Load() {
				since++
			}
			if since == 2 && (p.Ready < shards.Users || p.Lag > 0) {
				since-- // not caught up yet: check again
			} else if since == 2 {
				close(caughtUp)
			}
		}})
		if ctx.Err() == nil {
			d.log.Error("registry ended", "error", err)
		}
	})
	return caughtUp, nil
}

// register registers all users, as an app's backend would, and waits until they
// are in Redis.
func (d *demo) register(ctx context.Context, caughtUp <-chan struct{}) error {
	log, err := wiring.NewUsersLog(d.options)
	if err != nil {
		return err
	}
	defer log.Close()
	client := users.NewClient(log)
	var list []users.Registration
	for i := range d.people.Users {
		u := d.people.User(i)
		for _, device := range u.Devices {
			list = append(list, users.Registration{User: u.ID, Device: device})
		}
		if u.Kind == crowd.OptedOut {
			if err := client.SetPreferences(ctx, u.ID, u.Preferences); err != nil {
				return fmt.Errorf("registering users: %w", err)
			}
		}
		if len(list) >= 1000 || i == d.people.Users-1 {
			if _, err := client.RegisterDevices(ctx, list); err != nil {
				return fmt.Errorf("registering users: %w", err)
			}
			list = list[:0]
		}
	}
	d.registered.Store(true)
	select {
	case <-caughtUp:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work runs a worker as in production, except for its status store.
func (d *demo) work(ctx context.Context) error {
	o := worker.Options{Config: d.world.config, Log: d.log, Metrics: prometheus.NewRegistry(), Exit: os.Exit,
		OpenStatus: func(context.Context, status.Options) (worker.Status, error) { return openStore{d.world.status}, nil },
		Observe: func(ds []*pipeline.Delivery) {
			d.latency.observe(ds)
			d.answered.Add(int64(len(ds)))
		}}
	plant(&o)
	if err := worker.Run(ctx, o); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // stopped before everything was open
}

// openStore outlives the worker, because the account reads it at the end.
type openStore struct{ *status.Memory }

// Close closes nothing.
func (openStore) Close() {}

// demoLane is the index of the demo's lane: transactional.
const demoLane = 1

// produce writes the records as fast as Kafka takes them, until all are written
// or ctx ends.
func (d *demo) produce(ctx context.Context) error {
	w, err := kafka.NewWriter(d.options, kafka.WriterOptions{Topic: d.world.config.Lanes[demoLane].Topic, Linger: time.Millisecond})
	if err != nil {
		return err
	}
	defer w.Close()
	records := d.people.Records()
	const group = 1000
	batch := make([]kafka.Record, 0, group)
	var facts []produced
	for len(d.records) < d.flags.notifications && ctx.Err() == nil {
		batch, facts = batch[:0], facts[:0]
		for range min(group, d.flags.notifications-len(d.records)) {
			r := records.Next(time.Now())
			batch = append(batch, kafka.Record{Key: r.Key, Value: r.Value})
			p := produced{id: r.ID, user: r.User, fate: r.Fate}
			if r.Fate == crowd.DeadLetters {
				p.mark = markOf(r.Key, r.Value)
			}
			facts = append(facts, p)
		}
		// Ctrl-C must not cut off an append: every record that is counted was written.
		if err := w.Append(context.WithoutCancel(ctx), batch); err != nil {
			return fmt.Errorf("producing: %w", err)
		}
		d.records = append(d.records, facts...)
		d.sent.Store(int64(len(d.records)))
	}
	return nil
}

// await shows progress until every record is committed, ctx ends, or the
// producer or the worker fails.
func (d *demo) await(ctx context.Context, show *progress, producer, worked <-chan error) error {
	admin, err := kafka.NewAdmin(d.options)
	if err != nil {
		return err
	}
	defer admin.Close()
	l := d.world.config.Lanes[demoLane]
	ticker := time.NewTicker(25 * time.Millisecond)
	defer ticker.Stop()
	done := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-producer:
			if err != nil {
				return err
			}
			done, producer = true, nil
		case err := <-worked:
			if err == nil {
				err = errors.New("ended by itself")
			}
			return fmt.Errorf("worker: %w", err)
		case <-ticker.C:
		}
		committed, err := d.committed(ctx, admin, d.world.config.Kafka.LaneGroup(l.Name), l.Topic)
		if err != nil && ctx.Err() == nil {
			return err
		}
		took := time.Since(d.began).Seconds()
		show.line("%6.1f s   produced %d of %d   pushes answered %d   done %d (%.0f/s)",
			took, d.sent.Load(), d.flags.notifications, d.answered.Load(), committed, float64(committed)/took)
		if done && committed >= d.sent.Load() {
			return nil
		}
	}
}

// committed counts the records of a topic that the group has committed.
func (d *demo) committed(ctx context.Context, admin *kafka.Admin, group, topic string) (n int64, err error) {
	offsets, err := admin.Committed(ctx, group, topic)
	for _, o := range offsets {
		n += max(0, o)
	}
	return n, err
}

// letters are the records of the lane's DLQ.
func (d *demo) letters(ctx context.Context) (letters []letter, err error) {
	follower, err := kafka.NewFollower(d.options, kafka.DLQTopic(d.world.config.Lanes[demoLane].Topic), nil)
	if err != nil {
		return nil, err
	}
	defer follower.Close()
	extent, err := follower.Extent(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	err = follower.ReadExtent(ctx, extent, func(r kafka.Record) error {
		letters = append(letters, letterOf(&r))
		return nil
	})
	return letters, err
}
