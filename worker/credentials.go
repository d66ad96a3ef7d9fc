package worker

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// credentials are the keys, accounts and certificates that are read from files again
// while the worker runs. They are compared by what is in them, so that it does not
// matter how a file is replaced: renamed over, or behind the ..data link of Kubernetes.
// One that cannot be read or used leaves the former in force.
type credentials struct {
	log  *slog.Logger
	list []*credential
	// gates are those of the routes; nil = they are not open yet.
	gates atomic.Pointer[gates.Gates]

	broken  *prometheus.GaugeVec   // app, credential
	changes *prometheus.CounterVec // app, credential
}

// credential is one of them. Its fields are those of the goroutine that looks.
type credential struct {
	name  string   // the configuration's key of it within its app, or of a store's section
	apps  []string // whose it is; none for a store's
	files []string // that it is read from
	read  func() (content, error)

	inForce digest
	problem error // why; nil = inForce is what the files say
}

// digest identifies a content without keeping it.
type digest = [sha256.Size]byte

// content is what the files say now.
type content struct {
	digest digest
	// use puts it in force, and reports whether it differs from what is.
	use func() (changed bool, err error)
}

func newCredentials(log *slog.Logger, reg prometheus.Registerer) *credentials {
	c := &credentials{log: log,
		broken: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_credential_broken",
			Help: "1 while the files of a key or certificate cannot be read or used, and the former one is in force."}, []string{"app", "credential"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_credential_changes_total",
			Help: "Times another key or certificate was put in force while the worker ran."}, []string{"app", "credential"}),
	}
	reg.MustRegister(c.broken, c.changes)
	return c
}

// add has one looked at. what is in force was read from its files just now.
func (c *credentials) add(one *credential) {
	for _, app := range one.owners() {
		c.broken.WithLabelValues(app, one.name).Set(0)
		c.changes.WithLabelValues(app, one.name)
	}
	c.list = append(c.list, one)
}

// owners are the values of the label app.
func (one *credential) owners() []string {
	if len(one.apps) == 0 {
		return []string{""}
	}
	return one.apps
}

// follow looks at intervals until ctx ends.
func (c *credentials) follow(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.look()
		}
	}
}

// look reads all files once.
func (c *credentials) look() {
	for _, one := range c.list {
		before := one.problem
		changed, err := one.look()
		one.problem = err
		for _, app := range one.owners() {
			if changed {
				c.changes.WithLabelValues(app, one.name).Inc()
			}
			if err != nil {
				c.broken.WithLabelValues(app, one.name).Set(1)
			} else {
				c.broken.WithLabelValues(app, one.name).Set(0)
			}
		}
		log := c.log.With("apps", strings.Join(one.apps, ","), "credential", one.name, "files", strings.Join(one.files, ","))
		switch {
		case err != nil && (before == nil || before.Error() != err.Error()):
			log.Error("a credential is not used; the former one stays in force", "error", err)
		case err == nil && changed:
			log.Info("credential changed")
		case err == nil && before != nil:
			log.Info("a credential's files are again what is in force")
		}
	}
}

// look reads its files once, and puts what is new in force.
func (one *credential) look() (changed bool, err error) {
	now, err := one.read()
	switch {
	case err != nil:
		return false, err
	case now.digest == one.inForce:
		return false, nil
	}
	// What could not be used is tried each time: the same content can do after a chmod, or
	// if a file was away between two readings.
	if changed, err = now.use(); err != nil {
		return false, err
	}
	one.inForce = now.digest
	return changed, nil
}

// renewed ends the halts of routes that have another credential.
func (c *credentials) renewed(routes ...push.Route) {
	gs := c.gates.Load()
	if gs == nil {
		return
	}
	for _, r := range routes {
		if g := gs.Of(r); g != nil {
			g.Renewed(time.Now())
		}
	}
}

// tls has a section's certificates looked at, and returns what connections are to be
// secured by at any time. The first is read now.
func (c *credentials) tls(name string, apps, files []string, build func() (*tls.Config, error)) (func() *tls.Config, error) {
	var current atomic.Pointer[tls.Config]
	one := &credential{name: name, apps: apps, files: files, read: func() (content, error) {
		d, err := digestOf(files)
		return content{d, func() (bool, error) {
			config, err := build()
			if err == nil {
				current.Store(config)
			}
			return true, err
		}}, err
	}}
	if _, err := one.look(); err != nil {
		return nil, err
	}
	if len(files) > 0 {
		c.add(one)
	}
	return current.Load, nil
}

// digestOf reads files and keeps nothing of them.
func digestOf(files []string) (d digest, err error) {
	h := sha256.New()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return d, fmt.Errorf("reading a certificate or its key: %w", err)
		}
		fmt.Fprintf(h, "%d ", len(text))
		h.Write(text)
	}
	return digest(h.Sum(nil)), nil
}

// openCredentials begins to look for new keys and certificates. They are looked for
// from here on, while the worker waits for its stores too, whose certificates are
// among them.
func (g *group) openCredentials(context.Context) error {
	if g.Config.Send.ReloadKeys == 0 {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() { g.credentials.follow(ctx, g.Config.Send.ReloadKeys) })
	g.opened = append(g.opened, func() {
		stop()
		looking.Wait()
	})
	return nil
}

// refusals is a metric of each route: whether the provider refuses its credential. It
// is asked of the clients at each scrape.
type refusals struct{ routes routes }

var refusedDesc = prometheus.NewDesc("push_credential_refused", "1 while the provider refuses the credential of a route, which is halted until another one is there or a probe is accepted.", []string{"route", "key"}, nil)

// refusing is a client that knows whether its credential is refused.
type refusing interface {
	Refused() string
	// RefusedKey names it without giving it away, and says what an operator can do.
	RefusedKey() (key, remedy string)
}

// Describe implements prometheus.Collector.
func (refusals) Describe(ch chan<- *prometheus.Desc) { ch <- refusedDesc }

// Collect implements prometheus.Collector.
func (r refusals) Collect(ch chan<- prometheus.Metric) {
	for route, c := range r.routes {
		if c, is := c.(refusing); is {
			refused, key := 0.0, ""
			if c.Refused() != "" {
				refused = 1
				key, _ = c.RefusedKey()
			}
			ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, refused, route.String(), strings.ToValidUTF8(key, "?"))
		}
	}
}
