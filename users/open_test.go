package users

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// opens adds cases to the shard of a registry.
func (l *looking) opens(t *testing.T, cases ...string) {
	t.Helper()
	members := make([]any, len(cases))
	for i := range cases {
		members[i] = cases[i]
	}
	if err := l.client.SAdd(t.Context(), state.OpenKey(l.shard), members...).Err(); err != nil {
		t.Fatal(err)
	}
}

// Only a shard that is known, and may have cases, is asked for them, and only when all that
// the topic had was read: the answer may be there already.
func TestWhenCasesAreSettled(t *testing.T) {
	for _, tt := range []struct {
		why         string
		known, open bool
		pos         int64
		settles     bool
	}{
		{"all is read", true, true, 9, true},
		{"a record is to be read", true, true, 8, false},
		{"nothing is open", true, false, 9, false},
		{"the shard is to be begun anew", false, true, 9, false},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		l.opens(t, record.Doubted+"ada")
		l.pos, l.spans = []int64{tt.pos}, []Span{{0, 9}}
		l.shards[l.shard].known, l.shards[l.shard].Open = tt.known, tt.open
		if err := l.settle(t.Context()); err != nil {
			t.Fatalf("%s: %v", tt.why, err)
		}
		if open := l.client.SCard(t.Context(), state.OpenKey(l.shard)).Val(); (open == 0) != tt.settles {
			t.Errorf("%s: %d cases are open", tt.why, open)
		}
	}
}

// What an older version could not read is looked at once, and until that has worked.
func TestARegistryLooksAgainOnce(t *testing.T) {
	known, ada := foreignDevice(t, "ada", "token-1", "new")
	for _, tt := range []struct {
		why    string
		write  uint64 // the shard's latest
		fails  string
		looked []bool // after each time
	}{
		{"it works", 1, "", []bool{true, true}},
		{"somebody else has written", 2, "", []bool{false, true}},
		{"it fails", 1, "smembers", []bool{false, false}},
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: tt.write}, map[string][]byte{"ada": knownSince(ada)}, known)
		l.spans = []Span{{0, 0}}
		var topic appended
		l.topics.Quarantine = &topic
		l.client.AddHook(failing(tt.fails))
		for i, looked := range tt.looked {
			err := l.settle(t.Context())
			if l.looked != looked || (err != nil) != (tt.fails != "") || err != nil && !errors.Is(err, errAny) {
				t.Errorf("%s: after %d times it has looked: %v, %v", tt.why, i+1, l.looked, err)
			}
		}
		if left := l.client.SCard(t.Context(), state.UnreadKey(l.shard)).Val(); (left == 0) != (tt.fails == "") {
			t.Errorf("%s: %d parts are in quarantine", tt.why, left)
		}
	}
}

// One look settles a bounded number of cases, and whoever leaves some says that more are
// open.
func TestALookSettlesSoManyCases(t *testing.T) {
	for _, n := range []int{1, maxSettled, maxSettled + 1} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		cases := make([]string, n)
		for i := range cases {
			cases[i] = record.Doubted + fmt.Sprint("user-", i)
		}
		l.opens(t, cases...)
		l.shards[l.shard].Open = true
		if err := l.settleShard(t.Context(), l.shard); err != nil {
			t.Fatal(err)
		}
		left := max(0, n-maxSettled)
		if open := l.client.SCard(t.Context(), state.OpenKey(l.shard)).Val(); open != int64(left) || l.shards[l.shard].Open != (left > 0) {
			t.Errorf("of %d cases %d are left, and it believes that some are: %v", n, open, l.shards[l.shard].Open)
		}
	}
}

// unwritable is a topic that cannot be written. It may end its writer.
type unwritable struct{ end context.CancelFunc }

func (n unwritable) Append(context.Context, []Record) error {
	if n.end != nil {
		n.end()
	}
	return errAny
}

