package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

// loadFlags are the command line of load.
type loadFlags struct {
	rate     float64
	count    int
	lane     string
	app      string
	users    int
	seed     uint64
	register bool
	plain    bool
}

func newLoadCommand(a *app) *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load --rate N --count N",
		Short: "Produce made-up notifications at a steady rate",
		Long: `Produce made-up notifications for made-up users at a steady rate. Some are copies, expired or broken, and
some users have opted out or have dead tokens (--plain: none of these). The same --seed and --users make
the same users. --register registers them first and waits until the registry has written them to Redis.

The clock sets the rate: each notification has its time, whether or not earlier ones have been
acknowledged, and its acknowledgement is measured from that time. So the times show when Kafka falls
behind.

The tokens are made up: use this with pushsim, never with Apple and Google.`,
		Example: "  pushctl load --rate 5000 --count 100000 --register\n  pushctl load --rate 200000 --count 10000000 --users 1000000 --lane promotional -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.load(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "rate", 1000, "notifications a second, 0.1 to 1,000,000")
	flags.IntVar(&f.count, "count", 10_000, "notifications in all, 1 to 1,000,000,000")
	flags.StringVar(&f.lane, "lane", defaultLane, "`name` of the lane")
	flags.StringVar(&f.app, "app", "", "`name` of the app; default: the first of the configuration")
	flags.IntVar(&f.users, "users", 0, "made-up users, 20 or more; default: one for every ten notifications")
	flags.Uint64Var(&f.seed, "seed", 1, "`number` that the users are generated from")
	flags.BoolVar(&f.register, "register", false, "register the users first")
	flags.BoolVar(&f.plain, "plain", false, "only notifications that reach their users")
	return cmd
}

// crowd makes the users that the flags ask for.
func (f *loadFlags) crowd() (*crowd.Crowd, error) {
	switch {
	case !(f.rate >= 0.1 && f.rate <= 1e6):
		return nil, usagef("--rate: must be 0.1 to 1,000,000")
	case f.count < 1 || f.count > 1e9:
		return nil, usagef("--count: must be 1 to 1,000,000,000")
	case f.users != 0 && f.users < 20:
		return nil, usagef("--users: must be 20 or more")
	case f.app == "":
		return nil, usagef("--app: required, because the configuration has no apps")
	}
	o := crowd.Default(f.app, f.count)
	o.Seed, o.Cap = f.seed, 0
	if f.users != 0 {
		o.Users = f.users
	}
	if f.plain {
		o = crowd.Options{Seed: o.Seed, App: o.App, Users: o.Users}
	}
	return crowd.New(o)
}

func (a *app) load(ctx context.Context, f loadFlags) error {
	lane, err := a.lane(f.lane)
	if err != nil {
		return err
	}
	if f.app == "" && len(a.loaded.Apps) > 0 {
		f.app = a.loaded.Apps[0].Name
	}
	people, err := f.crowd()
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	defer show.end()
	if f.register {
		if err := a.registerCrowd(ctx, people, show); err != nil {
			return err
		}
	}
	w, err := a.laneWriter(ctx, lane.Topic, time.Millisecond)
	if err != nil {
		return err
	}
	l := &loading{flags: f, records: people.Records(), writer: w, show: show}
	err = l.run(ctx)
	show.end()
	if shown := a.show(l.explain(lane.Topic)); shown != nil {
		return errors.Join(err, shown)
	}
	return err
}

const (
	loadBatch   = 1000             // records per append, at most
	loadAppends = 1000             // appends in flight, at most
	appendTime  = 30 * time.Second // deadline of one append
	// loadTick is how long due records gather: 5 records at 1,000 a second.
	loadTick = 5 * time.Millisecond
)

// appender is the part of kafka.Writer that load needs.
type appender interface {
	Append(ctx context.Context, records []kafka.Record) error
}

// loading is one run. One goroutine keeps the schedule. It starts a goroutine
// for each append, and waits for all of them at the end.
type loading struct {
	flags   loadFlags
	records *crowd.Records
	writer  appender
	show    *progress

	produced int // handed to an append
	fates    [crowd.Fates]int
	acked    atomic.Int64
	acks     ackTimes // from the moment a record was due
	took     time.Duration
}

