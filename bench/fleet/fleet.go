//go:build unix

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// Fleet is a simulator, a configuration, and the processes that were started
// with it. The methods that wait or ask may be called by several goroutines at
// once; Produce and Register by one at a time.
type Fleet struct {
	Config *configs.Config
	Sim    *sim.Server // nil with Options.Elsewhere

	keys       map[string]*sim.Credentials // by app; as the files have them
	options    Options
	configFile string
	kafka      kafka.Options
	admin      *kafka.Admin
	redis      shards.Client

	mu        sync.Mutex
	processes []*Process // guarded by mu; in the order of their start

	facts  []Fact       // of Produce; read by Account
	people *crowd.Crowd // of Register; read by Account
	writer *kafka.Writer
}

// New starts the simulator and writes the configuration. It asks nothing of
// the servers: Prepare does.
func New(o Options) (f *Fleet, err error) {
	f = &Fleet{options: o, Config: newConfig(&o), configFile: filepath.Join(o.Dir, "worker.yaml")}
	defer func(begun *Fleet) { // f is nil by then
		if err != nil {
			err = errors.Join(err, begun.Close())
		}
	}(f)
	if o.Elsewhere != nil {
		f.Config.Apps = o.Elsewhere
	} else if err := f.startSim(); err != nil {
		return nil, err
	}
	if err := writeServerSecrets(f.Config, &o); err != nil {
		return nil, err
	}
	if o.Configure != nil {
		o.Configure(f.Config)
	}
	if err := f.Config.Validate(); err != nil {
		return nil, fmt.Errorf("the fleet's own configuration: %w", err)
	}
	if err := writeConfig(f.Config, f.configFile); err != nil {
		return nil, err
	}
	return f, f.open()
}

// startSim starts the simulator, with accounts for all apps.
func (f *Fleet) startSim() (err error) {
	o := &f.options
	f.keys = make(map[string]*sim.Credentials)
	var apps []*sim.Credentials
	var known []sim.App
	for _, name := range append([]string{App}, o.Others...) {
		creds, err := sim.NewCredentials(name, "com.example."+name)
		if err != nil {
			return err
		}
		apps, known = append(apps, creds), append(known, creds.App())
		f.keys[name] = creds
	}
	f.Sim, err = sim.New(sim.Options{Apps: known, Patterns: sim.Patterns(), Faults: o.Faults, CountOnly: o.CountOnly, Watch: o.Watch})
	if err != nil {
		return err
	}
	if err := f.Sim.Start("127.0.0.1:0"); err != nil {
		return err
	}
	f.Config.Apps, err = Accounts(o.Dir, f.Sim, apps...)
	return err
}

// maxProduced lets records through that no worker takes: what becomes of them
// is part of what is tested.
const maxProduced = 2 << 20

