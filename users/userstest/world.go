package userstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
)

// Partitions is how many the topic of a World begins with.
const Partitions = 3

// Patience ends a wait that hangs. It is no expectation: the machine may be
// busy with something else.
const Patience = time.Minute

// World is a Redis, a topic, and the registries between them.
type World struct {
	T      *testing.T
	Ctx    context.Context
	Open   func() redis.UniversalClient
	Redis  redis.UniversalClient
	Topic  *Topic
	Client *users.Client
	stops  []func()

	Quarantine *Topic
	Wrap       func(*users.RegistryTopics) // called with each registry's topics before it runs; may be nil
	Progress   func(users.Progress)        // called with each registry's progress; may be nil
	Metrics    *users.Metrics              // of all registries; may be nil

	mu    sync.Mutex
	calm  bool // a registry has said twice in a row that it has nothing to do
	looks int  // times since calm was reset that one has looked
}

// EachRedis runs the test in virtual time on an in-process Redis, and on the
// real one if there is one, which is flushed.
func EachRedis(t *testing.T, realRedis string, test func(w *World)) {
	t.Run("embedded", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { InMemory(t, test) }) })
	if realRedis == "" {
		return
	}
	t.Run("real", func(t *testing.T) {
		In(t, test, Opener(t, realRedis))
	})
}

// InMemory runs the test on an in-process Redis, without virtual time.
func InMemory(t *testing.T, test func(w *World)) {
	server, err := embedded.StartPipeRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	In(t, test, func() redis.UniversalClient {
		o := shards.DefaultOptions()
		o.Addrs = []string{"pipe:1"}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := server.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newBufferedConn(conn), nil
		}
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return client
	})
}

// In runs the test on the Redis that open connects to, which is flushed. Whatever the world has started has
// ended when it returns.
func In(t *testing.T, test func(w *World), open func() redis.UniversalClient) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &World{T: t, Ctx: ctx, Open: open, Redis: open(), Topic: NewTopic(Partitions), Quarantine: NewTopic(1)}
	w.Client = users.NewClient(w.Topic)
	defer func() {
		for _, stop := range w.stops {
			stop()
		}
		if err := w.Redis.Close(); err != nil {
			t.Error(err)
		}
	}()
	w.Must(w.Redis.FlushAll(ctx).Err())
	test(w)
}

// Must ends the test with this error, if it is one.
func (w *World) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// RegistryOptions are those of a registry that looks and repeats often.
func RegistryOptions() users.RegistryOptions {
	o := users.DefaultRegistryOptions()
	o.CheckInterval = 200 * time.Millisecond
	o.RetryDelay, o.MaxRetryDelay = 10*time.Millisecond, 100*time.Millisecond
	return o
}

// Run starts a registry; the answer stops it and waits for it.
func (w *World) Run(o users.RegistryOptions) (stop func()) {
	return w.Process(NewCrash(-1, false, nil), w.Ctx, func() {}, o)
}

// Process starts a registry whose every step goes through crash.
func (w *World) Process(crash *Crash, ctx context.Context, end context.CancelFunc, o users.RegistryOptions) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	client := w.Open()
	client.AddHook(crash)
	o.Progress = w.watch()
	r, err := users.NewRegistry(client, w.Topics(crash), o, w.Metrics, slog.New(slog.DiscardHandler))
	w.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			w.T.Errorf("Run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		end()
		<-done
		if err := client.Close(); err != nil {
			w.T.Error(err)
		}
	})
	w.stops = append(w.stops, stop)
	return stop
}

// Topics are those of a process, every step of which goes through crash.
func (w *World) Topics(crash *Crash) users.RegistryTopics {
	follower, rescan := NewFollower(w.Topic), NewFollower(w.Topic)
	follower.Most, rescan.Most = 3, 3
	topics := users.RegistryTopics{Follower: crash.Follower(follower), Rescan: crash.Follower(rescan),
		Log: crash.Log(w.Topic), Quarantine: crash.Log(w.Quarantine)}
	if w.Wrap != nil {
		w.Wrap(&topics)
	}
	return topics
}

// watch is the Progress of one registry. When it is through with the topic at
// two looks in a row, and the topic has not grown between them, then what it
// was through with is the whole of it, and it had nothing to add.
func (w *World) watch() func(users.Progress) {
	var before []int64
	return func(p users.Progress) {
		if w.Progress != nil {
			w.Progress(p)
		}
		ends := w.Topic.Ends()
		w.mu.Lock()
		defer w.mu.Unlock()
		through := p.Ready == shards.Users && p.Lag == 0
		if w.looks++; w.looks == 1 {
			before = nil // what was said before the reset does not count
		}
		w.calm = w.calm || through && slices.Equal(ends, before)
		if before = nil; through {
			before = ends
		}
	}
}

// Settle waits until Redis has everything that the topic has, and nothing is
// left open.
func (w *World) Settle() {
	w.T.Helper()
	if why := w.Unsettled(Patience); why != "" {
		w.T.Fatalf("not settled after %v: %s", Patience, why)
	}
}

