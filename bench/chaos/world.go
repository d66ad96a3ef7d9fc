//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// world is everything that a run breaks: servers of its own, each behind a
// proxy that the fleet goes through, and the fleet.
type world struct {
	scenario *Scenario
	mode     string   // of the lane
	env      []string // of the workers, besides
	busy     bool     // the machine has other work
	people   *crowd.Crowd
	fleet    *fleet.Fleet
	senders  *senders // which worker a connection to the simulator is of
	slots    []*slot  // the workers; their number does not change but with Join
	registry *slot

	launched atomic.Int64 // workers, so far

	gateways []*slot // guarded by mu
	fanouts  []*slot // guarded by mu; processes of fan-outs, whose number does not change but with Join
	largest  int     // subscribers in a chunk, at most; does not change once the processes are started
	dir      string

	kafka, redis, cassandra *local.Server
	proxies                 map[string]*proxy.Proxy // by server
	// serving holds back a fault of a server while another one is done to it.
	serving map[string]*sync.Mutex

	watching sync.WaitGroup // of the goroutines that wait for the end of processes
	mu       sync.Mutex
	exits    []invariants.Exit // guarded by mu
}

// The usual sizes of the windows (Scenario.windows may be others): a kill may
// repeat what they hold and no more.
const (
	inFlight       = 200 // a route
	unacknowledged = 100 // a route
	routes         = 2   // an app: apns/shop/production, fcm/shop
	pipelines      = 2   // a lane's own topic; its retry, deferral and hold topics
	partitions     = 8
	batchRecords   = 500
	sendDeadline   = 10 * time.Second
	drain          = 25 * time.Second
	soonWithin     = 5 * time.Second // what expires under way
)

// sizes are those of the windows of a route.
type sizes struct{ inFlight, unacknowledged int }

// bound is how many pushes of one worker can be accepted and not durable.
func (s *Scenario) bound() int {
	size := s.sizes()
	return pipelines * routes * (1 + len(s.others)) * (size.inFlight + size.unacknowledged)
}

func (s *Scenario) sizes() sizes {
	if s.windows != (sizes{}) {
		return s.windows
	}
	return sizes{inFlight, unacknowledged}
}

// records is how many a batch has at most in a lane of this mode.
func (s *Scenario) records(mode string) int {
	if mode == configs.AtMostOnce {
		return cmp.Or(s.once, batchRecords)
	}
	return batchRecords
}

// intended is how many notifications of one worker can be committed and not
// answered where a lane sends at most once: a batch of each partition.
func (s *Scenario) intended() int { return partitions * s.records(configs.AtMostOnce) }

// newWorld starts servers and proxies, and makes topics, schema and users. On
// an error nothing is left.
func newWorld(ctx context.Context, o *Options, dir string, records int, seen *arrivals) (_ *world, err error) {
	w := &world{scenario: o.Scenario, mode: o.Mode, env: o.Env, busy: o.Busy, dir: dir, proxies: map[string]*proxy.Proxy{}, senders: &senders{ports: map[string]string{}},
		serving: map[string]*sync.Mutex{Kafka: {}, Redis: {}, Cassandra: {}, APNS: {}, FCM: {}}}
	seen.senders = w.senders
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	options := crowd.Default(fleet.App, records)
	options.Seed, options.Others = o.Seed, o.Scenario.others
	options.Soon, options.Within = 0.02, soonWithin
	options.Wide, options.WideEvery = o.Scenario.wide, o.Scenario.everyWide()
	if g := o.Scenario.through; g != nil {
		g.people(&options, o.Length == o.Scenario.Full)
	}
	if w.people, err = crowd.New(options); err != nil {
		return nil, err
	}
	if err := w.startServers(ctx, dir); err != nil {
		return nil, err
	}
	if o.Scenario.through != nil {
		if err := fleet.WriteCallers(dir, caller()); err != nil {
			return nil, err
		}
	}
	w.fleet, err = fleet.New(fleet.Options{
		Dir: dir, Programs: o.Programs, Others: o.Scenario.others, Keyspace: "chaos", Watch: seen.watch, Configure: w.configure,
		Servers: fleet.Servers{Kafka: []string{w.proxies[Kafka].Addr()}, Redis: []string{w.proxies[Redis].Addr()},
			Cassandra: []string{w.proxies[Cassandra].Addr()}},
		Faults: o.Scenario.usual(),
	})
	if err != nil {
		return nil, err
	}
	if err := w.fleet.Prepare(ctx); err != nil {
		return nil, err
	}
	return w, w.populate(ctx)
}

