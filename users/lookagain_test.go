package users

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// foreignDevice is a user with one device of a platform that is not known, of this
// name of three letters.
func foreignDevice(t *testing.T, user, token, platform string) (key string, u *record.User) {
	t.Helper()
	key = record.DeviceKey(user, push.DeviceHash(push.FCM, token))
	value := fmt.Sprintf(`{"platform":%q,"app":"shop","token":%q,"registered_at":"2026-11-21T10:00:00Z"}`, platform, token)
	return key, applied(t, record.Change{Partition: 2, Offset: 300}, key, value)
}

// knownSince packs a user as a version did that did not know the platform fcm.
func knownSince(u *record.User) []byte {
	return bytes.Replace(u.Encode(7), []byte(`"platform":"new"`), []byte(`"platform":"fcm"`), 1)
}

// neighbour is a user in the shard of ada.
func neighbour(name string) string {
	for i := 0; ; i++ {
		if user := fmt.Sprint(name, i); shards.UserShard(user) == shards.UserShard("ada") {
			return user
		}
	}
}

// looking is a registry that knows one shard, of build 7, and what is in Redis of it.
type looking struct {
	*Registry
	client *redis.Client
	shard  int
}

// looksAgain puts users and parts in quarantine into the shard of ada, whose offsets
// say that this write was the last one.
func looksAgain(t *testing.T, latest state.Version, users map[string][]byte, parts ...string) *looking {
	t.Helper()
	client, _ := inProcess(t)
	s := shards.UserShard("ada")
	pipe := client.Pipeline()
	for user, raw := range users {
		pipe.Set(t.Context(), shards.UserKey(s, user), raw, 0)
	}
	for _, key := range parts {
		pipe.SAdd(t.Context(), state.UnreadKey(s), key)
	}
	pipe.HSet(t.Context(), shards.OffsetsKey(s), "v", latest.String(), "0", "0")
	pipe.Set(t.Context(), shards.EpochKey(s), state.FormatBuild(7), 0)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.pos, r.had = []int64{0}, 1
	r.shards[s] = shardState{known: true, Shard: state.Shard{Ready: true, Unread: int64(len(parts)), Version: state.Version{Build: 7, Write: 1}, Applied: []int64{0}}}
	return &looking{Registry: r, client: client, shard: s}
}

// A registry takes out of quarantine what the one before it did not know.
func TestARegistryLooksAgain(t *testing.T) {
	known, ada := foreignDevice(t, "ada", "token-1", "new")
	bob := neighbour("bob")
	still, unknown := foreignDevice(t, bob, "token-2", "hol")
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, map[string][]byte{"ada": knownSince(ada), bob: unknown.Encode(7)}, known, still)
	if done, err := l.lookAgain(t.Context()); !done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	now, err := InQuarantine(t.Context(), l.client)
	if err != nil || len(now) != 1 || !now[still] {
		t.Errorf("in quarantine: %v, %v", now, err)
	}
	if cases := l.client.SMembers(t.Context(), state.OpenKey(l.shard)).Val(); len(cases) != 1 || cases[0] != record.Quarantined+known {
		t.Errorf("open cases: %q", cases)
	}
}

// Another registry (the old one, in a rolling upgrade) writes the shard between
// the look and the write: what can be read by now must be released all the same.
func TestLookingAgainIsRepeatedWhenFenced(t *testing.T) {
	known, ada := foreignDevice(t, "ada", "token-1", "new")
	l := looksAgain(t, state.Version{Build: 7, Write: 2}, map[string][]byte{"ada": knownSince(ada)}, known)
	for _, want := range []bool{false, true} {
		if done, err := l.lookAgain(t.Context()); done != want || err != nil {
			t.Errorf("done %v, want %v (%v)", done, want, err)
		}
	}
	now, err := InQuarantine(t.Context(), l.client)
	if err != nil || len(now) != 0 {
		t.Errorf("in quarantine still: %v, %v", now, err)
	}
}

// A record that cannot be read says nothing of its user's parts, and keeps nobody
// else's in quarantine.
func TestLookingAgainPassesWhatCannotBeRead(t *testing.T) {
	bob, cy := neighbour("bob"), neighbour("cy")
	first, ada := foreignDevice(t, "ada", "token-1", "new")
	spoilt, _ := foreignDevice(t, bob, "token-2", "new")
	last, since := foreignDevice(t, cy, "token-3", "new")
	l := looksAgain(t, state.Version{Build: 7, Write: 1},
		map[string][]byte{"ada": knownSince(ada), bob: []byte("garbage"), cy: knownSince(since)}, first, spoilt, last)
	released, err := l.readable(t.Context(), l.shard)
	slices.Sort(released)
	want := []string{first, last}
	slices.Sort(want)
	if err != nil || !slices.Equal(released, want) {
		t.Errorf("released %q, want %q (%v)", released, want, err)
	}
}

// Who could not look has to look again.
func TestLookingAgainThatFailsIsNotDone(t *testing.T) {
	known, ada := foreignDevice(t, "ada", "token-1", "new")
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, map[string][]byte{"ada": knownSince(ada)}, known)
	l.client.Del(t.Context(), state.UnreadKey(l.shard))
	l.client.Set(t.Context(), state.UnreadKey(l.shard), "no set", 0)
	if done, err := l.lookAgain(t.Context()); done || err == nil {
		t.Errorf("done %v, %v; want the server's error", done, err)
	}
}

// What a rebuilt user has in quarantine stays there, foreign devices among it, and
// nobody else's is touched.
func TestARebuiltUserLeavesQuarantine(t *testing.T) {
	foreign, ada := foreignDevice(t, "ada", "token-1", "hol")
	gone, _ := foreignDevice(t, "ada", "token-2", "hol")
	others, _ := foreignDevice(t, "bob", "token-1", "hol")
	w := shardWrite{cases: map[string]bool{}, unread: map[string]bool{}}
	w.forgetUnread("ada", ada, []string{foreign, gone, record.PreferencesKey("ada"), others, "no key"})
	out := map[string]bool{gone: false, record.PreferencesKey("ada"): false}
	cases := map[string]bool{record.Quarantined + gone: true, record.Quarantined + record.PreferencesKey("ada"): true}
	if !maps.Equal(w.unread, out) || !maps.Equal(w.cases, cases) {
		t.Errorf("out of quarantine %v, cases %v", w.unread, w.cases)
	}
}
