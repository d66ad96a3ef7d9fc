package users

import (
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
	hashes := map[string]string{}
	for offset, user := range []string{"ada", bob} {
		d := push.Device{Platform: push.FCM, App: "shop", Token: user, RegisteredAt: time.UnixMilli(1e12)}
		value, err := record.DeviceValue(&d)
		if err != nil {
			t.Fatal(err)
		}
		hashes[user] = push.DeviceHash(push.FCM, user)
		rec := FetchedRecord{Record: Record{Key: record.DeviceKey(user, hashes[user]), Value: value}, Offset: int64(offset)}
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
	w := l.merge(b, []Fetched{{Next: 2}})
	cases := map[string]bool{record.LostUser + "ada": true, record.LostToken + hashes["ada"]: true}
	want := []string{shards.UserKey(l.shard, bob), state.TokenKey(hashes[bob])}
	if !maps.Equal(w.cases, cases) || !slices.Equal(w.keys, want) || slices.ContainsFunc(w.values, func(v []byte) bool { return v == nil }) {
		t.Errorf("written are %q with %q, cases %v; want %q and %v", w.keys, w.values, w.cases, want, cases)
	}
}
