package senders

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// Two rules of two senders at once: in a cluster a call keeps to one slot.
func TestRealServer(t *testing.T) {
	for kind, addrs := range map[string]func(t *testing.T) []string{
		"single":  func(t *testing.T) []string { return []string{localtest.Require(t).Redis} },
		"cluster": func(t *testing.T) []string { return localtest.RedisCluster(t, local.RedisOptions{}).Addrs() },
	} {
		t.Run(kind, func(t *testing.T) {
			both := hourly(time.Hour)
			both.Name = "too"
			reqs := append(from(fmt.Sprint("a", time.Now().UnixNano()), 3, start), from(fmt.Sprint("b", time.Now().UnixNano()), 2, start)...)
			if err := under(t, shardstest.Connect(t, addrs(t)...), hourly(time.Hour), both).Decide(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
			if got, want := inWords(reqs), "ok, ok, wait 1m0s paid, ok, ok"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
