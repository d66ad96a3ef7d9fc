package users

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// Whether a claimant has the device is known only where token and user are of the
// same offsets: else a registration that was applied to the one alone would be lost.
func TestWhoIsKnownToClaim(t *testing.T) {
	client, server := inProcess(t)
	hash := push.DeviceHash(push.FCM, "tok")
	token, ada, bob := state.TokenHome(hash), shards.UserShard("ada"), shards.UserShard("bob")
	if token == ada || token == bob || ada == bob {
		t.Fatal("two of the three are in one shard")
	}
	contest := record.Contested + hash
	claimed := record.Claims{{User: "ada", At: 1}, {User: "bob", At: 2}}.Encode(7)
	away := func(*Registry) { server.Mini.SetError("LOADING the data set is being loaded") }
	for _, tt := range []struct {
		why   string
		do    func(r *Registry)
		kase  string
		raw   []byte
		known string
		asks  bool // for a repair
		fails bool
	}{
		{why: "as believed", known: "ada bob"},
		{why: "a user's shard was written", do: func(r *Registry) { r.shards[ada].Version.Write++ }, known: "bob"},
		{why: "the token's shard was written", do: func(r *Registry) { r.shards[token].Version.Write++ }},
		{why: "a user's shard is being built", do: func(r *Registry) { r.shards[bob].Ready = false }, known: "ada"},
		{why: "a user's shard is to be built", do: func(r *Registry) { r.shards[bob].known = false }, known: "ada"},
		{why: "a user's shard is further than was read", do: func(r *Registry) { r.shards[bob].Applied[0]++ }, known: "ada"},
		{why: "the token's shard is further than was read", do: func(r *Registry) { r.shards[token].Applied[0]++ }},
		{why: "a record cannot be read", known: "ada", asks: true, do: func(r *Registry) {
			client.Set(t.Context(), shards.UserKey(bob, "bob"), "garbage", 0)
		}},
		{why: "a record cannot be had", fails: true, do: func(r *Registry) {
			client.LPush(t.Context(), shards.UserKey(bob, "bob"), "no string")
		}},
		{why: "Redis does not answer", do: away, fails: true},
		// Of nobody there is nothing to ask, so that nothing fails.
		{why: "nobody contests it", do: away, raw: record.Claims{{User: "ada", At: 1}}.Encode(7)},
		{why: "who claims it cannot be read", do: away, raw: []byte("garbage")},
		{why: "another case", do: away, kase: record.Overtaken + record.DeviceKey("ada", hash)},
	} {
		r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		server.Mini.SetError("")
		client.FlushAll(t.Context())
		r.pos = []int64{5}
		for _, s := range []int{token, ada, bob} {
			r.shards[s] = shardState{known: true, Shard: state.Shard{Ready: true, Version: state.Version{Build: 7, Write: 1}, Applied: []int64{5}}}
			client.HSet(t.Context(), shards.OffsetsKey(s), "v", r.shards[s].Version.String(), "0", "5")
			client.Set(t.Context(), shards.EpochKey(s), state.FormatBuild(7), 0)
		}
		if tt.do != nil {
			tt.do(r)
		}
		if tt.kase == "" {
			tt.kase = contest
		}
		if tt.raw == nil {
			tt.raw = claimed
		}
		got, err := r.claimants(t.Context(), token, []string{tt.kase}, [][]byte{tt.raw})
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); (err != nil) != tt.fails || names != tt.known {
			t.Errorf("%s: known are %q, want %q (%v)", tt.why, names, tt.known, err)
		}
		if asks := len(r.repair.wanted) > 0; asks != tt.asks {
			t.Errorf("%s: asks for a repair: %v", tt.why, asks)
		}
	}
}
