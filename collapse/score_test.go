package collapse

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// A score is exact as a float, of two notifications the later is the greater,
// and an equal one supersedes nothing.
func TestScores(t *testing.T) {
	item := func(id string, at time.Time) *pipeline.Item {
		it := &pipeline.Item{FirstSeen: push.At(at)}
		it.ID = id
		return it
	}
	for _, at := range []time.Time{time.UnixMilli(1e12), time.Date(2108, 12, 31, 23, 59, 59, 0, time.UTC)} {
		s := score(item("n", at))
		if s < 0 || int64(float64(s)) != s || s>>idBits != at.UnixMilli() {
			t.Errorf("the score of %v is %d", at, s)
		}
		if later := score(item("m", at.Add(time.Millisecond))); later <= s {
			t.Errorf("a millisecond after %v it is %d after %d", at, later, s)
		}
		for newest, want := range map[int64]bool{0: false, s: false, s ^ 1: false, s ^ 1 + 1<<idBits: true, s + 1<<idBits: false, s ^ 1 - 1<<idBits: false} {
			if supersedes(newest, item("n", at)) != want {
				t.Errorf("%d supersedes %d: %v", newest, s, !want)
			}
		}
	}
	now := time.UnixMilli(1_795_000_000_000)
	for i := range 5000 {
		it := item(fmt.Sprint("id-", i), now)
		if score(it) <= scoreAt(now) || score(it) >= scoreAt(now.Add(time.Millisecond)) {
			t.Fatalf("a note of %v has the score %d, which is none, or of another time", now, score(it))
		}
		if supersedes(scoreAt(now.Add(time.Second)), it) {
			t.Fatalf("%s is superseded by a key that was opened", it.ID)
		}
	}
	for i := 0; ; i++ {
		if it := item(fmt.Sprint("id-", i), now); xxhash.Sum64String(it.ID)&idMask == 0 {
			if score(it) <= scoreAt(now) {
				t.Errorf("the note of %s, whose hash ends in zeros, is taken for a key that was opened", it.ID)
			}
			break
		}
	}
}

// A member is the hash of app and key, whatever their length: all workers, of this
// version and the next, must find what one of them has noted.
func TestMembers(t *testing.T) {
	for _, key := range []string{"k", strings.Repeat("long", 8), strings.Repeat("longer", 100)} {
		it := &pipeline.Item{}
		it.App, it.CollapseKey = "shop", key
		if got, want := binary.BigEndian.Uint64(appendMember(nil, it)), xxhash.Sum64String("shop\x00"+key); got != want {
			t.Errorf("a key of %d bytes: got %x, want %x", len(key), got, want)
		}
	}
}
