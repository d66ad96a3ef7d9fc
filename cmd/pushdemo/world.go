package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// demoApp is the demo's only app.
const demoApp = "shop"

// demoWorld is everything around the demo's worker: Kafka, Redis, the status
// store and both providers, in this process, on free ports of 127.0.0.1. The
// worker and its clients are those of production.
type demoWorld struct {
	config *configs.Config
	kafka  *embedded.Kafka
	redis  *embedded.Redis
	sim    *sim.Server
	status *status.Memory
	client shards.Client
	dir    string // keys and certificates of the made-up app
}

// startDemoWorld starts the servers; after an error it closes those that had
// started. The caller closes the world.
func startDemoWorld(latency time.Duration, cap int) (w *demoWorld, err error) {
	w = &demoWorld{config: configs.Default()}
	w.config.Kafka.JoinWithin = 0 // there is only one worker
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "pushfleet-demo-"); err != nil {
		return w, err
	}
	if err = w.startSim(latency); err != nil {
		return w, fmt.Errorf("starting the simulator: %w", err)
	}
	if w.redis, err = embedded.StartRedis(); err != nil {
		return w, fmt.Errorf("starting Redis: %w", err)
	}
	c := w.config
	c.Kafka.Topics.Partitions = 4
	c.Kafka.Topics.Replication = 1
	c.Redis.Addresses = []string{w.redis.Addr()}
	// The in-process Redis runs its scripts slowly and one at a time, so a script
	// that takes a real one milliseconds must not time out.
	c.Redis.ReadTimeout, c.Redis.WriteTimeout = time.Minute, time.Minute
	c.Batch.Workers = 1
	for i := range c.Lanes {
		c.Lanes[i].CriticalSenders = []string{"*"} // only the demo sends here
	}
	c.Admin.Listen, c.Registry.Listen = "", ""
	// The filters are in this process's memory: room for 2 M ids, not 20 M.
	c.Dedupe.Capacity = 2_000_000
	c.Limits.Rules = []configs.Rule{
		{Name: "type-per-day", Per: "user_type", Max: cap, Window: 24 * time.Hour},
		{Name: "hour", Per: "user", Max: 2 * cap, Window: time.Hour},
	}
	if w.kafka, err = embedded.StartKafka(demoTopics(c)...); err != nil {
		return w, fmt.Errorf("starting Kafka: %w", err)
	}
	c.Kafka.Brokers = w.kafka.Addrs()
	if w.status, err = status.NewMemory(wiring.Layouts(c)); err != nil {
		return w, err
	}
	if err = c.Validate(); err != nil {
		return w, fmt.Errorf("the demo's own configuration: %w", err)
	}
	options, err := wiring.Redis(c)
	if err != nil {
		return w, err
	}
	w.client, err = shards.Open(options)
	return w, err
}

// beyond is a rate a second that the demo comes nowhere near, lowered or not.
const beyond = 1_000_000_000

// startSim starts APNs and FCM, with an account for the demo's app at each.
func (w *demoWorld) startSim(latency time.Duration) error {
	creds, err := sim.NewCredentials(demoApp, "com.example."+demoApp)
	if err != nil {
		return err
	}
	faults := sim.Faults{Latency: latency}
	w.sim, err = sim.New(sim.Options{Apps: []sim.App{creds.App()}, Patterns: sim.Patterns(), Faults: sim.RouteSet{APNS: faults, FCM: faults}})
	if err != nil {
		return err
	}
	if err := w.sim.Start("127.0.0.1:0"); err != nil {
		return err
	}
	account, err := creds.ServiceAccount(w.sim.TokenURI())
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"ca.pem": w.sim.CAPEM(), "key.p8": creds.P8, "account.json": account} {
		if err := os.WriteFile(filepath.Join(w.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	ca := filepath.Join(w.dir, "ca.pem")
	w.config.Apps = []configs.App{{Name: demoApp,
		APNS: &configs.APNS{Topic: creds.Topic, TeamID: creds.TeamID, KeyID: creds.KeyID, KeyFile: filepath.Join(w.dir, "key.p8"),
			Environments: []string{"production"}, ProductionURL: w.sim.URL(), SandboxURL: w.sim.URL(), CAFile: ca, Rate: beyond},
		FCM: &configs.FCM{Project: creds.Project, ServiceAccountFile: filepath.Join(w.dir, "account.json"), URL: w.sim.URL(), CAFile: ca, Rate: beyond},
	}}
	return nil
}

func demoTopics(c *configs.Config) []embedded.Topic {
	var topics []embedded.Topic
	for _, s := range wiring.Topics(c) {
		topics = append(topics, embedded.Topic{Name: s.Name, Partitions: s.Partitions, Compacted: s.Configs["cleanup.policy"] == "compact"})
	}
	return topics
}

func (w *demoWorld) close() {
	if w.client != nil {
		_ = w.client.Close()
	}
	if w.sim != nil {
		_ = w.sim.Close()
	}
	if w.kafka != nil {
		w.kafka.Close()
	}
	if w.redis != nil {
		w.redis.Close()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}