// Unsettled is empty as soon as Redis has everything; otherwise it says, after
// this time, what is missing.
func (w *World) Unsettled(within time.Duration) (why string) {
	w.T.Helper()
	w.mu.Lock()
	w.calm, w.looks = false, 0
	w.mu.Unlock()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		w.mu.Lock()
		why = "no registry is through with the topic"
		calm := w.calm
		w.mu.Unlock()
		if calm {
			if why = w.Incomplete(); why == "" {
				return ""
			}
		}
		if time.Since(began) > within {
			return why
		}
	}
}

// Incomplete says which shard has no marker or open cases.
func (w *World) Incomplete() string {
	pipe := w.Redis.Pipeline()
	var markers [shards.Users]*redis.IntCmd
	var open [shards.Users]*redis.StringSliceCmd
	for s := range shards.Users {
		markers[s] = pipe.Exists(w.Ctx, shards.EpochKey(s))
		open[s] = pipe.SMembers(w.Ctx, "t:{"+shards.UserTag(s)+"}:open")
	}
	_, err := pipe.Exec(w.Ctx)
	w.Must(err)
	for s := range shards.Users {
		if markers[s].Val() != 1 {
			return fmt.Sprintf("shard %d has no marker", s)
		}
		if cases := open[s].Val(); len(cases) > 0 {
			return fmt.Sprintf("shard %d has open cases: %q", s, cases)
		}
	}
	return ""
}

// Behind says which shard has not written that it has applied all.
func (w *World) Behind() string {
	ends := w.Topic.Ends()
	for s := range shards.Users {
		offsets, err := w.Redis.HGetAll(w.Ctx, shards.OffsetsKey(s)).Result()
		w.Must(err)
		for p, end := range ends {
			if got := offsets[fmt.Sprint(p)]; got != fmt.Sprint(end) {
				return fmt.Sprintf("shard %d, partition %d: %q of %d", s, p, got, end)
			}
		}
	}
	return ""
}

// Fetch reads these users and returns those that are not empty.
func (w *World) Fetch(names ...string) map[string]*push.User {
	w.T.Helper()
	out := make([]*push.User, len(names))
	for i := range out {
		out[i] = new(push.User)
	}
	w.Must(users.NewReader(w.Redis, false).Fetch(w.Ctx, names, out))
	got := map[string]*push.User{}
	for i, u := range out {
		if len(u.Devices) == 0 {
			u.Devices = nil
		}
		without := *u
		without.Quarantine = 0
		if !reflect.DeepEqual(without, push.User{}) {
			got[names[i]] = u
		}
	}
	return got
}

// Token is one of FCM.
func Token(i int) string { return fmt.Sprintf("fcm-token-%d", i) }

// Hash is that of the device with this Token.
func Hash(i int) string { return push.DeviceHash(push.FCM, Token(i)) }

// Epoch is before the year 2000, when virtual time begins: registrations of the
// future are refused.
var Epoch = time.UnixMilli(940_000_000_000).UTC()

// Register registers a device of FCM, at this many seconds after Epoch.
func (w *World) Register(user string, tok int, at int) {
	w.T.Helper()
	_, err := w.Client.RegisterDevice(w.Ctx, user, push.Device{
		Platform: push.FCM, App: "shop", Token: Token(tok), RegisteredAt: Epoch.Add(time.Duration(at) * time.Second),
	})
	w.Must(err)
}

// OptOut sets the types that a user wants no more.
func (w *World) OptOut(user string, types ...string) {
	w.T.Helper()
	w.Must(w.Client.SetPreferences(w.Ctx, user, push.Preferences{Types: types}))
}

// Raw appends a record to push.users as it is.
func (w *World) Raw(key, value string) {
	w.T.Helper()
	w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: key, Value: []byte(value)}}))
}

// Told is what the quarantine's topic says.
func (w *World) Told() map[string]users.Quarantined {
	w.T.Helper()
	told := map[string]users.Quarantined{}
	for _, r := range w.Quarantine.Latest() {
		q, err := users.ReadQuarantined(r.Value)
		w.Must(err)
		q.AtMS = 0
		told[r.Key] = q
	}
	return told
}

// Look reads one user, who may be empty.
func (w *World) Look(user string) *push.User {
	w.T.Helper()
	u := new(push.User)
	w.Must(users.NewReader(w.Redis, false).Fetch(w.Ctx, []string{user}, []*push.User{u}))
	return u
}

// Opener makes clients of a real server or cluster.
func Opener(t *testing.T, addrs ...string) func() redis.UniversalClient {
	return func() redis.UniversalClient {
		o := shards.DefaultOptions()
		o.Addrs, o.Cluster = addrs, len(addrs) > 1
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = Patience, Patience, Patience
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}

// Virtual runs the test in virtual time on an in-process Redis.
func Virtual(t *testing.T, test func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { InMemory(t, test) })
}

// Show writes users for a failure.
func Show(m map[string]*push.User) string {
	var b strings.Builder
	for name, u := range m {
		fmt.Fprintf(&b, "\n  %s: %+v", name, *u)
	}
	return b.String()
}
