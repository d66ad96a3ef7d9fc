package users

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// A value of a newer version is not read by what it has in common with ours, and
// is not called broken either: who knows it will read it.
func TestVersionsOfParts(t *testing.T) {
	hash := push.DeviceHash(push.FCM, "tok")
	for _, tt := range []struct {
		version string
		want    error
	}{
		{"", nil}, {`"v":1,`, nil}, {`"v":2,`, ErrVersion}, {`"v":0,`, ErrVersion}, {`"v":"1",`, errPart},
	} {
		device := "{" + tt.version + `"platform":"fcm","app":"shop","token":"tok","registered_at":"2026-11-21T10:00:00Z"}`
		d, err := parseDevice([]byte(device), hash, time.Now().AddDate(100, 0, 0))
		if !errors.Is(err, tt.want) || (d.Hash == hash) != (tt.want == nil) {
			t.Errorf("device %s: %+v, %v, want %v", tt.version, d, err, tt.want)
		}
		p, err := parsePreferences([]byte("{" + tt.version + `"opt_out_all":true}`))
		if !errors.Is(err, tt.want) || p.OptOutAll != (tt.want == nil) {
			t.Errorf("preferences %s: %+v, %v, want %v", tt.version, p, err, tt.want)
		}
	}
}

// A key names a user and a part, and nothing else is a key.
func TestKeysOfParts(t *testing.T) {
	hash, long := strings.Repeat("aZ09-_", 3)[:hashLen], strings.Repeat("u", maxUser)
	for _, tt := range []struct{ key, user, hash string }{ // no user: it is refused
		{"ada/prefs", "ada", ""},
		{"ada/device:" + hash, "ada", hash},
		{"with/slash/device:" + hash, "with/slash", hash},
		{long + "/prefs", long, ""},
		{long + "u/prefs", "", ""},
		{"/prefs", "", ""},
		{"ada", "", ""},
		{"", "", ""},
		{"ada/note", "", ""},
		{"ada/device:", "", ""},
		{"ada/device:" + hash[1:], "", ""},
		{"ada/device:" + hash + "a", "", ""},
		{"ada/device:" + hash[1:] + "+", "", ""},
		{"ada/device:+" + hash[1:], "", ""},
	} {
		user, hash, err := splitKey(tt.key)
		if user != tt.user || hash != tt.hash || (err == nil) != (tt.user != "") {
			t.Errorf("%q: %q, %q, %v", tt.key, user, hash, err)
		}
	}
}

// What is too many goes with the write that brings it: whoever registers without
// end must not make a record that grows until somebody has looked.
func TestTooManyDevicesGoAtOnce(t *testing.T) {
	m := &merging{ready: true, most: DeviceLimits{User: 5, App: 3}, cases: map[string]bool{}, unread: map[string]bool{}}
	var u stored
	for i := range 20 {
		d := deviceOf(push.FCM, fmt.Sprint("token-", i), int64(i)*1000)
		d.App = fmt.Sprint("app-", i%2)
		m.user(&u, &change{user: "ada", hash: d.Hash, device: &d})
		if want := min(i+1, 5); len(u.Devices) != want {
			t.Fatalf("after %d devices there are %d, want %d", i+1, len(u.Devices), want)
		}
	}
	if u.dropped.devices != 15 || u.dropped.upTo.UnixMilli() != 14_000 {
		t.Errorf("%d were dropped up to %v", u.dropped.devices, u.dropped.upTo)
	}
	for i := range 20 {
		d := deviceOf(push.FCM, fmt.Sprint("token-", i), int64(i)*1000)
		if there := deviceByHash(&u.User, d.Hash) != nil; there != (i >= 15) {
			t.Errorf("device %d is there: %v", i, there)
		}
		if removed := m.cases[fmt.Sprint(evicted, i*1000, ":", DeviceKey("ada", d.Hash))]; removed != (i < 15) {
			t.Errorf("device %d is to be removed from the topic: %v", i, removed)
		}
	}
}

