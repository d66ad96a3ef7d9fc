package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// rotated is an app whose keys are exchanged while its routes are open.
type rotated struct {
	t       *testing.T
	sim     *sim.Server
	dir     string
	creds   *sim.Credentials // in the files
	log     bytes.Buffer
	metrics *prometheus.Registry
	watched *credentials
	routes  routes
	gates   *gates.Gates
}

var (
	apnsShop = push.Route{Platform: push.APNS, App: "shop", Environment: "production"}
	fcmShop  = push.Route{Platform: push.FCM, App: "shop"}
)

func newRotated(t *testing.T) *rotated {
	t.Helper()
	r := &rotated{t: t, dir: t.TempDir(), creds: providertest.Credentials(), metrics: prometheus.NewRegistry(),
		sim: providertest.Simulator(t, sim.Options{Rules: sim.Rules{UpdatesPerAddress: true}})}
	log := slog.New(slog.NewJSONHandler(&r.log, nil))
	r.put("ca.pem", r.sim.CAPEM())
	r.write(r.creds)
	c := configs.Default()
	c.Send.APNS, c.Send.FCM = configs.Pool{Connections: 2, Streams: 100}, configs.Pool{Connections: 2, Streams: 50}
	c.Apps = []configs.App{{Name: "shop",
		APNS: &configs.APNS{Topic: r.creds.Topic, TeamID: r.creds.TeamID, KeyID: r.creds.KeyID, KeyFile: r.at("key.p8"),
			Environments: []string{"production"}, ProductionURL: r.sim.URL(), SandboxURL: r.sim.URL(), CAFile: r.at("ca.pem")},
		FCM: &configs.FCM{Project: r.creds.Project, ServiceAccountFile: r.at("account.json"), URL: r.sim.URL(), CAFile: r.at("ca.pem")}}}
	r.watched = newCredentials(log, r.metrics)
	var err error
	if r.routes, err = openRoutes(c, log, r.watched); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.routes.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.metrics.MustRegister(refusals{r.routes})
	if r.gates, err = gates.New([]push.Route{apnsShop, fcmShop}, gates.DefaultOptions(), gates.NewMetrics(r.metrics), log, time.Now()); err != nil {
		t.Fatal(err)
	}
	r.watched.gates.Store(r.gates)
	return r
}

func (r *rotated) at(name string) string { return filepath.Join(r.dir, name) }

