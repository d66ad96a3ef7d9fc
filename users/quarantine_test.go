package users_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// broken are preferences that ask for everything to stop, beside a type name
// of 65 bytes.
var broken = `{"opt_out_all":true,"opt_out_types":["` + strings.Repeat("x", 65) + `"]}`

const newer = `{"v":9,"opt_out_all":"who knows"}`

// spoil makes the stored record of a user unreadable.
func (w *world) spoil(user string) {
	w.T.Helper()
	w.Must(w.Redis.Set(w.Ctx, shards.UserKey(shards.UserShard(user), user), "garbage", 0).Err())
}

func device(tok string) string {
	return `{"platform":"fcm","app":"shop","token":"` + tok + `","registered_at":"1999-11-01T00:00:00Z"}`
}

// What cannot be read of one part leaves what was there of it, and all else,
// as it is.
func TestPartsThatCannotBeReadStandAside(t *testing.T) {
	future := strings.ReplaceAll(device(userstest.Token(1)), "1999", "9999")
	eachRedis(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		for _, part := range []struct{ key, value string }{
			{record.PreferencesKey("ada"), broken},
			{record.DeviceKey("ada", userstest.Hash(1)), future},
			{record.DeviceKey("ada", userstest.Hash(2)), device("another")},
			{record.PreferencesKey("dee"), newer},
			{record.PreferencesKey("eve"), newer},
			{record.PreferencesKey("bob/with/slash"), broken},
			{record.DeviceKey("cy", userstest.Hash(4)), "not json"},
			{"ada/unknown-part", `{}`},
			{"", `{}`},
		} {
			w.Raw(part.key, part.value)
		}
		w.Register("eve", 7, 7) // all others go on
		w.agree()

		want := map[string]users.Quarantined{}
		expect := func(key, reason string, stands bool, marks push.Quarantine) {
			q := users.QuarantinedAt(key)
			user := q.User
			q.Reason, q.Stands = reason, stands
			want[key] = q
			if got := w.Look(user).Quarantine; got&marks != marks || stands && got != 0 {
				t.Errorf("%s: the record has the marks %b, want %b", key, got, marks)
			}
		}
		expect(record.PreferencesKey("ada"), record.BrokenRule, true, 0)
		expect(record.DeviceKey("ada", userstest.Hash(1)), record.BrokenRule, true, 0)
		expect(record.DeviceKey("ada", userstest.Hash(2)), record.BrokenRule, true, 0)
		expect(record.PreferencesKey("dee"), record.UnknownVersion, true, 0)
		expect(record.PreferencesKey("eve"), record.UnknownVersion, false, push.PreferencesUnknown)
		expect(record.PreferencesKey("bob/with/slash"), record.BrokenRule, false, push.PreferencesBroken)
		expect(record.DeviceKey("cy", userstest.Hash(4)), record.BrokenRule, false, push.DeviceUnread)
		got := w.Told()
		for key, q := range got {
			q.Partition, q.Offset = 0, 0
			got[key] = q
		}
		if !maps.Equal(got, want) {
			t.Errorf("told: %+v\nwant %+v", got, want)
		}
		now, err := users.InQuarantine(w.Ctx, w.Redis)
		if err != nil || !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("in quarantine: %v, %v", now, err)
		}

		// Whatever can be read ends it.
		for _, user := range []string{"ada", "dee", "eve", "bob/with/slash"} {
			w.OptOut(user, "promo")
		}
		w.Register("ada", 1, 50)
		w.Register("ada", 2, 50)
		w.Must(w.Client.RemoveDevice(w.Ctx, "cy", userstest.Hash(4)))
		w.agree()
		if now, err := users.InQuarantine(w.Ctx, w.Redis); err != nil || len(now) > 0 {
			t.Errorf("in quarantine still: %v, %v", now, err)
		}
		if got := w.Told(); len(got) > 0 {
			t.Errorf("told still: %+v", got)
		}
		for _, user := range []string{"ada", "dee", "eve", "bob/with/slash", "cy"} {
			if q := w.Look(user).Quarantine; q != 0 {
				t.Errorf("%s has the marks %b still", user, q)
			}
		}
	})
}

// Compaction leaves only what cannot be read: then nobody is opted in by it.
func TestQuarantineOutlivesARebuild(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		w.Raw(record.PreferencesKey("dee"), broken)
		w.Raw(record.PreferencesKey("ada"), newer)
		w.Topic.Compact()
		w.Run(userstest.RegistryOptions())
		w.Settle()
		if got := w.Look("dee").Quarantine; got != push.PreferencesBroken {
			t.Errorf("dee's marks are %b", got)
		}
		if u := w.Look("ada"); u.Quarantine != push.PreferencesUnknown || len(u.Devices) != 2 {
			t.Errorf("ada is %+v", u)
		}
	})
}

// The quarantine's topic may be away: that is told, and holds up nothing.
func TestQuarantineCannotBeTold(t *testing.T) {
	virtual(t, func(w *world) {
		refuses := &refusing{Log: w.Quarantine}
		refuses.refuse.Store(true)
		w.Wrap = func(topics *users.RegistryTopics) { topics.Quarantine = refuses }
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		w.Raw(record.PreferencesKey("ada"), broken)
		w.OptOut("eve", "promo")
		time.Sleep(10 * userstest.RegistryOptions().CheckInterval)
		if got := w.Look("eve").Preferences.Types; len(got) != 1 {
			t.Errorf("eve's opt-outs are %q: she waits for the quarantine", got)
		}
		if now, err := users.InQuarantine(w.Ctx, w.Redis); err != nil || !now["ada/prefs"] || len(w.Told()) != 0 {
			t.Errorf("in quarantine: %v, %v; told %v", now, err, w.Told())
		}
		refuses.refuse.Store(false)
		w.agree()
		if got := w.Told(); len(got) != 1 {
			t.Errorf("told: %+v", got)
		}
	})
}

// However many parts a producer breaks at once: all are told, and others go on
// meanwhile.
func TestManyPartsInQuarantine(t *testing.T) {
	virtual(t, func(w *world) {
		const many = 1500 // more than one look settles
		var records []users.Record
		for i := 0; len(records) < many; i++ {
			if name := fmt.Sprint("user-", i); shards.UserShard(name) == 7 {
				records = append(records, users.Record{Key: record.PreferencesKey(name), Value: []byte(newer)})
			}
		}
		w.Must(w.Topic.Append(w.Ctx, records))
		w.Run(userstest.RegistryOptions())
		w.Settle()
		if got := w.Told(); len(got) != many {
			t.Errorf("%d of %d told", len(got), many)
		}
	})
}

func TestRegistrationsOfTheFutureAreRefused(t *testing.T) {
	d := push.Device{Platform: push.FCM, App: "shop", Token: "t"}
	for _, tt := range []struct {
		ahead   time.Duration
		refused bool
	}{{23 * time.Hour, false}, {25 * time.Hour, true}, {200 * 365 * 24 * time.Hour, true}} {
		d.RegisteredAt = time.Now().Add(tt.ahead)
		if err := (users.Registration{User: "ada", Device: d}).Check(); errors.Is(err, record.ErrInvalid) != tt.refused {
			t.Errorf("%v ahead: error %v", tt.ahead, err)
		}
	}
}

// refusing is a log that can be away.
type refusing struct {
	users.Log
	refuse atomic.Bool
}

func (l *refusing) Append(ctx context.Context, rs []users.Record) error {
	if l.refuse.Load() {
		return errors.New("the topic is not there")
	}
	return l.Log.Append(ctx, rs)
}