func (w *world) startServers(ctx context.Context, dir string) (err error) {
	for _, name := range []string{Kafka, Redis, Cassandra} {
		if w.proxies[name], err = proxy.Listen("", nil); err != nil {
			return err
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	var errs [3]error
	var starting sync.WaitGroup
	starting.Go(func() {
		w.kafka, errs[0] = local.StartKafka(ctx, local.KafkaOptions{Dir: at("kafka"), Brief: true, Properties: w.kafkaProperties()})
	})
	starting.Go(func() { w.redis, errs[1] = local.StartRedis(ctx, local.RedisOptions{Dir: at("redis")}) })
	starting.Go(func() {
		w.cassandra, errs[2] = local.StartCassandra(ctx, local.CassandraOptions{Dir: at("cassandra"), Heap: "512m", Brief: true, Durable: true})
	})
	starting.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for name, s := range w.servers() {
		w.proxies[name].Target(s.Addr())
	}
	w.proxies[Cassandra].Set(proxy.Fault{Latency: w.scenario.StoreLatency})
	return nil
}

func (w *world) kafkaProperties() map[string]string {
	p := map[string]string{
		// A client goes where the broker says it is: to the proxy.
		"advertised.listeners": "PLAINTEXT://" + w.proxies[Kafka].Addr(),
		// Producers write whatever time they like, and what seems old must not be
		// deleted before it was read.
		"log.message.timestamp.after.max.ms": "9223372036854775807", "log.retention.check.interval.ms": "86400000",
	}
	if w.scenario.authorized {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["allow.everyone.if.no.acl.found"] = "true" // what has no rule
	}
	return p
}

func (w *world) servers() map[string]*local.Server {
	return map[string]*local.Server{Kafka: w.kafka, Redis: w.redis, Cassandra: w.cassandra}
}

// configure is the fleet's configuration: small windows, so that a bound that
// does not hold shows, and time-outs that outlast a busy machine.
func (w *world) configure(c *configs.Config) {
	c.Batch.Records = w.scenario.records(w.mode)
	size := w.scenario.sizes()
	c.Send.InFlight, c.Status.Unacknowledged, c.Status.Rows = size.inFlight, size.unacknowledged, min(50, size.unacknowledged)
	c.Send.Deadline, c.Cassandra.Timeout, c.Send.Drain = sendDeadline, 5*time.Second, drain
	c.Kafka.SessionTimeout, c.Kafka.RebalanceTimeout = w.scenario.Session, 40*time.Second
	c.Kafka.CommitInterval = 100 * time.Millisecond
	c.Kafka.Topics.Partitions = partitions
	c.Redis.DialTimeout, c.Redis.ReadTimeout, c.Redis.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	c.Lanes[0].Mode = w.mode
	c.Limits.Rules = []configs.Rule{{Name: "type-per-day", Per: "user_type", Max: w.people.Cap, Window: 24 * time.Hour}}
	if n := w.scenario.wide; n > 0 {
		c.Registry.DevicesPerUser, c.Registry.DevicesPerApp = n, n
	}
	if w.scenario.through != nil {
		w.useGateways(c)
	}
	if w.scenario.configure != nil {
		w.scenario.configure(c)
	}
}

// populate registers the users and starts the registry and the workers.
func (w *world) populate(ctx context.Context) error {
	// A broker may not know of a topic for a moment after it was made. To
	// register somebody twice changes nothing.
	for {
		err := w.fleet.Register(ctx, w.people)
		if err == nil {
			break
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || ctx.Err() != nil {
			return err
		}
		hold(ctx, 200*time.Millisecond)
	}
	w.registry = &slot{world: w, name: "registry", launch: w.fleet.StartRegistry}
	if err := w.registry.start(); err != nil {
		return err
	}
	if err := w.fleet.AwaitUsers(ctx, w.people); err != nil {
		return err
	}
	if err := w.fleet.DeclareNew(ctx); err != nil {
		return err
	}
	for i := range w.scenario.Workers {
		s, err := w.newSlot(worker(i))
		if err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range w.workers() {
		if err := s.process().AwaitReady(ctx); err != nil {
			return err
		}
	}
	return w.startGateways(ctx)
}

// kafkaClient is a client that reaches the broker around the proxy. A broker that
// has just started may end a connection at once: that is no answer.
func (w *world) kafkaClient(o ...kgo.Opt) (*kgo.Client, error) {
	direct, proxied := w.kafka.Addr(), w.proxies[Kafka].Addr()
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	return kgo.NewClient(append(o, kgo.SeedBrokers(direct), kgo.AlwaysRetryEOF(), kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
		if host == proxied {
			host = direct
		}
		return dialer.DialContext(ctx, network, host)
	}))...)
}

// workers are the slots of workers as they are now.
func (w *world) workers() []*slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.slots)
}

// all are the slots of all processes but the registry.
func (w *world) all() []*slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.slots, w.gateways, w.fanouts)
}

// find returns the process of that name.
func (w *world) find(name string) (*slot, error) {
	for _, s := range w.all() {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", name)
}

func (w *world) noteExit(e invariants.Exit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exits = append(w.exits, e)
}

// close ends everything.
func (w *world) close() error {
	var errs []error
	for _, s := range w.all() {
		s.expectEnd()
	}
	if w.registry != nil {
		w.registry.expectEnd()
	}
	if w.fleet != nil {
		errs = append(errs, w.fleet.Close())
	}
	w.watching.Wait()
	for _, s := range w.all() {
		for _, p := range []*proxy.Proxy{s.apns, s.fcm, s.door} {
			if p != nil {
				errs = append(errs, p.Close())
			}
		}
	}
	for _, p := range w.proxies {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	for _, s := range w.servers() {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// senders knows which worker a connection to the simulator is of, by the port
// that its proxy dialled from.
type senders struct {
	mu    sync.Mutex
	ports map[string]string // guarded by mu; address to name; the latest user of a port
}

func (s *senders) note(name string) func(net.Addr) {
	return func(local net.Addr) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ports[local.String()] = name
	}
}

func (s *senders) of(remote net.Addr) string {
	if remote == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[remote.String()]
}
