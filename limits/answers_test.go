package limits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// answers gives these answers to a client's pipelines, one after the other,
// without a server. The last one is repeated.
type answers struct {
	rest []func(*redis.Cmd) error
}

func (a *answers) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (a *answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a *answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		answer := a.rest[0]
		if len(a.rest) > 1 {
			a.rest = a.rest[1:]
		}
		var first error
		for _, cmd := range cmds {
			if err := answer(cmd.(*redis.Cmd)); err != nil {
				cmd.SetErr(err)
				if first == nil {
					first = err
				}
			}
		}
		return first
	}
}

// replied is an error reply of Redis.
type replied string

func (e replied) Error() string { return string(e) }
func (replied) RedisError()     {}

func says(reply ...any) func(*redis.Cmd) error {
	return func(cmd *redis.Cmd) error { cmd.SetVal(reply); return nil }
}

func fails(err error) func(*redis.Cmd) error {
	return func(*redis.Cmd) error { return err }
}

// What may not have been stored is an error, in the first round trip and in the
// second; so is an unreadable answer. Otherwise a notification would be allowed
// that no state counts.
func TestWhatIsNotStoredIsAnError(t *testing.T) {
	state := string(encoded(event{id: 1, kind: 2, at: 3}))
	unknown := fails(replied("NOSCRIPT No matching script."))
	for _, row := range []struct {
		why     string
		answers []func(*redis.Cmd) error
		want    string // "" = decided
	}{
		{"stored", []func(*redis.Cmd) error{says()}, ""},
		{"stored once the script is known", []func(*redis.Cmd) error{unknown, says()}, ""},
		{"found changed, then stored", []func(*redis.Cmd) error{says(int64(1), state), says()}, ""},
		{"refused", []func(*redis.Cmd) error{fails(replied("OOM command not allowed"))}, "OOM"},
		{"refused with the source", []func(*redis.Cmd) error{unknown, fails(replied("OOM command not allowed"))}, "OOM"},
		{"the script is unknown with its source", []func(*redis.Cmd) error{unknown, unknown}, "NOSCRIPT"},
		{"cut off", []func(*redis.Cmd) error{fails(errors.New("connection reset"))}, "connection reset"},
		{"cut off the second time", []func(*redis.Cmd) error{unknown, fails(errors.New("connection reset"))}, "connection reset"},
		{"a number in place of a state", []func(*redis.Cmd) error{says(int64(1), int64(1))}, "unexpected answer"},
		{"a text in place of a number", []func(*redis.Cmd) error{says("1", state)}, "unexpected answer"},
		{"about nobody", []func(*redis.Cmd) error{says(int64(0), state)}, "unexpected answer"},
		{"about one too many", []func(*redis.Cmd) error{says(int64(2), state)}, "answer about key 2 of 1"},
		{"half an answer", []func(*redis.Cmd) error{says(int64(1))}, "answer with 1"},
		{"no list", []func(*redis.Cmd) error{func(cmd *redis.Cmd) error { cmd.SetVal("OK"); return nil }}, "unexpected type"},
		{"changed again and again", []func(*redis.Cmd) error{says(int64(1), state)}, "kept changing"},
	} {
		t.Run(row.why, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
			defer client.Close()
			client.AddHook(&answers{row.answers})
			l := limiter(t, client, perUser(9, time.Hour))
			err := l.Decide(t.Context(), []*Request{{Owner: "u", ID: "a", Type: "x", At: start}})
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("ended with %v, want %q", err, row.want)
			}
		})
	}
}

// each answers the commands of a pipeline in order, and records how many keys
// each had.
type each struct {
	answers
	by   []func(*redis.Cmd) error
	keys []int
}

func (e *each) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for i, cmd := range cmds {
			e.keys = append(e.keys, cmd.Args()[2].(int))
			if err := e.by[min(i, len(e.by)-1)](cmd.(*redis.Cmd)); err != nil {
				return err
			}
		}
		return nil
	}
}