// run produces until all records are acknowledged, an append fails, or ctx
// ends. It waits for the appends in flight before it returns.
func (l *loading) run(ctx context.Context) error {
	var (
		appends sync.WaitGroup
		free    = make(chan struct{}, loadAppends)
		running = context.WithoutCancel(ctx)
	)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	began := time.Now()
	due := func(i int) time.Time {
		return began.Add(time.Duration(float64(i) / l.flags.rate * float64(time.Second)))
	}
	for l.produced < l.flags.count && wait(ctx, due(l.produced)) {
		now := time.Now()
		first, batch := l.produced, make([]kafka.Record, 0, 64)
		for l.produced < l.flags.count && len(batch) < loadBatch && !due(l.produced).After(now) {
			r := l.records.Next(now)
			batch = append(batch, kafka.Record{Key: r.Key, Value: r.Value})
			l.fates[r.Fate]++
			l.produced++
		}
		free <- struct{}{}
		appends.Go(func() {
			defer func() { <-free }()
			within, cancel := context.WithTimeout(running, appendTime)
			defer cancel()
			if err := l.writer.Append(within, batch); err != nil {
				fail(err)
				return
			}
			at := time.Now()
			for i := range batch {
				l.acks.add(at.Sub(due(first + i)))
			}
			l.acked.Add(int64(len(batch)))
		})
		passed := time.Since(began).Seconds()
		l.show.line("%6.1f s   produced %d of %d (%.0f/s of %.0f/s)   acknowledged %d",
			passed, l.produced, l.flags.count, float64(l.produced)/passed, l.flags.rate, l.acked.Load())
	}
	appends.Wait()
	l.took = time.Since(began)
	return context.Cause(ctx)
}

// wait waits until due, or up to a tick longer. It returns false if ctx ends
// first.
func wait(ctx context.Context, due time.Time) bool {
	d := time.Until(due)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(max(d, loadTick))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// loadAnswer is the JSON answer of `pushctl load`.
type loadAnswer struct {
	Topic    string         `json:"topic"`
	Produced int64          `json:"produced"` // acknowledged
	Seconds  float64        `json:"seconds"`
	Rate     float64        `json:"rate"`
	Wanted   float64        `json:"wanted_rate"`
	AckP50   float64        `json:"ack_p50_ms"`
	AckP99   float64        `json:"ack_p99_ms"`
	Fates    map[string]int `json:"fates"` // notifications by what must become of them
}

func (l *loading) explain(topic string) terminal.Answer {
	v := loadAnswer{Topic: topic, Produced: l.acked.Load(), Seconds: l.took.Seconds(), Wanted: l.flags.rate,
		AckP50: milliseconds(l.acks.quantile(0.50)), AckP99: milliseconds(l.acks.quantile(0.99)), Fates: make(map[string]int)}
	if v.Seconds > 0 {
		v.Rate = float64(v.Produced) / v.Seconds
	}
	for f, n := range l.fates {
		if n > 0 {
			v.Fates[crowd.Fate(f).String()] = n
		}
	}
	t := terminal.Table{Columns: []string{"topic", "produced", "seconds", "rate", "wanted", "ack p50 ms", "ack p99 ms"}}
	t.Add(topic, strconv.FormatInt(v.Produced, 10), fmt.Sprintf("%.2f", v.Seconds), fmt.Sprintf("%.0f", v.Rate),
		strconv.FormatFloat(v.Wanted, 'f', -1, 64), fmt.Sprintf("%.1f", v.AckP50), fmt.Sprintf("%.1f", v.AckP99))
	return terminal.Answer{Value: v, Table: t}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// registerCrowd registers all users and waits until they are in Redis.
func (a *app) registerCrowd(ctx context.Context, people *crowd.Crowd, show *progress) error {
	reader, err := a.crowdReader(ctx) // fail before anything is registered
	if err != nil {
		return err
	}
	log, err := a.usersLog(ctx)
	if err != nil {
		return err
	}
	client := users.NewClient(log)
	setting, within := errgroup.WithContext(ctx)
	setting.SetLimit(registerSets)
	var list []users.Registration
	for i := 0; i < people.Users && within.Err() == nil; i++ {
		u := people.User(i)
		for _, d := range u.Devices {
			list = append(list, users.Registration{User: u.ID, Device: d})
		}
		if u.Kind == crowd.OptedOut {
			setting.Go(func() error { return client.SetPreferences(within, u.ID, u.Preferences) })
		}
		if len(list) < importBatch && i < people.Users-1 {
			continue
		}
		if len(list) > 0 {
			if _, err := client.RegisterDevices(ctx, list); err != nil {
				return errors.Join(err, setting.Wait())
			}
		}
		list = list[:0]
		show.line("%d of %d users registered", i+1, people.Users)
	}
	if err := setting.Wait(); err != nil {
		return err
	}
	return awaitRegistered(ctx, reader, people, show)
}

// registerSets is how many users' preferences are set at once.
const registerSets = 64
