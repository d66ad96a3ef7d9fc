//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// App is the name of a fleet's app, or of the first of its apps, as messages name
// it.
const App = "shop"

// Servers say where a fleet's stores are.
type Servers struct {
	Kafka     []string
	Redis     []string // more than one: a Redis Cluster
	Cassandra []string
	// Access, when given, is what all three demand; Mechanism is then Kafka's.
	Access    *local.Access
	Mechanism string
}

// Options make a Fleet.
type Options struct {
	Dir      string // for the configuration, credentials and logs; must exist
	Programs Programs
	Servers  Servers
	Others   []string // names of apps beside App, each with credentials of its own
	// Keyspace in Cassandra: one of the fleet's own.
	Keyspace string
	// Configure, if given, changes the configuration that New made: small
	// windows, one lane, time-outs of a few seconds.
	Configure func(*configs.Config)
	// Faults are what the providers do wrong from the start.
	Faults sim.RouteSet
	// Status, when given, is where the status rows are, in place of Cassandra:
	// for workers that were built to write them there.
	Status StatusReader
	// CountOnly makes the ledger count and keep no ids, for long runs at full
	// speed; Account then cannot compare devices.
	CountOnly bool
	// Watch, if given, sees every push as the simulator decides about it.
	Watch func(*sim.Arrival)
	// Elsewhere, when given, are the apps, with accounts at providers that are
	// served elsewhere: then there is no simulator here, and what asks it or
	// depends on the fields above that are about it is for nobody.
	Elsewhere []configs.App
}

// StatusReader reads the status rows of ids, aligned with them.
type StatusReader interface {
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// Lane is the name of the one lane of a fleet, and Topic its topic, unless
// Configure changes them.
const (
	Lane  = "main"
	Topic = "push.main"
)

// newConfig is the configuration of a fleet before Configure.
func newConfig(o *Options) *configs.Config {
	c := configs.Default()
	c.Kafka.Brokers, c.Redis.Addresses, c.Cassandra.Hosts = o.Servers.Kafka, o.Servers.Redis, o.Servers.Cassandra
	c.Redis.Cluster = len(o.Servers.Redis) > 1
	c.Cassandra.Keyspace = o.Keyspace

	// No limit that a machine with other work to do comes near: whoever wants to
	// see one pass sets it.
	c.Kafka.SessionTimeout, c.Kafka.RebalanceTimeout = 20*time.Second, 60*time.Second
	c.Kafka.JoinWithin = 0
	c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 4, 1
	c.Send.Deadline, c.Cassandra.Timeout, c.Send.Drain = 10*time.Second, 4*time.Second, 30*time.Second
	c.Gates.ProbeTimeout = 25 * time.Second
	// Far fewer in flight than a simulator under the race detector answers in a
	// send deadline: an answer that is late counts as none and is sent again.
	c.Send.InFlight, c.Status.Unacknowledged = 500, 250
	// More attempts than chance uses up: with 30 % errors a thirteenth in a row comes
	// once in 10^7 pushes, and a storm of seconds is over.
	c.Retries.Tiers, c.Retries.Max = []time.Duration{time.Second}, 12
	c.Dedupe.Capacity = 1_000_000
	c.Registry.CheckInterval = 200 * time.Millisecond

	lane := c.Lanes[1] // transactional: a greatest age of a day
	lane.Name, lane.Topic = Lane, Topic
	lane.CriticalSenders = []string{"*"} // what a test writes has the priority it says
	c.Lanes = []configs.Lane{lane}
	c.Admin.Listen, c.Registry.Listen = "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// UseShipped has workers run with the defaults in all that costs anything, and with these of the
// default lanes, but for what says that a machine is slow.
func UseShipped(c *configs.Config, lanes ...string) {
	d := configs.Default()
	c.Retries, c.Send, c.Status, c.Cassandra.Timeout, c.Dedupe = d.Retries, d.Send, d.Status, d.Cassandra.Timeout, d.Dedupe
	// On a machine that is too slow the rate is low: nothing is sent twice.
	c.Send.Deadline, c.Send.Drain, c.Kafka.RebalanceTimeout = time.Minute, 2*time.Minute, 4*time.Minute
	c.Gates.ProbeTimeout = 2 * time.Minute
	// A confirm read is good for as long as it is by default: see confirmFor of
	// the pipeline, which takes the deadline off the shortest tier.
	c.Retries.Tiers = later(d.Retries.Tiers, c.Send.Deadline-d.Send.Deadline)
	c.Kafka.SessionTimeout = d.Kafka.SessionTimeout
	c.Lanes = nil
	for _, name := range lanes {
		lane := d.Lanes[slices.IndexFunc(d.Lanes, func(l configs.Lane) bool { return l.Name == name })]
		lane.CriticalSenders = []string{"*"}
		c.Lanes = append(c.Lanes, lane)
	}
}

// later are the times, each by d longer.
func later(times []time.Duration, d time.Duration) (longer []time.Duration) {
	for _, t := range times {
		longer = append(longer, t+d)
	}
	return longer
}

// beyond is a rate a second that no fleet of tests and benches comes near, lowered or
// not: what they see is not that limit. Who wants to see it sets another.
const beyond = 1_000_000_000

// Accounts writes credentials into dir, and are the apps that have them at a
// simulator.
func Accounts(dir string, s *sim.Server, credentials ...*sim.Credentials) (apps []configs.App, err error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	files := map[string][]byte{"providers.pem": s.CAPEM()}
	for _, creds := range credentials {
		account, err := creds.ServiceAccount(s.TokenURI())
		if err != nil {
			return nil, err
		}
		keyFile, accountFile := keyFile(creds.Name), accountFile(creds.Name)
		files[keyFile], files[accountFile] = creds.P8, account
		apps = append(apps, configs.App{Name: creds.Name,
			APNS: &configs.APNS{Topic: creds.Topic, TeamID: creds.TeamID, KeyID: creds.KeyID, KeyFile: at(keyFile),
				Environments: []string{"production"}, ProductionURL: s.URL(), SandboxURL: s.URL(), CAFile: at("providers.pem"), Rate: beyond},
			FCM: &configs.FCM{Project: creds.Project, ServiceAccountFile: at(accountFile), URL: s.URL(), CAFile: at("providers.pem"), Rate: beyond},
		})
	}
	return apps, writeFiles(dir, files)
}

// writeServerSecrets writes what the servers demand into dir, if they do, and
// names it in c.
func writeServerSecrets(c *configs.Config, o *Options) error {
	a := o.Servers.Access
	if a == nil {
		return nil
	}
	ca, password := filepath.Join(o.Dir, "servers.pem"), filepath.Join(o.Dir, "password")
	tls := configs.TLS{Enabled: true, CAFile: ca}
	c.Kafka.TLS, c.Redis.TLS, c.Cassandra.TLS = tls, tls, tls
	c.Kafka.SASL = configs.SASL{Mechanism: o.Servers.Mechanism, Username: a.User, PasswordFile: password}
	c.Redis.Username, c.Redis.PasswordFile = a.User, password
	c.Cassandra.Username, c.Cassandra.PasswordFile = a.User, password
	return writeFiles(o.Dir, map[string][]byte{"servers.pem": a.CA.PEM(), "password": []byte(a.Password + "\n")})
}

// writeFiles writes files into dir, for their owner only.
func writeFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing credentials: %w", err)
		}
	}
	return nil
}

// writeConfig writes c as a file that pushworker reads.
func writeConfig(c *configs.Config, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return errors.Join(configs.Print(f, c), f.Close())
}