// In a cluster a call is about the users of one shard; everywhere it is short
// enough that the server has time for others.
func TestCallsAreShort(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	hook := &each{by: []func(*redis.Cmd) error{says()}}
	client.AddHook(hook)
	l := limiter(t, client, perUser(9, time.Hour))
	var reqs []*Request
	first := shards.UserShard("u0")
	for i := 0; len(reqs) < 2*maxUsersPerCall; i++ {
		if owner := fmt.Sprintf("u%d", i); shards.UserShard(owner) == first {
			reqs = append(reqs, &Request{Owner: owner, ID: "a", Type: "x", At: start})
		}
	}
	reqs = append(reqs, &Request{Owner: "v", ID: "a", Type: "x", At: start})
	for _, c := range []struct {
		cluster bool
		want    string
	}{{false, "[250 250 1]"}, {true, fmt.Sprint(map[bool][]int{true: {1, 250, 250}, false: {250, 250, 1}}[shards.UserShard("v") < first])}} {
		l.cluster, hook.keys = c.cluster, nil
		if err := l.Decide(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(hook.keys); got != c.want {
			t.Errorf("cluster %v: calls of %s users, want %s", c.cluster, got, c.want)
		}
	}
	// A user of every shard.
	hook.keys, l.cluster = nil, false
	if err := l.Decide(t.Context(), requests(200, "w")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(hook.keys, []int{200}) {
		t.Errorf("calls of %v users, want one", hook.keys)
	}
	// Users whose states are large.
	hook.keys = nil
	large := requests(10, "x")
	for _, r := range large {
		events := make([]event, maxEvents/2)
		for i := range events {
			events[i] = event{id: uint64(i), at: start.UnixMilli() - 1, keep: 4e9, kind: 1}
		}
		r.State = encoded(events...)
	}
	if err := limiter(t, client, Rule{Name: "y", Per: PerUser, Types: []string{"order"}, Max: 9, Window: time.Hour}).Decide(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(hook.keys, []int{8, 2}) {
		t.Errorf("calls of %v users with states of 60 KB", hook.keys)
	}
	l.cluster, reqs = true, reqs[:len(reqs)-1]

	// The second call's answer names a user that is not in the call.
	hook.by = []func(*redis.Cmd) error{says(), says(int64(maxUsersPerCall+1), string(encoded(event{id: 1, kind: 2, at: 3})))}
	if err := l.Decide(t.Context(), reqs); err == nil || !strings.Contains(err.Error(), "answer about key 251 of 250") {
		t.Errorf("ended with %v", err)
	}
}

// The largest values that a rule allows can all be used.
func TestTheLargestRules(t *testing.T) {
	for _, r := range []Rule{
		{Name: "max", Per: PerUser, Max: maxPerRule, Window: time.Hour},
		{Name: "least", Per: PerUser, Max: 1, Window: minWindow},
		{Name: "longest", Per: PerUser, Max: 1, Window: maxWindow},
		{Name: "counter", Per: PerUser, Max: maxPerRule, Window: maxWindow, Algorithm: SlidingCounter},
		{Name: "day", Per: PerDeviceType, Max: 1, Calendar: Day, Algorithm: EventSet},
	} {
		if _, err := New(nil, []Rule{r}, WriteVersion2()); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// What is kept for the next call refers to nothing of the last one: neither what
// was asked, nor the caller's context, which a command holds.
func TestBatchesKeepNothing(t *testing.T) {
	l := limiter(t, shardstest.Start(t), perUser(5, time.Hour))
	b := l.batches.New().(*batch)
	l.batches.New = func() any { return b }
	reqs := requests(300, "u")
	for _, r := range reqs {
		r.Sender = "shop"
	}
	decideWith(t, l, &desk{}, reqs...)
	if cap(b.swaps) == 0 || cap(b.users) == 0 || cap(b.asking) == 0 {
		t.Fatal("another batch was used")
	}
	for i, s := range b.swaps[:cap(b.swaps)] {
		if !reflect.ValueOf(s).IsZero() {
			t.Errorf("call %d is kept", i)
		}
	}
	for i, text := range b.values[:cap(b.values)] {
		if text != nil {
			t.Fatalf("state %d is kept", i)
		}
	}
	for i, arg := range b.args[:cap(b.args)] {
		if arg != nil {
			t.Fatalf("argument %d is kept", i)
		}
	}
	for i, r := range b.asking[:cap(b.asking)] {
		if r != nil {
			t.Fatalf("request %d is kept", i)
		}
	}
	for i, u := range b.users[:cap(b.users)] {
		if u.owner != "" || u.state != nil {
			t.Fatalf("user %d is kept", i)
		}
	}
	if b.reqs != nil {
		t.Error("the requests are kept")
	}
}