// put replaces a file as operators are to: renamed over the former one.
func (r *rotated) put(name string, content []byte) {
	r.t.Helper()
	next := r.at(name + ".next")
	if err := os.WriteFile(next, content, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(next, r.at(name)); err != nil {
		r.t.Fatal(err)
	}
}

// write puts keys into the files, Apple's with its id.
func (r *rotated) write(c *sim.Credentials) {
	r.t.Helper()
	account, err := c.ServiceAccount(r.sim.TokenURI())
	if err != nil {
		r.t.Fatal(err)
	}
	r.put("key.p8", append([]byte("Key-Id: "+c.KeyID+"\n"), c.P8...))
	r.put("account.json", account)
}

// next are other keys, which the providers do not know yet.
func (r *rotated) next() *sim.Credentials {
	r.t.Helper()
	c, err := r.creds.Next()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rotated) series(name, label, value string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return -1
}

func (r *rotated) push(route push.Route, from, to int) []*pipeline.Delivery {
	token := func(i int) string { return fmt.Sprintf("%064x", i+1) }
	if route.Platform == push.FCM {
		token = func(i int) string { return fmt.Sprintf("cXyZ_12-3:APA91b%d", i) }
	}
	ds := providertest.Deliveries(route.Platform, from, to, token)
	providertest.Push(r.t, r.routes[route].Lane(0), ds)
	return ds
}

// Rotation under load: the keys change twenty times while both routes send without a
// pause, with a broken file in between; each former key is revoked as soon as the next
// one has sent. Nothing fails, nothing is lost, nothing is accepted twice.
func TestRotationUnderLoad(t *testing.T) {
	const changes = 20
	r := newRotated(t)
	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	var pushed [2]atomic.Int64
	for i, route := range []push.Route{apnsShop, fcmShop} {
		sending.Go(func() {
			for n := 0; ctx.Err() == nil; n += 200 {
				for _, d := range r.push(route, n, n+200) {
					if d.Result.Class != push.Delivered {
						t.Errorf("%s %s: %+v", route, d.Item.ID, d.Result)
						stop()
						return
					}
					if got := r.sim.Ledger().Accepted(d.Item.ID, d.Device.Hash); got != 1 {
						t.Errorf("%s %s: accepted %d times", route, d.Item.ID, got)
					}
				}
				pushed[i].Add(200)
			}
		})
	}
	for i := range changes {
		if i == changes/2 {
			r.put("key.p8", []byte("Key-Id: "+r.creds.KeyID+"\n-----BEGIN PRIVATE KEY-----\nnonsense"))
			r.put("account.json", []byte(`{"type": "service_account", `))
			r.watched.look()
			for _, name := range []string{"apns.key_file", "fcm.service_account_file"} {
				if got := r.series("push_credential_broken", "credential", name); got != 1 {
					t.Errorf("push_credential_broken of %s is %v with a broken file", name, got)
				}
			}
		}
		before, next := pushed[1].Load(), r.next()
		r.sim.Trust(next.App())
		r.write(next)
		r.watched.look()
		await(t, "the new key sends", func() bool {
			return ctx.Err() != nil || r.sim.KeyPushes(next.KeyID) > 100 && pushed[1].Load() > before
		})
		r.sim.Revoke(r.creds.App())
		r.creds = next
	}
	stop()
	sending.Wait()
	for _, name := range []string{"apns.key_file", "fcm.service_account_file"} {
		if got := r.series("push_credential_changes_total", "credential", name); got != changes {
			t.Errorf("%s: %v changes counted, want %d", name, got, changes)
		}
		if got := r.series("push_credential_broken", "credential", name); got != 0 {
			t.Errorf("%s: push_credential_broken is %v at the end", name, got)
		}
	}
	t.Logf("%d to Apple, %d to Google", pushed[0].Load(), pushed[1].Load())
	if strings.Contains(r.log.String(), "nonsense") || strings.Contains(r.log.String(), "PRIVATE KEY") {
		t.Error("the log has what is in a file")
	}
}

// A key that Apple refuses halts its route alone and says whose it is; another key in
// the file ends the halt without waiting for its pause.
func TestARefusedKeyHaltsUntilItsFileChanges(t *testing.T) {
	r := newRotated(t)
	stranger := r.next()
	r.write(stranger) // whom Apple does not know yet
	account, err := r.creds.ServiceAccount(r.sim.TokenURI())
	if err != nil {
		t.Fatal(err)
	}
	r.put("account.json", account)
	r.watched.look()
	ticket, _, _, _ := r.gates.Of(apnsShop).Admit(time.Now(), gates.Free, false, 1)
	d := r.push(apnsShop, 0, 1)[0]
	gates.Return(time.Now(), []gates.Answer{{Ticket: ticket, Result: &d.Result}})
	if !d.Result.Halt || r.gates.Of(apnsShop).Until(time.Now()).IsZero() {
		t.Fatalf("not halted by %+v", d.Result)
	}
	for route, want := range map[push.Route]float64{apnsShop: 1, fcmShop: 0} {
		if got := r.series("push_credential_refused", "route", route.String()); got != want {
			t.Errorf("push_credential_refused of %s is %v, want %v", route, got, want)
		}
	}
	if key, remedy := r.routes[apnsShop].(refusing).RefusedKey(); key != stranger.KeyID || !strings.Contains(remedy, "must not be revoked") {
		t.Errorf("refused is key %q, to do is %q", key, remedy)
	}
	for _, part := range []string{stranger.KeyID, `"app":"shop"`, "InvalidProviderToken", "the key must not be revoked"} {
		if !strings.Contains(r.log.String(), part) {
			t.Errorf("the log does not say %q", part)
		}
	}
	r.write(r.creds)
	r.watched.look()
	if !r.gates.Of(apnsShop).Until(time.Now()).IsZero() {
		t.Error("still halted, with another key in the file")
	}
	if d := r.push(apnsShop, 1, 2)[0]; d.Result.Class != push.Delivered {
		t.Errorf("%+v", d.Result)
	}
	if got := r.series("push_credential_refused", "route", apnsShop.String()); got != 0 {
		t.Errorf("push_credential_refused is %v after an acceptance", got)
	}
}

// rotating is a client whose key is refused; no word = it is not.
type rotating struct{ word, key string }

func (*rotating) Lane(int) pipeline.Provider     { return nil }
func (*rotating) Close(context.Context) error    { return nil }
func (c *rotating) Refused() string              { return c.word }
func (c *rotating) RefusedKey() (string, string) { return c.key, "another one" }

// A route has one series of refusals, however many keys it has had: that of a key that is not
// in use any more is gone with the next scrape, and so is that of a mended one.
func TestARefusedKeyLeavesNoSeries(t *testing.T) {
	c, reg := new(rotating), prometheus.NewPedanticRegistry()
	reg.MustRegister(refusals{routes{apnsShop: c}})
	scrape := func(want float64, key string) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
			t.Fatalf("%v, %v, want one series", families, err)
		}
		m := families[0].GetMetric()[0]
		for _, l := range m.GetLabel() {
			if l.GetName() == "key" && l.GetValue() != key {
				t.Fatalf("the series of key %q, want %q", l.GetValue(), key)
			}
		}
		if got := m.GetGauge().GetValue(); got != want {
			t.Fatalf("key %q: %v, want %v", key, got, want)
		}
	}
	for i := range 1000 {
		c.word, c.key = "InvalidProviderToken", fmt.Sprintf("KEY%07d", i)
		scrape(1, c.key)
	}
	c.word, c.key = "", ""
	scrape(0, "")
}