// open makes the clients that look after the servers; none connects yet.
func (f *Fleet) open() (err error) {
	if f.kafka, err = wiring.Kafka(f.Config, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	if f.admin, err = kafka.NewAdmin(f.kafka); err != nil {
		return err
	}
	if f.writer, err = kafka.NewWriter(f.kafka, kafka.WriterOptions{Topic: f.topic(), MaxBytes: maxProduced}); err != nil {
		return err
	}
	redisOptions, err := wiring.Redis(f.Config)
	if err != nil {
		return err
	}
	f.redis, err = shards.Open(redisOptions)
	return err
}

// topic is the topic of the first lane, which the records go to.
func (f *Fleet) topic() string { return f.Config.Lanes[0].Topic }

// Prepare makes the topics and the schema, as `pushctl topics ensure` and
// `pushctl schema apply` do.
func (f *Fleet) Prepare(ctx context.Context) error {
	// A client of its own: for some seconds it remembers that there were none.
	admin, err := kafka.NewAdmin(f.kafka)
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.EnsureTopics(ctx, append(wiring.Topics(f.Config), wiring.FanoutTopics(f.Config)...), kafka.EnsureOptions{}); err != nil {
		return err
	}
	if f.options.Status != nil {
		return nil // a store that needs no schema
	}
	statusOptions, err := wiring.Cassandra(f.Config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if _, err = status.ApplySchema(ctx, statusOptions, wiring.Schema(f.Config)); err != nil || !f.Config.Gateway.Topics {
		return err
	}
	_, err = status.ApplyGatewaySchema(ctx, statusOptions, wiring.Schema(f.Config))
	return err
}

// StartWorker starts one more worker and returns at once: AwaitReady waits
// until it works. env are variables it gets besides, as NAME=value.
func (f *Fleet) StartWorker(env ...string) (*Process, error) {
	return f.start(f.options.Programs, "worker", f.configFile, []string{"run"}, env...)
}

// StartOtherWorker starts a worker with a configuration of its own: the
// fleet's, changed by change. It must replace lists, not write into them. env
// is as for StartWorker.
func (f *Fleet) StartOtherWorker(change func(*configs.Config), env ...string) (*Process, error) {
	return f.StartWorkerOf(f.options.Programs, change, func(text []byte) ([]byte, error) { return text, nil }, env...)
}

// StartWorkerOf is StartOtherWorker with programs of another release, whose operators
// write the file for it: rewrite gets what this release would read, and returns what that
// one reads.
func (f *Fleet) StartWorkerOf(programs Programs, change func(*configs.Config), rewrite func(text []byte) ([]byte, error), env ...string) (*Process, error) {
	c := *f.Config
	change(&c)
	file, err := os.CreateTemp(f.options.Dir, "worker-*.yaml")
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	if err := errors.Join(file.Close(), writeConfig(&c, file.Name())); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file.Name())
	if err == nil {
		text, err = rewrite(text)
	}
	if err == nil {
		err = os.WriteFile(file.Name(), text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("rewriting the configuration: %w", err)
	}
	return f.start(programs, "worker", file.Name(), []string{"run"}, env...)
}

// StartRegistry starts a registry and returns at once.
func (f *Fleet) StartRegistry() (*Process, error) {
	return f.start(f.options.Programs, "registry", f.configFile, []string{"registry"})
}

// StartGateway starts a gateway, whose files of keys and secrets the configuration must
// name, and returns at once.
func (f *Fleet) StartGateway() (*Process, error) {
	return f.start(Programs{Worker: f.options.Programs.Gateway}, "gateway", f.configFile, []string{"serve"})
}

// StartFanout starts a process of fan-outs and returns at once.
func (f *Fleet) StartFanout() (*Process, error) {
	return f.start(Programs{Worker: f.options.Programs.Gateway}, "fanout", f.configFile, []string{"fanout"})
}

// StartMortal starts a program of the caller's that reads the fleet's configuration as ours do
// and may end by itself, which is no failure. env is as for StartWorker.
func (f *Fleet) StartMortal(name, program string, env ...string) (*Process, error) {
	p, err := f.start(Programs{Worker: program}, name, f.configFile, []string{name}, env...)
	if err == nil {
		p.ending.Store(true)
	}
	return p, err
}

// StartDashboard starts `pushctl dashboard` at an address, host:port, and returns at once:
// AwaitPage waits until it serves. Without a key it is for this machine alone.
func (f *Fleet) StartDashboard(listen string) (*Process, error) {
	return f.start(Programs{Worker: f.options.Programs.Ctl}, "dashboard", f.configFile, []string{"dashboard", "--listen", listen})
}

// start starts a program with a command and its flags, besides the configuration.
func (f *Fleet) start(programs Programs, name, configFile string, command []string, env ...string) (*Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.processes) + 1
	log := filepath.Join(f.options.Dir, fmt.Sprintf("%d.%s.log", n, command[0]))
	p, err := start(fmt.Sprintf("%s %d", name, n), log, env, programs.Worker, slices.Concat(programs.Args, command, []string{"--config", configFile})...)
	if err == nil {
		f.processes = append(f.processes, p)
	}
	return p, err
}

// Ctl runs pushctl with the fleet's configuration and returns its standard
// output.
func (f *Fleet) Ctl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, f.options.Programs.Ctl, append(args, "--config", f.configFile)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, environ()
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("pushctl %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// failure is an error when a process has ended without being told to.
func (f *Fleet) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, p := range f.processes {
		errs = append(errs, p.failure())
	}
	return errors.Join(errs...)
}

// Processes are all that were started, in the order of their start.
func (f *Fleet) Processes() []*Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.processes)
}

// Logs is the end of the log of every process, for a failure's report.
func (f *Fleet) Logs() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b bytes.Buffer
	for _, p := range f.processes {
		b.WriteString(p.Tail())
		b.WriteByte('\n')
	}
	return b.String()
}

// Close kills what still runs, and ends the simulator and the clients. It may
// be called twice.
func (f *Fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, p := range f.processes {
		errs = append(errs, p.Kill())
	}
	f.processes = nil
	if f.writer != nil {
		f.writer.Close()
	}
	if f.admin != nil {
		f.admin.Close()
	}
	if f.redis != nil {
		errs = append(errs, f.redis.Close())
		f.redis = nil
	}
	if f.Sim != nil {
		errs = append(errs, f.Sim.Close())
	}
	return errors.Join(errs...)
}
