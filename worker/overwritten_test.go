package worker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// order is a notification for ada about an order; edit makes another one of it.
func order(edit func(*pipeline.Item)) pipeline.Item {
	it := pipeline.Item{FirstSeen: push.At(time.Now()), Timestamp: push.At(time.Now()), Expires: push.At(time.Now().Add(time.Hour))}
	it.Message = push.Message{ID: "n", App: "shop", UserID: "ada", Type: "order", Priority: push.Medium}
	if edit != nil {
		edit(&it)
	}
	return it
}

// noneNewer has superseded nothing.
type noneNewer struct{}

func (noneNewer) Superseded(context.Context, []*pipeline.Item, []bool) error { return nil }

// storedPhone is the only device of who has one in these tests.
var storedPhone = push.Device{Platform: push.FCM, App: "shop", Token: "t1", Hash: push.DeviceHash(push.FCM, "t1"), RegisteredAt: time.UnixMilli(1_790_000_000_000).UTC()}

// store puts a record into Redis as the registry does.
func store(t *testing.T, client shards.Client, owner string, u *push.User) {
	t.Helper()
	const build = 7
	s := shards.UserShard(owner)
	if err := client.MSet(t.Context(), shards.EpochKey(s), state.FormatBuild(build), shards.UserKey(s, owner), string(record.Encode(nil, u, build))).Err(); err != nil {
		t.Fatal(err)
	}
}

// overwrite has somebody else write a hash in the place of the record.
func overwrite(t *testing.T, client shards.Client, owner string) {
	t.Helper()
	key := shards.UserKey(shards.UserShard(owner), owner)
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), key, "no", "record").Err(); err != nil {
		t.Fatal(err)
	}
}

