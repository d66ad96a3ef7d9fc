package shards_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Of a cluster the evictions of all masters count, and it may evict if one of them may.
func TestEvictionsOfACluster(t *testing.T) {
	var servers sync.WaitGroup
	client := redis.NewClusterClient(&redis.ClusterOptions{Protocol: 2, DisableIdentity: true, Addrs: []string{"10.0.0.1:1", "10.0.0.2:1"},
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
						if said = "maxmemory_policy:noeviction\r\n"; addr == "10.0.0.2:1" {
							said = "maxmemory_policy:allkeys-lru\r\n"
						}
					case strings.Contains(text, "stats"):
						said = "evicted_keys:1\r\n"
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
	defer servers.Wait()
	defer client.Close()
	n, unfit, err := shards.Evictions(t.Context(), client)
	if err != nil || n != 2 || unfit == nil || !strings.Contains(unfit.Error(), "10.0.0.2:1: maxmemory-policy is allkeys-lru") {
		t.Errorf("%d evicted, unfit: %v, %v", n, unfit, err)
	}
}