// Kubernetes exchanges a volume behind its ..data link: the file's own name stays.
func TestAVolumeOfKubernetesIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "tls.crt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "one")
	file := filepath.Join(dir, "tls.crt")
	if err := os.Symlink(filepath.Join("..data", "tls.crt"), file); err != nil {
		t.Fatal(err)
	}
	used := 0
	one := &credential{files: []string{file}, read: func() (content, error) {
		d, err := digestOf([]string{file})
		return content{d, func() (bool, error) { used++; return true, nil }}, err
	}}
	for i, want := range []bool{true, false} {
		if changed, err := one.look(); changed != want || err != nil {
			t.Errorf("look %d: %v, %v", i, changed, err)
		}
	}
	version("..2", "two")
	if changed, err := one.look(); !changed || err != nil || used != 2 {
		t.Errorf("after the exchange: %v, %v, used %d times", changed, err, used)
	}
}

// What makes a file unusable need not be in it: putting a mode right is enough, although
// the content is the one that was refused.
func TestAModeThatIsPutRightIsSeen(t *testing.T) {
	r := newRotated(t)
	ca, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	issue := func() {
		t.Helper()
		cert, key, err := ca.Issue()
		if err != nil {
			t.Fatal(err)
		}
		r.put("tls.crt", cert)
		r.put("tls.key", key)
	}
	issue()
	section := configs.TLS{Enabled: true, CertFile: r.at("tls.crt"), KeyFile: r.at("tls.key")}
	current, err := r.watched.tls("kafka.tls", nil, section.Files(), section.Config)
	if err != nil {
		t.Fatal(err)
	}
	first := current()
	issue()
	for _, step := range []struct {
		mode    os.FileMode
		broken  float64
		changed bool
	}{{0o644, 1, false}, {0o600, 0, true}} {
		if err := os.Chmod(r.at("tls.key"), step.mode); err != nil {
			t.Fatal(err)
		}
		r.watched.look()
		if got := r.series("push_credential_broken", "credential", "kafka.tls"); got != step.broken || (current() != first) != step.changed {
			t.Errorf("mode %04o: broken %v, another one in force: %v", step.mode, got, current() != first)
		}
	}
}

// A certificate and its key are two files: between the two renames the former pair stays
// in force, and what is said is what is wrong now.
func TestCertificateAndKeyChangeOneAfterTheOther(t *testing.T) {
	r := newRotated(t)
	ca, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	r.put("tls.crt", cert)
	r.put("tls.key", key)
	section := configs.TLS{Enabled: true, CertFile: r.at("tls.crt"), KeyFile: r.at("tls.key")}
	current, err := r.watched.tls("redis.tls", nil, section.Files(), section.Config)
	if err != nil {
		t.Fatal(err)
	}
	first := current()
	next, nextKey, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		do      func() error
		problem string // in the latest line of the log; empty = the files are good
		changed bool
	}{
		{func() error { r.put("tls.crt", next); return nil }, "do not match", false},
		{func() error { return os.Remove(r.at("tls.crt")) }, "no such file", false},
		{func() error { r.put("tls.crt", next); return nil }, "do not match", false},
		{func() error { r.put("tls.key", nextKey); return nil }, "", true},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		r.log.Reset()
		r.watched.look()
		broken := r.series("push_credential_broken", "credential", "redis.tls") == 1
		if !strings.Contains(r.log.String(), step.problem) || broken != (step.problem != "") || (current() != first) != step.changed {
			t.Errorf("step %d: broken %v, another one in force: %v, said %q", i, broken, current() != first, r.log.String())
		}
	}
}