// A key of another type in the place of a record is no user who forbids nothing and has
// nothing: what is for the owner waits, whatever an empty record would have meant for it.
func TestAnOverwrittenRecordHoldsWhatIsForItsOwner(t *testing.T) {
	bare := func(it *pipeline.Item) {
		it.UserID, it.Device = "", push.Target{Platform: push.FCM, Token: storedPhone.Token}
	}
	elsewhere := quiet.New(quiet.Options{Default: time.UTC, Promotional: map[string]bool{"order": true}, Drop: map[string]bool{"order": true},
		Countries: map[string]quiet.Country{"DE": {}, quiet.Elsewhere: {Hours: []push.QuietHours{{}}}}}) // all day
	for _, tt := range []struct {
		why    string
		user   push.User
		edit   func(*pipeline.Item)
		rules  stages.Rules
		before push.Verdict
		goesOn bool // without its record too
	}{
		{why: "a user with a device", user: push.User{Devices: []push.Device{storedPhone}}},
		{why: "a user without devices", before: push.Suppressed},
		{why: "one who has agreed to a type that needs it", user: push.User{Devices: []push.Device{storedPhone}, Preferences: push.Preferences{OptIns: []string{"order"}}},
			rules: stages.Rules{Consent: push.Consent{OptIn: map[string]bool{"order": true}}}},
		{why: "one whose country keeps no quiet hours, in which this type is dropped elsewhere", rules: stages.Rules{Quiet: elsewhere},
			user: push.User{Devices: []push.Device{storedPhone}, Profile: push.Profile{Country: "DE"}}},
		{why: "critical", user: push.User{Devices: []push.Device{storedPhone}}, edit: func(it *pipeline.Item) { it.Priority = push.Critical }},
		{why: "a bare device that is blocked", user: push.User{Preferences: push.Preferences{Blocked: true}}, edit: bare, before: push.Suppressed},
		{why: "a bare device that is blocked, in a lane that sends to it all the same", user: push.User{Preferences: push.Preferences{Blocked: true}}, before: push.Undecided,
			edit:  func(it *pipeline.Item) { bare(it); it.Priority = push.Critical },
			rules: stages.Rules{Consent: push.Consent{IgnoreBlocked: true}}, goesOn: true},
	} {
		client := shardstest.Start(t)
		reader := users.NewReader(client, false)
		apply := func() *pipeline.Item {
			b := &pipeline.Batch{Items: []pipeline.Item{order(tt.edit)}}
			for _, s := range []pipeline.Stage{&stages.Preferences{Users: reader, Rules: tt.rules.Fixed()}, &stages.Devices{}} {
				if err := s.Apply(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			return &b.Items[0]
		}
		it := order(tt.edit)
		owner := it.Owner()
		store(t, client, owner, &tt.user)
		if it := apply(); it.Verdict != tt.before {
			t.Errorf("%s: before: %v %s, want %v", tt.why, it.Verdict, it.Reason, tt.before)
		}
		overwrite(t, client, owner)
		switch it := apply(); {
		case tt.goesOn:
			if it.Verdict != push.Undecided || len(it.Deliveries) != 1 {
				t.Errorf("%s: %v %s, %d deliveries, want that it goes on", tt.why, it.Verdict, it.Reason, len(it.Deliveries))
			}
		case it.Verdict != push.Deferred || it.Reason != push.UserQuarantined || len(it.Deliveries) > 0:
			t.Errorf("%s: %v %q, %d deliveries, want that it is held: user_quarantined", tt.why, it.Verdict, it.Reason, len(it.Deliveries))
		}
	}
}

// What has waited in its route goes by what was read before, when meanwhile a key of
// another type stands in the place of the record.
func TestRecheckOfAnOverwrittenRecord(t *testing.T) {
	client := shardstest.Start(t)
	store(t, client, "ada", &push.User{Devices: []push.Device{storedPhone}})
	it := order(nil)
	s := &stages.Recheck{Users: users.NewReader(client, false), Newest: noneNewer{}}
	for _, look := range []string{"before", "overwritten"} {
		d := &pipeline.Delivery{Item: &it, Device: pipeline.Device{Token: storedPhone.Token, Hash: storedPhone.Hash}, Route: push.Route{Platform: storedPhone.Platform}}
		if err := s.Recheck(t.Context(), []*pipeline.Delivery{d}); err != nil {
			t.Fatal(err)
		}
		if d.Verdict != push.Undecided {
			t.Errorf("%s: ends %v %q", look, d.Verdict, d.Reason)
		}
		overwrite(t, client, "ada")
	}
}

// torn is a connection over which some command never comes.
type torn struct {
	net.Conn
	command []byte
}

func (c torn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.command) {
		return 0, errors.New("redis is away")
	}
	return c.Conn.Write(b)
}

// Redis goes away between reading records and asking what there is in the place of those
// that are missing: a batch with a user of whom nothing is known holds up no one-time
// password that names its device, in a lane with ignore_blocked.
func TestRedisGoesAwayBeforeMissingRecordsAreLookedFor(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	o := shards.DefaultOptions()
	o.Addrs = []string{server.Addr()}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return torn{conn, []byte("exists")}, err
	}
	client := shardstest.Open(t, o)
	b := &pipeline.Batch{Items: []pipeline.Item{
		order(func(it *pipeline.Item) {
			it.UserID, it.Priority, it.Device = "", push.Critical, push.Target{Platform: push.FCM, Token: "t1"}
		}),
		order(nil),
	}}
	for i := range b.Items {
		if err := client.Set(t.Context(), shards.EpochKey(shards.UserShard(b.Items[i].Owner())), state.FormatBuild(7), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := &stages.Preferences{Users: users.NewReader(client, false)}
	if err := s.Apply(t.Context(), b); err == nil {
		t.Error("without ignore_blocked the batch does not wait")
	}
	s.Rules = stages.Rules{Consent: push.Consent{IgnoreBlocked: true}}.Fixed()
	for _, s := range []pipeline.Stage{s, &stages.Devices{}} {
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatalf("the one-time password waits for Redis: %v", err)
		}
	}
	if it := &b.Items[0]; it.Verdict != push.Undecided || len(it.Deliveries) != 1 {
		t.Errorf("the one-time password: %v %s, %d deliveries", it.Verdict, it.Reason, len(it.Deliveries))
	}
	if it := &b.Items[1]; it.Verdict != push.Deferred || it.Reason != push.UserUnavailable {
		t.Errorf("the other: %v %s, want that it is held: user_unavailable", it.Verdict, it.Reason)
	}
}
