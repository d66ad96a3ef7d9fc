package shards_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// twoMasters is a client of a cluster of two, which say this about their memory and stats
// and know no other command. end closes it and waits for them.
func twoMasters(memory, stats func(addr string) string) (client *redis.ClusterClient, end func()) {
	var servers sync.WaitGroup
	client = redis.NewClusterClient(&redis.ClusterOptions{Protocol: 2, DisableIdentity: true, Addrs: []string{"10.0.0.1:1", "10.0.0.2:1"},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 8000, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:1"}}}, {Start: 8001, End: 16383, Nodes: []redis.ClusterNode{{Addr: "10.0.0.2:1"}}}}, nil
		},
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			near, far := net.Pipe()
			servers.Go(func() {
				defer far.Close()
				for asked := make([]byte, 4<<10); ; {
					n, err := far.Read(asked)
					if err != nil {
						return
					}
					text, said := strings.ToLower(string(asked[:n])), ""
					switch {
					case strings.Contains(text, "memory"):
						said = memory(addr)
					case strings.Contains(text, "stats"):
						said = stats(addr)
					default:
						if _, err := far.Write(bytes.Repeat([]byte("-ERR unknown command\r\n"), strings.Count(text, "*"))); err != nil {
							return
						}
						continue
					}
					if _, err := fmt.Fprintf(far, "$%d\r\n%s\r\n", len(said), said); err != nil {
						return
					}
				}
			})
			return near, nil
		}})
	return client, func() {
		_ = client.Close()
		servers.Wait()
	}
}

// Of a cluster the evictions of each master count, and it may evict if one of them may.
func TestEvictionsOfACluster(t *testing.T) {
	client, end := twoMasters(func(addr string) string {
		if addr == "10.0.0.2:1" {
			return "maxmemory_policy:allkeys-lru\r\n"
		}
		return "maxmemory_policy:noeviction\r\n"
	}, func(addr string) string { return "evicted_keys:" + addr[len("10.0.0."):][:1] + "\r\n" })
	defer end()
	evicted, unfit, err := shards.Evictions(t.Context(), client)
	if want := map[string]int64{"10.0.0.1:1": 1, "10.0.0.2:1": 2}; err != nil || !maps.Equal(evicted, want) {
		t.Errorf("%v evicted, want %v; %v", evicted, want, err)
	}
	if unfit == nil || !strings.HasPrefix(unfit.Error(), "10.0.0.2:1: maxmemory-policy is allkeys-lru") {
		t.Errorf("unfit: %v", unfit)
	}
}

// Two masters that may evict are both named, in the same words whoever answers last: who
// says a text once does not say it again.
func TestMastersThatMayEvictAreNamedInOrder(t *testing.T) {
	for _, late := range []string{"10.0.0.1:1", "10.0.0.2:1"} {
		synctest.Test(t, func(t *testing.T) {
			client, end := twoMasters(func(string) string { return "maxmemory_policy:allkeys-lru\r\n" }, func(addr string) string {
				if addr == late {
					time.Sleep(100 * time.Millisecond)
				}
				return "evicted_keys:0\r\n"
			})
			defer end()
			const may = ": maxmemory-policy is allkeys-lru and may evict our keys, it must be noeviction"
			if _, unfit, err := shards.Evictions(t.Context(), client); err != nil || unfit == nil || unfit.Error() != "10.0.0.1:1"+may+"; 10.0.0.2:1"+may {
				t.Errorf("%s is late: %v, %v", late, unfit, err)
			}
		})
	}
}
