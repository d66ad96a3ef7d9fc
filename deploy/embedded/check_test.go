package embedded_test

import (
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/pushfleet/pushfleet/shards"
)

// The server check of package shards, which may not import this one.
func TestCheckServerRefuses(t *testing.T) {
	for _, c := range []struct{ name, info, want string }{
		{"evicts any key", "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", "allkeys-lru"},
		{"evicts keys with an expiry", "maxmemory_policy:volatile-ttl\r\n", "volatile-ttl"},
		{"no Bloom commands", "maxmemory_policy:noeviction\r\n", "BF.*"},
		{"part of a cluster", "maxmemory_policy:noeviction\r\ncluster_enabled:1\r\n", "cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := miniredis.RunT(t)
			m.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
				if cmd != "INFO" {
					return false
				}
				p.WriteBulk(c.info)
				return true
			})
			o := shards.DefaultOptions()
			o.Addrs = []string{m.Addr()}
			client, err := shards.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := shards.CheckServer(t.Context(), client, true); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %s", err, c.want)
			}
		})
	}
}

// What a running server says of its policy and of what it has evicted.
func TestEvictions(t *testing.T) {
	for _, tt := range []struct {
		info    string
		evicted int64
		unfit   string // empty = fit
	}{
		{"maxmemory_policy:noeviction\r\nevicted_keys:0\r\n", 0, ""},
		{"maxmemory_policy:allkeys-lru\r\nevicted_keys:3\r\n", 3, "allkeys-lru"},
		{"maxmemory_policy:noeviction\r\nevicted_keys:41\r\n", 41, ""},
	} {
		m := miniredis.RunT(t)
		m.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			if cmd == "INFO" {
				p.WriteBulk(tt.info)
			}
			return cmd == "INFO"
		})
		o := shards.DefaultOptions()
		o.Addrs = []string{m.Addr()}
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		evicted, unfit, err := shards.Evictions(t.Context(), client)
		if err != nil || len(evicted) != 1 || evicted[m.Addr()] != tt.evicted || (unfit == nil) != (tt.unfit == "") || unfit != nil && !strings.Contains(unfit.Error(), tt.unfit) {
			t.Errorf("%q: %v evicted, %v, %v", tt.info, evicted, unfit, err)
		}
		m.Close()
		if _, unfit, err := shards.Evictions(t.Context(), client); err == nil || unfit != nil {
			t.Errorf("of a server that is away: %v, %v", unfit, err)
		}
	}
}

func TestCheckServerOfTheWrongKind(t *testing.T) {
	addr := os.Getenv("PUSHFLEET_TEST_REDIS")
	if addr == "" {
		t.Skip("PUSHFLEET_TEST_REDIS (host:port) is not set")
	}
	o := shards.DefaultOptions()
	o.Addrs, o.Cluster = []string{addr}, true
	client, err := shards.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := shards.CheckServer(t.Context(), client, true); err == nil {
		t.Error("a single server passed as a cluster")
	}
}
