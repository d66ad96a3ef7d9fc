package users

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// What the quarantine's topic tells of a part is read as it was told, under the part's own
// key.
func TestAPartIsToldAsItIs(t *testing.T) {
	hash := push.DeviceHash(push.FCM, "t")
	now := time.UnixMilli(1_790_000_000_123)
	for _, part := range []record.Part{record.PreferencesPart, record.ProfilePart, record.LimitsPart, record.DevicePart(hash)} {
		key := record.Key("a/b", part)
		q := QuarantinedAt(key)
		if q.User != "a/b" || q.Device != part.Hash() || q.Key() != key {
			t.Errorf("%s: %+v, whose key is %q", key, q, q.Key())
		}
		q.Reason, q.Partition, q.Offset, q.Stands = record.BrokenRule, 2, 300, true
		told, err := q.record(now)
		if err != nil || told.Key != key {
			t.Fatalf("%s: told as %+v, %v", key, told, err)
		}
		q.AtMS = now.UnixMilli()
		if got, err := ReadQuarantined(told.Value); err != nil || got != q {
			t.Errorf("%s: read as %+v, %v; want %+v", key, got, err, q)
		}
		var fields map[string]any
		if err := json.Unmarshal(told.Value, &fields); err != nil {
			t.Fatal(err)
		}
		if _, named := fields["part"]; named != (part == record.ProfilePart || part == record.LimitsPart) {
			t.Errorf("%s: told as %s", key, told.Value)
		}
	}
}

// What is not told by a registry is no part in quarantine, whatever of it can be read.
func TestWhatTellsOfNoPart(t *testing.T) {
	for _, value := range []string{"", "{", "[]", "{}", `{"user_id":""}`, `{"user_id":"ada","offset":"x"}`, `{"reason":"x"}`} {
		if q, err := ReadQuarantined([]byte(value)); !errors.Is(err, record.ErrCorrupt) || q != (Quarantined{}) {
			t.Errorf("%q is read as %+v, %v", value, q, err)
		}
	}
}

// Without Redis nobody knows who is in quarantine: that is not nobody.
func TestTheQuarantineThatCannotBeRead(t *testing.T) {
	client, _ := inProcess(t)
	client.AddHook(failing("smembers"))
	if keys, err := InQuarantine(t.Context(), client); !errors.Is(err, errAny) || keys != nil {
		t.Errorf("%v, %v", keys, err)
	}
}

// A shard without a part in quarantine is not asked for one, and one of which nothing can be
// read by now is not written: that would fence the other registries.
func TestLookingAgainAsksForNothingInVain(t *testing.T) {
	version := state.Version{Build: 7, Write: 1}
	still, unknown := foreignDevice(t, "ada", "token-1", "hol")
	for _, tt := range []struct {
		why   string
		known bool
		parts []string
		away  bool
	}{
		{"nothing is in quarantine", true, nil, true},
		{"the shard is to be begun anew", false, []string{still}, true},
		{"it cannot be read still", true, []string{still}, false},
	} {
		l := looksAgain(t, version, map[string][]byte{"ada": unknown.Encode(7)}, tt.parts...)
		l.shards[l.shard].known = tt.known
		if tt.away {
			l.client.AddHook(failing("smembers"))
		}
		if done, err := l.lookAgain(t.Context()); !done || err != nil {
			t.Errorf("%s: done %v, %v", tt.why, done, err)
		}
		if now := l.client.HGet(t.Context(), shards.OffsetsKey(l.shard), "v").Val(); now != version.String() {
			t.Errorf("%s: the shard was written", tt.why)
		}
	}
	l := looksAgain(t, version, nil, still)
	l.client.Del(t.Context(), state.UnreadKey(l.shard)) // another registry has released it
	if released, err := l.readable(t.Context(), l.shard); err != nil || len(released) > 0 {
		t.Errorf("of an empty quarantine %q is released, %v", released, err)
	}
}

// An answer that lacks a value says nothing of any.
func TestLookingAgainWithHalfAnAnswer(t *testing.T) {
	known, ada := foreignDevice(t, "ada", "token-1", "new")
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, map[string][]byte{"ada": knownSince(ada)}, known)
	l.client.AddHook(changing(lackingOne))
	if released, err := l.readable(t.Context(), l.shard); !errors.Is(err, errReply) || len(released) > 0 {
		t.Errorf("released %q, %v; want %v", released, err, errReply)
	}
}
