//go:build linux

package beside

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// The names of processes in accounts.
const (
	GatewayProcess   = "gateway"
	FanoutProcess    = "fanout"
	WorkerProcess    = "worker"
	KafkaServer      = "kafka"
	RedisServer      = "redis"
	CassandraServer  = "cassandra"
	Simulator        = "simulator"
	MeasuringProcess = "measuring" // this one, which sends the messages
)

// The lanes.
const (
	messageLane = "transactional"
	fanoutLane  = "promotional"
)

// world is everything around the two senders.
type world struct {
	*fleet.Fleet
	sim     *servers.Simulator
	people  *crowd.Crowd // the receivers of single messages come first, then the subscribers
	working []*fleet.Process
	address string // of the gateway
	dir     string
	pids    map[string][]int
	ends    []func() // in the order of their making
}

// The senders. Their keys are good on this machine and for the time of a run alone.
var (
	shop = fleet.Caller{Key: "orders-orders-orders-orders-orders-orders", Sender: "orders", Apps: []string{fleet.App}, Rights: []string{"send", "read"}}
	crew = fleet.Caller{Key: "news-news-news-news-news-news-news-news", Sender: "news", Apps: []string{fleet.App}, Rights: []string{"send", "read"}}
)

// receivers are how many users get the single messages, by turns; none of them is a subscriber.
const receivers = 200

// open starts the servers and the simulator, makes topics and schema, registers the users and starts the fleet.
func open(ctx context.Context, o *Options) (*world, error) {
	w := &world{pids: map[string][]int{MeasuringProcess: {os.Getpid()}}}
	if err := w.start(ctx, o); err != nil {
		w.close() // of what was started
		return nil, err
	}
	return w, nil
}

func (w *world) start(ctx context.Context, o *Options) (err error) {
	if w.people, err = crowd.New(crowd.Options{Seed: 1, App: fleet.App, Users: receivers + o.Subscribers, Devices: 1}); err != nil {
		return fmt.Errorf("making up users: %w", err)
	}
	if w.dir, err = os.MkdirTemp("", "pushfleet-beside-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	w.ends = append(w.ends, func() { _ = os.RemoveAll(w.dir) })
	if err := fleet.WriteCallers(w.dir, shop, crew); err != nil {
		return err
	}
	o.Progress("starting Kafka, Redis, Cassandra and the simulator")
	w.sim, err = servers.StartSimulator(ctx, o.Serve, servers.SimulatorOptions{Dir: w.dir, App: fleet.App, Latency: o.Latency, FCMStreams: configs.Default().Send.FCM.Streams})
	if err != nil {
		return err
	}
	w.ends, w.pids[Simulator] = append(w.ends, w.sim.Close), []int{w.sim.PID()}
	set, err := local.StartSet(ctx, local.SetOptions{})
	if err != nil {
		return err
	}
	w.ends = append(w.ends, func() { _ = set.Close() })
	w.pids[KafkaServer], w.pids[RedisServer], w.pids[CassandraServer] = []int{set.Kafka.PID()}, []int{set.Redis.PID()}, []int{set.Cassandra.PID()}
	if err := w.openFleet(o, set.Addresses()); err != nil {
		return err
	}
	o.Progress("registering %d users", w.people.Users)
	if err := w.Populate(ctx, w.people); err != nil {
		return err
	}
	return w.startFleet(ctx, o)
}

// openFleet writes the configuration. It asks nothing of the servers.
func (w *world) openFleet(o *Options, at local.Addresses) (err error) {
	w.Fleet, err = fleet.New(fleet.Options{Dir: w.dir, Programs: fleet.Programs{Worker: o.Worker, Gateway: o.Gateway}, Keyspace: "bench", Elsewhere: []configs.App{w.sim.App},
		Servers:   fleet.Servers{Kafka: []string{at.Kafka}, Redis: []string{at.Redis}, Cassandra: []string{at.Cassandra}},
		Configure: func(c *configs.Config) { w.configure(c, o) }})
	if err == nil {
		w.ends = append(w.ends, func() { _ = w.Fleet.Close() })
	}
	return err
}

// configure is the configuration of all: the defaults, but for what says that a machine is slow. Gateways keep theirs: what
// they refuse is felt.
func (w *world) configure(c *configs.Config, o *Options) {
	fleet.UseShipped(c, messageLane, fanoutLane)
	fleet.UseCallers(c, w.dir)
	c.Kafka.Topics.Partitions = o.Partitions
	c.Gateway.Topics, c.Gateway.Fanout.Enabled, c.Gateway.Fanout.LagTime, c.Gateway.Fanout.Rate = true, true, o.LagTime, o.FanoutRate
}

// startFleet starts workers, a gateway and a process of fan-outs, and waits until all are ready.
func (w *world) startFleet(ctx context.Context, o *Options) error {
	o.Progress("starting the fleet")
	programs := []func() (*fleet.Process, error){w.StartGateway, w.StartFanout}
	names := []string{GatewayProcess, FanoutProcess}
	for range o.Workers {
		programs, names = append(programs, func() (*fleet.Process, error) { return w.StartWorker() }), append(names, WorkerProcess)
	}
	for i, start := range programs {
		p, err := start()
		if err != nil {
			return err
		}
		w.working, w.pids[names[i]] = append(w.working, p), append(w.pids[names[i]], p.PID())
	}
	for _, p := range w.working {
		if err := p.AwaitReady(ctx); err != nil {
			return err
		}
	}
	var err error
	w.address, err = w.working[0].AwaitCallers(ctx)
	return err
}

// ended is an error if one of the fleet's processes has ended.
func (w *world) ended() error {
	for _, p := range w.working {
		if !p.Running() {
			return fmt.Errorf("%s has ended%s", p.Name, p.Tail())
		}
	}
	return nil
}

// close ends everything that was started, the last first.
func (w *world) close() {
	for _, end := range slices.Backward(w.ends) {
		end()
	}
}