// However many parts are in quarantine, and however long its topic is away: they go last,
// and a device too many is removed. What could not be told, or removed, stays open.
func TestTheQuarantineGoesLast(t *testing.T) {
	removed := record.DeviceKey("ada", push.DeviceHash(push.FCM, "t"))
	evicted := record.Evicted + "1000:" + removed
	setUp := func() (*looking, *appended) {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		cases := []string{evicted}
		for i := range maxSettled {
			cases = append(cases, record.Quarantined+record.PreferencesKey(fmt.Sprint("user-", i)))
		}
		l.opens(t, cases...)
		l.client.AddHook(changing(func(cmd redis.Cmder) {
			if members, is := cmd.(*redis.StringSliceCmd); is { // sets have no order
				slices.SortFunc(members.Val(), func(a, b string) int { return -slices.Compare([]byte(a), []byte(b)) })
			}
		}))
		topic := new(appended)
		l.topics.Log = topic
		return l, topic
	}
	isOpen := func(l *looking) bool {
		return l.client.SIsMember(t.Context(), state.OpenKey(l.shard), evicted).Val()
	}

	l, topic := setUp()
	l.topics.Quarantine = unwritable{}
	err := l.settleShard(t.Context(), l.shard)
	if err != nil || len(*topic) != 1 || (*topic)[0].Key != removed || isOpen(l) {
		t.Errorf("appended %d records, %v; the device's case is open: %v", len(*topic), err, isOpen(l))
	}
	if left, failed := l.client.SCard(t.Context(), state.OpenKey(l.shard)).Val(), testutil.ToFloat64(l.metrics.errors); left != maxSettled || failed != 1 {
		t.Errorf("%d cases are left and %v errors counted, want %d and one", left, failed, maxSettled)
	}

	l, _ = setUp()
	ctx, stop := context.WithCancel(t.Context())
	l.topics.Quarantine = unwritable{end: stop}
	if err := l.settleShard(ctx, l.shard); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped while it tells, it says %v", err)
	}

	l, _ = setUp()
	l.topics.Log, l.topics.Quarantine = unwritable{}, new(appended)
	if err := l.settleShard(t.Context(), l.shard); !errors.Is(err, errAny) || !isOpen(l) || testutil.ToFloat64(l.metrics.settled) > 0 {
		t.Errorf("push.users cannot be written: %v; the device's case is open: %v", err, isOpen(l))
	}
}

// A case that waits for its record keeps its shard open, so that it is closed when that
// comes; one that is closed, and asks for no record, writes nothing into the topic.
func TestWhatKeepsAShardOpen(t *testing.T) {
	for kase, open := range map[string]bool{
		record.Overtaken + record.DeviceKey("ada", push.DeviceHash(push.FCM, "t")): true,
		record.Doubted + "ada": false,
	} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		l.shards[l.shard].Open = true
		l.opens(t, kase)
		if open {
			l.topics.Log = new(appended)
		} // else there is no topic to append to
		if err := l.settleShard(t.Context(), l.shard); err != nil || l.shards[l.shard].Open != open {
			t.Errorf("%s: more is open: %v, %v; want %v", kase, l.shards[l.shard].Open, err, open)
		}
	}
}

// Each case is answered by the value that it is about: an entry of the token index, or a
// record.
func TestTheValuesOfCases(t *testing.T) {
	d := push.DeviceHash(push.FCM, "t")
	l := looksAgain(t, state.Version{Build: 7, Write: 1}, map[string][]byte{"ada": []byte("of ada")})
	s := state.TokenHome(d)
	for name, value := range map[string]string{state.TokenKey(d): "of the token", shards.UserKey(s, "ada"): "of ada here"} {
		l.client.Set(t.Context(), name, value, 0)
	}
	key := record.DeviceKey("ada", d)
	for kase, want := range map[string]string{
		record.Contested + d:           "of the token",
		record.Stray + "1000:" + key:   "of the token",
		record.Doubted + "ada":         "of ada here",
		record.Doubted + "bob":         "",
		record.Overtaken + key:         "of ada here",
		record.Quarantined + key:       "of ada here",
		record.Evicted + "1000:" + key: "",
	} {
		values, err := l.valuesOf(t.Context(), s, []string{kase})
		if err != nil || len(values) != 1 || string(values[0]) != want || (values[0] == nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", kase, values, err, want)
		}
	}
	l.client.AddHook(changing(lackingOne))
	if values, err := l.valuesOf(t.Context(), s, []string{record.Doubted + "ada", record.Doubted + "bob"}); !errors.Is(err, errReply) || values != nil {
		t.Errorf("of half an answer the values are %q, %v", values, err)
	}
}

// Without what the shards say, or the claimants' records, nobody knows who has a token.
func TestClaimantsThatCannotBeAsked(t *testing.T) {
	d := push.DeviceHash(push.FCM, "t")
	for _, command := range []string{"hgetall", "get"} {
		l := looksAgain(t, state.Version{Build: 7, Write: 1}, nil)
		s := state.TokenHome(d)
		l.shards[s] = shardState{known: true, Shard: state.Shard{Ready: true, Version: state.Version{Build: 7, Write: 1}, Applied: []int64{0}}}
		l.client.Set(t.Context(), state.TokenKey(d), record.Claims{{User: "ada", At: 1}, {User: "bob", At: 2}}.Encode(7), 0)
		l.client.SAdd(t.Context(), state.OpenKey(s), record.Contested+d)
		l.client.AddHook(failing(command))
		if err := l.settleShard(t.Context(), s); !errors.Is(err, errAny) {
			t.Errorf("%s fails: %v", command, err)
		}
	}
}
