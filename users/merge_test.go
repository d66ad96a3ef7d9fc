package users

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// However often a user and a token change in what was polled, each of their values is
// read and written once.
func TestABatchHasEachKeyOnce(t *testing.T) {
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
	d := push.Device{Platform: push.FCM, App: "shop", Token: "t", RegisteredAt: time.UnixMilli(1e12)}
	value, err := record.DeviceValue(&d)
	if err != nil {
		t.Fatal(err)
	}
	hash := push.DeviceHash(push.FCM, "t")
	b := &shardBatch{shard: l.shard, records: map[string]*record.User{}, entries: map[string]record.Claims{}}
	for offset := range int64(3) {
		rec := FetchedRecord{Record: Record{Key: record.DeviceKey("ada", hash), Value: value}, Offset: offset}
		c, err := readChange(0, &rec, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		b.users, b.tokens = append(b.users, &c), append(b.tokens, &c)
	}
	if err := l.readBatches(t.Context(), []*shardBatch{b}); err != nil {
		t.Fatal(err)
	}
	want := []string{shards.UserKey(l.shard, "ada"), state.TokenKey(hash)}
	if w := l.merge(b, []Fetched{{Next: 3}}); !slices.Equal(b.keys, want) || !slices.Equal(w.keys, want) {
		t.Errorf("read are %q, written %q; want %q", b.keys, w.keys, want)
	}
}

// A value that cannot be read holds up its own changes, and nobody else's in the shard.
func TestWhatCannotBeReadIsLeftAlone(t *testing.T) {
	bob := neighbour("bob")
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, map[string][]byte{"ada": []byte("garbage")})
	b := &shardBatch{shard: l.shard, records: map[string]*record.User{}, entries: map[string]record.Claims{}}
	l.shards[l.shard].Open = true // what is open of a lost user stays so
	hashes := map[string]string{"ada": push.DeviceHash(push.FCM, "ada"), bob: push.DeviceHash(push.FCM, bob)}
	for offset, of := range []struct{ user, token string }{{"ada", "ada"}, {bob, bob}, {bob, "ada"}} { // her token has two claims then
		d := push.Device{Platform: push.FCM, App: "shop", Token: of.token, RegisteredAt: time.UnixMilli(1e12)}
		value, err := record.DeviceValue(&d)
		if err != nil {
			t.Fatal(err)
		}
		rec := FetchedRecord{Record: Record{Key: record.DeviceKey(of.user, hashes[of.token]), Value: value}, Offset: int64(offset)}
		c, err := readChange(0, &rec, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		b.users, b.tokens = append(b.users, &c), append(b.tokens, &c)
	}
	if err := l.client.Set(t.Context(), state.TokenKey(hashes["ada"]), "garbage", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.readBatches(t.Context(), []*shardBatch{b}); err != nil {
		t.Fatal(err)
	}
	w := l.merge(b, []Fetched{{Next: 3}})
	cases := map[string]bool{record.LostUser + "ada": true, record.LostToken + hashes["ada"]: true,
		record.Overtaken + record.DeviceKey(bob, hashes[bob]): false, record.Overtaken + record.DeviceKey(bob, hashes["ada"]): false}
	want := []string{shards.UserKey(l.shard, bob), state.TokenKey(hashes[bob])}
	if !maps.Equal(w.cases, cases) || !slices.Equal(w.keys, want) || slices.ContainsFunc(w.values, func(v []byte) bool { return v == nil }) {
		t.Errorf("written are %q with %q, cases %v; want %q and %v", w.keys, w.values, w.cases, want, cases)
	}
}

// A value of nothing is deleted, so that who is gone takes no memory.
func TestWhatIsEmptyIsDeleted(t *testing.T) {
	set := &record.User{User: push.User{Profile: push.Profile{Country: "NP"}}}
	for _, tt := range []struct {
		why, key string
		user     *record.User
		claims   record.Claims
		want     []byte
	}{
		{"a user", "u:{1}:ada", set, nil, set.Encode(7)},
		{"a user without anything", "u:{1}:ada", new(record.User), nil, nil},
		{"a claim", "t:{1}:hash", nil, record.Claims{{User: "ada"}}, record.Claims{{User: "ada"}}.Encode(7)},
		{"a token of nobody", "t:{1}:hash", nil, nil, nil},
		{"a token of nobody, of one who has something", "t:{1}:hash", set, nil, nil},
	} {
		var w shardWrite
		if w.set(tt.key, tt.user, tt.claims, 7); !slices.Equal(w.keys, []string{tt.key}) || len(w.values) != 1 || !bytes.Equal(w.values[0], tt.want) || (w.values[0] == nil) != (tt.want == nil) {
			t.Errorf("%s: %q is written to %q", tt.why, w.values, w.keys)
		}
	}
}
