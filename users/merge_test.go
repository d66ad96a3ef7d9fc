package users

import (
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
