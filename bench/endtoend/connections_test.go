//go:build unix

package endtoend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// Worker, registry and pushctl work with servers that all demand TLS with a CA
// of their own, and a user with a password. With a wrong password the worker
// is not ready, and says at which server; no password is ever told.
func TestSecuredServers(t *testing.T) {
	localtest.Require(t)
	const records = 500
	access := localtest.Access(t)
	broker := localtest.Kafka(t, local.KafkaOptions{Access: access})
	redis := localtest.Redis(t, local.RedisOptions{Access: access})
	cassandra := localtest.Cassandra(t, local.CassandraOptions{Access: access})
	people := newCrowd(t, records)
	w := newWorld(t, setup{byHand: true, servers: fleet.Servers{
		Kafka: []string{broker.SecureAddr()}, Redis: []string{redis.Addr()}, Cassandra: []string{cassandra.Addr()},
		Access: access, Mechanism: kafka.ScramSHA512}})
	pushctl := func(args ...string) string {
		t.Helper()
		out, err := w.Ctl(waiting(t), args...)
		check(t, err)
		return out
	}
	pushctl("topics", "ensure")
	pushctl("schema", "apply")
	w.populate(people)
	w.worker()
	list := fleet.FromCrowd(people.Records(), records)
	check(t, w.Produce(waiting(t), list))
	w.clean(fleet.AccountOptions{})

	id := newID()
	pushctl("send", "--app", fleet.App, "--lane", fleet.Lane, "--user", someUser(t, people, crowd.Plain),
		"--id", id, "--title", "by hand", "--wait", "60s")
	var found struct{ Outcome string }
	check(t, json.Unmarshal([]byte(pushctl("status", id, "-o", "json")), &found))
	if found.Outcome != push.OutcomeDelivered.String() {
		t.Errorf("pushctl status says %q of a notification that pushctl send saw delivered", found.Outcome)
	}

	for _, mechanism := range []string{kafka.Plain, kafka.ScramSHA256} {
		p, err := w.StartOtherWorker(func(c *configs.Config) { c.Kafka.SASL.Mechanism = mechanism })
		check(t, err)
		check(t, p.AwaitReady(waiting(t)))
		check(t, p.Kill())
	}

	const wrong = "not-the-password"
	file := filepath.Join(t.TempDir(), "password")
	check(t, os.WriteFile(file, []byte(wrong), 0o600))
	for _, tt := range []struct {
		server, at string
		change     func(*configs.Config)
	}{
		{"kafka", broker.SecureAddr(), func(c *configs.Config) { c.Kafka.SASL.PasswordFile = file }},
		{"kafka", broker.SecureAddr(), func(c *configs.Config) {
			c.Kafka.SASL.Mechanism, c.Kafka.SASL.PasswordFile = kafka.Plain, file
		}},
		{"redis", redis.Addr(), func(c *configs.Config) { c.Redis.PasswordFile = file }},
		{"cassandra", cassandra.Addr(), func(c *configs.Config) { c.Cassandra.PasswordFile = file }},
		// Without TLS, and with a CA that did not sign the server's certificate.
		{"kafka", broker.SecureAddr(), func(c *configs.Config) { c.Kafka.TLS = configs.TLS{} }},
		{"redis", redis.Addr(), func(c *configs.Config) { c.Redis.TLS.CAFile = "" }},
		{"cassandra", cassandra.Addr(), func(c *configs.Config) { c.Cassandra.TLS.CAFile = "" }},
	} {
		p, err := w.StartOtherWorker(tt.change)
		check(t, err)
		check(t, p.AwaitLog(waiting(t), "cannot connect", `"to":"`+tt.server+`"`, tt.at))
		check(t, p.AwaitUnready(waiting(t), "[-] "+tt.server+":", "[-] lanes:"))
		t.Log(lineWith(p.Log(), "cannot connect"))
		check(t, p.Kill())
	}
	for _, p := range w.Processes() {
		for _, secret := range []string{access.Password, wrong, "PRIVATE KEY"} {
			if strings.Contains(p.Log(), secret) {
				t.Errorf("a secret is in the log of %s", p.Name)
			}
		}
	}
}

// The whole way over a Redis Cluster, whose slots are spread over three nodes.
func TestRedisCluster(t *testing.T) {
	localtest.Require(t)
	const records = 5000
	people := newCrowd(t, records)
	cluster := localtest.RedisCluster(t, local.RedisOptions{})
	w := newWorld(t, setup{servers: fleet.Servers{Redis: cluster.Addrs()}, configure: func(c *configs.Config) {
		caps(c, people.Cap)
	}})
	w.populate(people)
	w.worker()
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	if r.Resent > 0 {
		t.Errorf("%d pushes were accepted twice", r.Resent)
	}
	check(t, w.AwaitPruned(waiting(t), people))
}

func lineWith(log, words string) string {
	for line := range strings.SplitSeq(log, "\n") {
		if strings.Contains(line, words) {
			return line
		}
	}
	return ""
}
