//go:build linux

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// world is everything around the callers.
type world struct {
	*fleet.Fleet
	gateway *fleet.Process
	fanouts *fleet.Process // nil = none works
	address string         // for callers
	caller  fleet.Caller
	dir     string
	pids    map[string][]int // of the servers and the gateway
	admin   *kafka.Admin
	ends    []func() // in the order of their making
}

// callerKey is good on this machine and for the time of a run alone.
const callerKey = "caller-caller-caller-caller-caller-caller"

func newCaller(key string) fleet.Caller {
	return fleet.Caller{Key: key, Sender: "caller", Apps: []string{app}, Rights: []string{"send", "read"}}
}

// open starts the servers, makes topics and schema, and starts the gateway.
func open(ctx context.Context, o *Options) (*world, error) {
	w := &world{pids: make(map[string][]int), caller: newCaller(callerKey)}
	if err := w.start(ctx, o); err != nil {
		w.close() // of what was started
		return nil, err
	}
	return w, nil
}

func (w *world) start(ctx context.Context, o *Options) (err error) {
	if w.dir, err = os.MkdirTemp("", "pushfleet-gateway-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	w.ends = append(w.ends, func() { _ = os.RemoveAll(w.dir) })
	if err := fleet.WriteCallers(w.dir, w.caller); err != nil {
		return err
	}
	startServers := w.startReal
	if o.Embedded {
		startServers = w.startEmbedded
	}
	at, err := startServers(ctx, o)
	if err != nil {
		return err
	}
	if err := w.openFleet(o, at); err != nil {
		return err
	}
	if err := w.Prepare(ctx); err != nil {
		return err
	}
	if err := w.openAdmin(); err != nil {
		return err
	}
	return w.startGateway(ctx)
}

func (w *world) startReal(ctx context.Context, o *Options) (local.Addresses, error) {
	o.Progress("starting Kafka, Redis and Cassandra")
	set, err := local.StartSet(ctx, local.SetOptions{})
	if err != nil {
		return local.Addresses{}, err
	}
	w.ends = append(w.ends, func() { _ = set.Close() })
	w.pids[kafkaServer], w.pids[redisServer], w.pids[cassandra] = []int{set.Kafka.PID()}, []int{set.Redis.PID()}, []int{set.Cassandra.PID()}
	return set.Addresses(), nil
}

// nobody is an address at which no server is.
const nobody = "127.0.0.1:1"

func (w *world) startEmbedded(ctx context.Context, o *Options) (local.Addresses, error) {
	k, err := servers.StartKafka(ctx, o.Serve, w.dir)
	if err != nil {
		return local.Addresses{}, err
	}
	w.ends, w.pids[kafkaServer] = append(w.ends, k.Close), []int{k.PID()}
	return local.Addresses{Kafka: k.Address, Redis: nobody, Cassandra: nobody}, nil
}

// openFleet writes the configuration. It asks nothing of the servers.
func (w *world) openFleet(o *Options, at local.Addresses) (err error) {
	options := fleet.Options{Dir: w.dir, Programs: fleet.Programs{Gateway: o.Gateway}, Keyspace: "bench", Elsewhere: apps(),
		Servers:   fleet.Servers{Kafka: []string{at.Kafka}, Redis: []string{at.Redis}, Cassandra: []string{at.Cassandra}},
		Configure: func(c *configs.Config) { w.configure(c, o) }}
	if o.Embedded {
		options.Status = servers.Rows("") // nobody asks
	}
	if w.Fleet, err = fleet.New(options); err == nil {
		w.ends = append(w.ends, func() { _ = w.Fleet.Close() })
	}
	return err
}

// close ends everything that was started, the last first.
func (w *world) close() {
	for _, end := range slices.Backward(w.ends) {
		end()
	}
}

// apps are those of the messages. A gateway uses nothing of them but the names.
func apps() []configs.App {
	return []configs.App{{Name: app, FCM: &configs.FCM{Project: "example-shop", ServiceAccountFile: "not-opened", URL: "https://fcm.googleapis.com"}}}
}

// configure is the configuration of the gateway: the defaults, but for where it is, and for time-outs that a slow machine
// would run into: there the rate is low, and nothing is answered 503.
func (w *world) configure(c *configs.Config, o *Options) {
	d := configs.Default()
	c.Lanes, c.Cassandra.Timeout = d.Lanes, slow/6
	c.Gateway.Confirm, c.Gateway.Status, c.Gateway.Drain, c.Gateway.AnswerTimeout = slow, slow, slow, d.Gateway.BodyTimeout+2*slow
	fleet.UseCallers(c, w.dir)
	c.Kafka.Topics.Partitions = o.Partitions
	c.Admin.PProf = true
	if o.Subscribers > 0 && !o.Embedded {
		c.Gateway.Topics, c.Gateway.Fanout.Enabled = true, true
		c.Gateway.Fanout.Lag, c.Gateway.Fanout.LagTime = 1_000_000_000, 0 // nobody works on the lane
	}
}

// slow is how long a slow machine may take.
const slow = time.Minute

func (w *world) openAdmin() error {
	options, err := wiring.Kafka(w.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if w.admin, err = kafka.NewAdmin(options); err != nil {
		return err
	}
	w.ends = append(w.ends, w.admin.Close)
	return nil
}

// startGateway starts it and waits until it takes messages and answers about receipts.
func (w *world) startGateway(ctx context.Context) (err error) {
	if w.gateway, err = w.StartGateway(); err != nil {
		return err
	}
	w.pids[gatewayProcess] = []int{w.gateway.PID()}
	if err := w.gateway.AwaitReady(ctx); err != nil {
		return err
	}
	w.address, err = w.gateway.AwaitCallers(ctx)
	return err
}

// records is how many there are in all lanes.
func (w *world) records(ctx context.Context) (n int64, err error) {
	for _, l := range w.Config.Lanes {
		ends, err := w.admin.EndOffsets(ctx, l.Topic)
		if err != nil {
			return 0, err
		}
		for _, end := range ends {
			n += end
		}
	}
	return n, nil
}

// deliver writes the rows that workers would: each message is delivered to one device.
func (w *world) deliver(ctx context.Context, messages []sent) error {
	options, err := wiring.Cassandra(w.Config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	options.Timeout = time.Minute
	store, err := status.OpenCassandra(ctx, options)
	if err != nil {
		return err
	}
	defer store.Close()
	const group = 1000
	for some := range slices.Chunk(messages, group) {
		if err := store.Write(ctx, rowsOf(some)); err != nil {
			return fmt.Errorf("writing rows: %w", err)
		}
	}
	return nil
}

// rowsOf are the rows of messages that were delivered.
func rowsOf(messages []sent) []push.Row {
	rows := make([]push.Row, len(messages))
	for i, m := range messages {
		id, _, _ := strings.Cut(m.Receipt, "~")
		rows[i] = push.Row{ID: id, Device: push.DeviceHash(push.FCM, m.User), State: push.StateDelivered, At: time.Now(), Platform: push.FCM,
			ProviderID: "projects/example-shop/messages/0", UserHash: push.UserHash(m.User)}
	}
	return rows
}
