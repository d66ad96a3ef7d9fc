package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// A partition is named in /readyz while it is in trouble here, and leaves no line
// behind when that is over.
func TestReadinessNamesAPartitionWhileItIsInTrouble(t *testing.T) {
	w := &worker{health: newHealth()}
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
		"run":      func(w io.Writer) { _ = runWorker(over, c, w) },
		"registry": func(w io.Writer) { _ = runRegistry(over, c, false, w) },
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
		"[+] route fcm/c: 2 connections; the latest trouble: connecting: refused, 1m30s ago",
	}
	if ready, lines := h.report(); !ready || !slices.Equal(lines, want) {
		t.Errorf("ready %v with %q, want %q", ready, lines, want)
	}
}
