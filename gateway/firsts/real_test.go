package firsts

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// A real server, and a cluster, where no two names need be in one place. What is found in
// time is not told here: the machine is busy.
func TestRealServers(t *testing.T) {
	for kind, addrs := range map[string]func(t *testing.T) []string{
		"single":  func(t *testing.T) []string { return []string{localtest.Redis(t, local.RedisOptions{}).Addr()} },
		"cluster": func(t *testing.T) []string { return localtest.RedisCluster(t, local.RedisOptions{}).Addrs() },
	} {
		t.Run(kind, func(t *testing.T) {
			const n = 10_000
			client := shardstest.Connect(t, addrs(t)...)
			s, err := New(client, Options{Fleet: "fleet", Kept: time.Hour, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			running.Go(func() { s.Run(ctx) })
			text := func(i int) string { return fmt.Sprint("v", i) + strings.Repeat("\x00\r\n$", 15) }
			var names [][16]byte
			for i := range n {
				names = append(names, named(fmt.Sprint("name-", i)))
			}
			key := func(i int) string { return s.prefix + string(names[i][:]) }
			for written := 0; written < n; { // until each is there: a write may take too long now and then
				before := s.counts.kept.Load() + s.counts.lost.Load()
				for i, name := range names {
					s.Keep(name, []byte(text(i)))
				}
				for s.counts.kept.Load()+s.counts.lost.Load() < before+n {
					time.Sleep(time.Millisecond)
				}
				written = 0
				for i := range names {
					if client.Exists(t.Context(), key(i)).Val() == 1 {
						written++
					}
				}
			}
			s.Keep(names[0], []byte("another"))
			names = append(names, named("none"))
			var got []string
			for found := s.counts.found.Load(); s.counts.found.Load() < found+n; time.Sleep(10 * time.Millisecond) {
				found = s.counts.found.Load()
				got = s.Find(t.Context(), names, nil)
			}
			if got[0] == "" { // it came a moment too late
				got = s.Find(t.Context(), names, nil)
			}
			for i := range n {
				if got[i] != text(i) && got[i] != "" {
					t.Fatalf("%d: %q", i, got[i])
				}
			}
			if got[n] != "" {
				t.Errorf("none is %q", got[n])
			}
			if ttl := client.PTTL(t.Context(), key(0)).Val(); ttl <= 0 || ttl > time.Hour {
				t.Errorf("expires in %v", ttl)
			}
			bytes, err := client.MemoryUsage(t.Context(), key(1)).Result()
			t.Log(strconv.FormatInt(bytes, 10), "bytes a name, without its places in two tables of keys,", err)
		})
	}
}
