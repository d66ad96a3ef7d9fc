package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// A partition is named in /readyz while it is in trouble here, and leaves no line
// behind when that is over.
func TestReadinessNamesAPartitionWhileItIsInTrouble(t *testing.T) {
	w := &group{health: newHealth()}
	w.health.set("kafka", nil)
	p := push.Partition{Topic: "push.critical", ID: 3}

	w.partitionHealth(p, errors.New("stopped"))
	if ready, lines := w.health.report(); ready || !slices.Contains(lines, "[-] push.critical/3: stopped") {
		t.Errorf("ready %v with %q, want the partition named", ready, lines)
	}
	w.partitionHealth(p, nil)
	if ready, lines := w.health.report(); !ready || !slices.Equal(lines, []string{"[+] kafka ok"}) {
		t.Errorf("ready %v with %q, want kafka alone", ready, lines)
	}
}

// What goes over the network in plaintext is told by every process that does
// it, in its log and for as long as it runs, and makes nothing unready.
func TestInsecureIsTold(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := configs.Default()
	c.Kafka.SASL = configs.SASL{Mechanism: "PLAIN", Username: "u", PasswordFile: password, Insecure: true}
	c.Redis.PasswordFile, c.Redis.Insecure = password, true
	c.Admin.Listen = ""
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, start := range map[string]func(io.Writer){
		"run":      func(w io.Writer) { _ = Run(over, options(c, w)) },
		"registry": func(w io.Writer) { _ = RunRegistry(over, registryOptions(c, w)) },
	} {
		var log bytes.Buffer
		start(&log)
		for _, key := range []string{`"level":"WARN","msg":"insecure","key":"kafka.sasl.insecure"`, `"level":"WARN","msg":"insecure","key":"redis.insecure"`} {
			if !strings.Contains(log.String(), key) || strings.Contains(log.String(), "hunter2") {
				t.Errorf("%s logs\n%s\nwant %s", name, &log, key)
			}
		}
	}

	h := newHealth()
	h.tellInsecure(c, slog.New(slog.DiscardHandler))
	h.set("kafka", nil)
	server := httptest.NewServer(adminHandler(prometheus.NewRegistry(), h, false))
	defer server.Close()
	for range 2 { // it stays
		resp, err := http.Get(server.URL + "/readyz?verbose")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		want := "[!] kafka.sasl.insecure: the password goes over the network in plaintext\n" +
			"[!] redis.insecure: the password goes over the network in plaintext\n[+] kafka ok\n"
		if resp.StatusCode != http.StatusOK || string(body) != want {
			t.Errorf("/readyz?verbose answers %d\n%s\nwant\n%s", resp.StatusCode, body, want)
		}
	}
}

// silent is a client with a state of its own.
type silent struct {
	client
	stats h2.Stats
}

func (c silent) Stats() h2.Stats { return c.stats }

// Why a route has no connection stands in /readyz?verbose, and makes nothing
// unready: a worker whose provider is away is to be left alone.
func TestRoutesAreTold(t *testing.T) {
	now := time.Now()
	trouble := func(lasts bool) h2.Stats {
		return h2.Stats{Connections: 2, Trouble: h2.Trouble{Cause: "connecting: refused", At: now.Add(-90 * time.Second), Lasts: lasts}}
	}
	route := func(app string) push.Route { return push.Route{Platform: push.FCM, App: app} }
	rs := routes{route("a"): silent{stats: h2.Stats{Connections: 3}}, route("b"): silent{stats: trouble(true)}, route("c"): silent{stats: trouble(false)}}
	h := newHealth()
	h.set("kafka", nil)
	h.tell(func() []string { return rs.lines(now) })
	want := []string{
		"[!] route fcm/b: 2 connections; connecting: refused, 1m30s ago",
		"[+] kafka ok",
		"[+] route fcm/a: 3 connections",
		"[+] route fcm/c: 2 connections; last problem: connecting: refused, 1m30s ago",
	}
	if ready, lines := h.report(); !ready || !slices.Equal(lines, want) {
		t.Errorf("ready %v with %q, want %q", ready, lines, want)
	}
}