// An entry of the token index is written by the script of a shard, and so must be
// on that shard's node.
func TestTokensLieBesideTheirShard(t *testing.T) {
	homes := map[int]bool{}
	for i := range 2000 {
		hash := push.DeviceHash(push.FCM, fmt.Sprint("token-", i))
		home := tokenHome(hash)
		if tag := "{" + shards.UserTag(home) + "}"; !strings.Contains(tokenKey(hash), tag) || !strings.Contains(openKey(home), tag) {
			t.Fatalf("%s and %s are not both in %s", tokenKey(hash), openKey(home), tag)
		}
		homes[home] = true
	}
	if len(homes) != shards.Filters {
		t.Errorf("%d shards have entries, want %d", len(homes), shards.Filters)
	}
}

// A length is a line of its own kind; what is cut off anywhere is none.
func TestLengthsOfReplies(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		n    int
		rest string
		good bool
	}{
		{"$3\r\nabc", 3, "abc", true},
		{"$-1\r\n", -1, "", true},
		{"$12345678901\r\n", 12345678901, "", false}, // more than a reply can hold
		{"$1234567890\r\n", 1234567890, "", true},
		{"$-2\r\n", 0, "", false},
		{"$\r\n", 0, "", false},
		{"*3\r\n", 0, "", false},
		{"$3\r", 0, "", false},
		{"$3", 0, "", false},
		{"$", 0, "", false},
		{"", 0, "", false},
	} {
		n, rest, err := length([]byte(tt.raw), '$')
		if (err == nil) != tt.good || tt.good && (n != tt.n || string(rest) != tt.rest) {
			t.Errorf("%q: %d, %q, %v", tt.raw, n, rest, err)
		}
	}
}

// A write is done only on the state that it was made for, and who comes late
// believes nothing of what he wrote.
func TestWritesAreFenced(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
	defer func() { _ = client.Close() }()
	registry := func() *Registry {
		r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write := func(r *Registry, w *shardWrite) bool {
		t.Helper()
		fenced, err := r.write(t.Context(), []*shardWrite{w})
		if err != nil {
			t.Fatal(err)
		}
		return len(fenced) == 0
	}
	begin := func() *shardWrite {
		return &shardWrite{shard: 7, reset: true, next: version{build: random()}.next(), at: time.UnixMilli(1e12), offsets: []int64{0}}
	}
	first, second := registry(), registry()
	if !write(first, begin()) {
		t.Fatal("a shard that is not there cannot be begun")
	}
	if write(second, begin()) || second.shards[7].version != (version{}) || second.shards[7].applied != nil {
		t.Errorf("a shard that somebody has begun was begun anew; believes %+v", second.shards[7])
	}
	second.shards[7] = first.shards[7]
	second.shards[7].applied = []int64{0}
	if !write(first, &shardWrite{shard: 7, offsets: []int64{10}, keys: []string{"u:{x}:ada"}, values: [][]byte{[]byte("1")}}) {
		t.Error("the owner of the latest write cannot write")
	}
	if write(second, &shardWrite{shard: 7, offsets: []int64{20}, keys: []string{"u:{x}:ada"}, values: [][]byte{[]byte("2")}}) || second.shards[7].applied[0] != 0 {
		t.Errorf("a write went through that somebody else's had overtaken; believes %+v", second.shards[7])
	}
	if got := client.Get(t.Context(), "u:{x}:ada").Val(); got != "1" {
		t.Errorf("%q is stored", got)
	}
	server.Mini.SetError("OOM command not allowed")
	if _, err := first.write(t.Context(), []*shardWrite{{shard: 7, offsets: []int64{30}}}); err == nil || first.shards[7].applied[0] != 10 {
		t.Errorf("a write that a server refuses: %v; believes %+v", err, first.shards[7])
	}
}
