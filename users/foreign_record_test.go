package users

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// knownByNow is a record as a version writes it that does not know FCM.
func knownByNow(t *testing.T, token string) foreign {
	t.Helper()
	value := fmt.Appendf(nil, `{"platform":"fcm","app":"shop","token":%q,"registered_at":"2026-11-21T10:00:00Z"}`, token)
	return foreign{hash: push.DeviceHash(push.FCM, token), value: value, partition: 2, offset: 300}
}

// unknown is one of a platform that this version does not know.
func unknown(hash string) foreign {
	return foreign{hash: hash, at: time.UnixMilli(1_700_000_000_000).UTC(), partition: 1, offset: 7,
		value: []byte(`{"registered_at":"2023-11-14T22:13:20Z",  "platform":"hologram"}`)}
}

// What this version does not know goes through it unchanged, byte for byte, from
// before, between and after what it knows.
func TestForeignDevicesAreKeptByteForByte(t *testing.T) {
	var all []push.Device
	for i, p := range []push.Platform{200, push.APNS, 3, push.FCM, 255} {
		all = append(all, push.Device{Platform: p, App: "shop", Token: "t", Hash: fmt.Sprint("hash-", i), Locale: "de",
			RegisteredAt: time.UnixMilli(int64(i)).UTC()})
	}
	raw := appendRecord(nil, &push.User{Devices: all}, &kept{prefsSet: true, foreign: []foreign{unknown("hash-9")}}, 7)
	environment := bytes.Index(raw, []byte{200, 0}) + 1
	raw[environment] = 77 // of which nobody knows the name
	var s stored
	if err := s.decode(raw, 7); err != nil || len(s.Devices) != 2 || len(s.foreign) != 4 || s.Quarantine != push.DeviceUnread {
		t.Fatalf("%+v, error %v", s, err)
	}
	if again := s.encode(7); !bytes.Equal(again, raw) {
		t.Errorf("written back as\n%q, was\n%q", again, raw)
	}
	if at := s.registeredAt("hash-4"); at.UnixMilli() != 4 {
		t.Errorf("registered at %v", at)
	}
	var u push.User
	if _, err := Decode(raw, &u); err != nil || len(u.Devices) != 2 || u.Quarantine != push.DeviceUnread {
		t.Errorf("the pipeline reads %+v, error %v", u, err)
	}

	raw = appendRecord(nil, &push.User{Devices: []push.Device{{Platform: push.FCM, Hash: "h"}}}, &kept{}, 7)
	raw[bytes.Index(raw, []byte{byte(push.FCM), 0})+1] = 3
	if err := s.decode(raw, 7); err != nil || len(s.foreign) != 1 || !bytes.Equal(s.encode(7), raw) {
		t.Errorf("an environment that is not known: %+v, error %v", s, err)
	}
}

// Whoever knows the platform reads the device as one of the user's.
func TestAForeignDeviceThatIsKnownByNow(t *testing.T) {
	f := knownByNow(t, "token-1")
	var s stored
	err := s.decode(appendRecord(nil, sampleUser(), &kept{foreign: []foreign{f, unknown("zz")}}, 7), 7)
	if d := deviceByHash(&s.User, f.hash); err != nil || len(s.Devices) != 3 || d == nil || d.Platform != push.FCM || len(s.foreign) != 1 || s.foreign[0].hash != "zz" {
		t.Fatalf("%+v, error %v", s, err)
	}
	raw := appendRecord(nil, &push.User{}, &kept{foreign: []foreign{unknown("zz")}}, 7)
	for n := headLen + 2; n < len(raw); n++ {
		cut := appendSection(bytes.Clone(raw[:headLen]), raw[headLen], func([]byte) []byte { return raw[headLen+2 : n] })
		if err := s.decode(cut, 7); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
}

// A registry takes out of quarantine what the one before it did not know.
func TestARegistryLooksAgain(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	ctx := t.Context()
	s := shards.UserShard("ada")
	known, still := knownByNow(t, "token-1"), unknown("0123456789abcdef")
	raw := appendRecord(nil, &push.User{}, &kept{foreign: []foreign{still, known}}, 7)
	if err := client.Set(ctx, shards.UserKey(s, "ada"), raw, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []foreign{known, still} {
		if err := client.SAdd(ctx, unreadKey(s), DeviceKey("ada", f.hash)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.shards[s] = shardState{known: true, unread: 2, version: version{build: 7}}
	if err := client.HSet(ctx, shards.OffsetsKey(s), "v", r.shards[s].version.String()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.lookAgain(ctx); err != nil {
		t.Fatal(err)
	}
	now, err := InQuarantine(ctx, client)
	if err != nil || len(now) != 1 || !now[DeviceKey("ada", still.hash)] {
		t.Errorf("in quarantine: %v, %v", now, err)
	}
	if cases := client.SMembers(ctx, openKey(s)).Val(); len(cases) != 1 || cases[0] != quarantined+DeviceKey("ada", known.hash) {
		t.Errorf("open cases: %q", cases)
	}
}

// Another registry (the old one, in a rolling upgrade) writes the shard between
// the look and the write: what can be read by now must be released all the same.
func TestLookingAgainIsRepeatedWhenFenced(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	ctx := t.Context()
	s := shards.UserShard("ada")
	known := knownByNow(t, "token-1")
	raw := appendRecord(nil, &push.User{}, &kept{foreign: []foreign{known}}, 7)
	client.Set(ctx, shards.UserKey(s, "ada"), raw, 0)
	client.SAdd(ctx, unreadKey(s), DeviceKey("ada", known.hash))
	r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.pos, r.had = []int64{0}, 1
	mine := version{build: 7, write: 1}
	r.shards[s] = shardState{known: true, ready: true, unread: 1, version: mine, applied: []int64{0}}
	client.HSet(ctx, shards.OffsetsKey(s), "v", version{build: 7, write: 2}.String(), "0", "0") // written by the other
	client.Set(ctx, shards.EpochKey(s), formatBuild(7), 0)
	for _, want := range []bool{false, true} {
		if done, err := r.lookAgain(ctx); done != want || err != nil {
			t.Errorf("done %v, want %v (%v)", done, want, err)
		}
	}
	now, err := InQuarantine(ctx, client)
	if err != nil || len(now) != 0 {
		t.Errorf("in quarantine still: %v, %v", now, err)
	}
}