// Each figure of a route's pool is a metric of its own, with the value of that
// route.
func TestPoolMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(poolMetrics{routes{
		{Platform: push.APNS, App: "shop", Environment: push.Production}: silent{},
		{Platform: push.FCM, App: "shop"}: silent{stats: h2.Stats{
			Dials: 1, DialFailures: 2, Resent: 3, GoAways: 4, Calms: 5, Connections: 6, Granted: 7, InFlight: 8, Waiting: 9,
		}},
	}})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			n := cmp.Or(m.GetCounter().GetValue(), m.GetGauge().GetValue())
			switch route := m.Label[0].GetValue(); {
			case len(m.Label) != 1 || m.Label[0].GetName() != "route":
				t.Errorf("%s has labels %v", f.GetName(), m.Label)
			case route == "fcm/shop":
				got[f.GetName()] = n
			case route != "apns/shop/production" || n != 0:
				t.Errorf("%s{route=%q} is %v", f.GetName(), route, n)
			}
		}
	}
	want := map[string]float64{
		"push_provider_dials_total": 1, "push_provider_dial_failures_total": 2, "push_provider_resends_total": 3,
		"push_provider_goaways_total": 4, "push_provider_slowdowns_total": 5, "push_provider_connections": 6,
		"push_provider_streams_granted": 7, "push_provider_streams": 8, "push_provider_waiting": 9,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestHealth(t *testing.T) {
	h := newHealth("redis", "kafka")
	server := httptest.NewServer(adminHandler(prometheus.NewRegistry(), h, false))
	defer server.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "[-] redis: not yet") {
		t.Errorf("before anything was tried: %d %q", code, body)
	}
	h.set("redis", errors.New("dial tcp 127.0.0.1:6379: connection refused"))
	h.set("kafka", nil)
	if code, body := get("/readyz?verbose"); code != http.StatusServiceUnavailable || body != "[+] kafka ok\n[-] redis: dial tcp 127.0.0.1:6379: connection refused\n" {
		t.Errorf("with Redis away: %d %q", code, body)
	}
	if code, _ := get("/livez"); code != http.StatusOK {
		t.Errorf("a store that is away does not make the process dead: %d", code)
	}
	h.set("redis", nil)
	if code, body := get("/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("with everything there: %d %q", code, body)
	}
	if code, _ := get("/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("pprof is off and answers %d", code)
	}
}

// TestConnectGoesOn: a store that is away is tried until it is there, and
// named meanwhile.
func TestConnectGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHealth("redis")
		tries := 0
		err := connect(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), h, "redis", "redis-1:6379", func(context.Context) error {
			if tries++; tries < 10 {
				return errors.New("connection refused")
			}
			return nil
		})
		if err != nil || tries != 10 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if ready, _ := h.report(); !ready {
			t.Error("connected and not ready")
		}
		if s := log.String(); strings.Count(s, "redis-1:6379") != 10 || !strings.Contains(s, "connection refused") {
			t.Errorf("the log does not say what and where:\n%s", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = connect(ctx, slog.New(slog.DiscardHandler), h, "redis", "x", func(context.Context) error { return errors.New("no") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of ctx: %v", err)
		}
	})
}

// A worker and a registry run on one host by one file: each has its listener.
func TestWorkerAndRegistryShareAHost(t *testing.T) {
	c := configs.Default()
	if problems := c.Validate(); problems != nil {
		t.Fatal(problems)
	}
	// The ports of the defaults may be taken here: what matters is that they differ.
	ports := map[string]bool{}
	for _, at := range []string{c.Admin.Listen, c.Registry.Listen} {
		host, port, err := net.SplitHostPort(at)
		if err != nil || ports[port] {
			t.Errorf("%s: a second listener at port %s (%v)", at, port, err)
		}
		ports[port] = true
		stop, err := startAdmin("listen", net.JoinHostPort(host, "0"), false, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), newHealth())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c.Admin.Listen, c.Registry.Listen = taken.Addr().String(), taken.Addr().String()
	for key, start := range map[string]func() error{
		"admin.listen":    func() error { return Run(t.Context(), options(c, io.Discard)) },
		"registry.listen": func() error { return RunRegistry(t.Context(), registryOptions(c, io.Discard)) },
	} {
		if err := start(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is taken: %v", key, err)
		}
	}
}
