package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// A key that is no state, as somebody else may have written it, is replaced: it stalls
// nobody, and neither shifts the answers of others nor has limits forget.
func TestAKeyOfAnotherType(t *testing.T) {
	client := shardstest.Connect(t, localtest.Redis(t, local.RedisOptions{}).Addr())
	l := limiter(t, client, perUser(1, time.Hour))
	ask := func(id string, owners ...string) (refused string) {
		t.Helper()
		var reqs []*Request
		for _, owner := range owners {
			// What a reader has of a key that is no string is nothing.
			state, _ := client.MGet(t.Context(), shards.LimiterKey(shards.UserShard(owner), owner)).Result()
			r := &Request{Owner: owner, ID: id, Type: "x", At: start}
			if text, ok := state[0].(string); ok {
				r.State = []byte(text)
			}
			reqs = append(reqs, r)
		}
		if err := l.Decide(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs {
			if !r.Allowed {
				refused += r.Owner
			}
		}
		return refused
	}
	if got := ask("first", "a"); got != "" {
		t.Errorf("%s refused", got)
	}
	if err := client.HSet(t.Context(), shards.LimiterKey(shards.UserShard("b"), "b"), "no", "state").Err(); err != nil {
		t.Fatal(err)
	}
	if got := ask("second", "a", "b", "c"); got != "a" {
		t.Errorf("%q refused, want a alone", got)
	}
	if got := ask("third", "a", "b", "c"); got != "abc" {
		t.Errorf("%q refused, want all: what stood in the key's place counts", got)
	}
}

// A state that was of no use as it was read, and in whose place a key of another type stands
// by now, is no state either when it is read again: nobody waits, and the script replaces it.
func TestAKeyOfAnotherTypeWhenReadAgain(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	if err := client.HSet(t.Context(), shards.LimiterKey(shards.UserShard("b"), "b"), "no", "state").Err(); err != nil {
		t.Fatal(err)
	}
	for i, state := range [][]byte{[]byte("damaged"), nil} { // what the reader had
		reqs := []*Request{{Owner: "a", ID: fmt.Sprint(i), Type: "x", At: start}, {Owner: "b", ID: fmt.Sprint(i), Type: "x", At: start, State: state}}
		if err := l.Decide(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if first := i == 0; reqs[0].Allowed != first || reqs[1].Allowed != first {
			t.Errorf("request %d: %t, %t", i, reqs[0].Allowed, reqs[1].Allowed)
		}
	}
}
