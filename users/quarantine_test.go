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
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// broken are preferences that ask for everything to stop, beside a type name
// of 65 bytes.
var broken = `{"opt_out_all":true,"opt_out_types":["` + strings.Repeat("x", 65) + `"]}`

const newer = `{"v":9,"opt_out_all":"who knows"}`

func virtual(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { inMemory(t, test) })
}

func (w *world) raw(key, value string) {
	w.t.Helper()
	w.must(w.topic.Append(w.ctx, []users.Record{{Key: key, Value: []byte(value)}}))
}

// spoil makes the stored record of a user unreadable.
func (w *world) spoil(user string) {
	w.t.Helper()
	w.must(w.redis.Set(w.ctx, shards.UserKey(shards.UserShard(user), user), "garbage", 0).Err())
}

// told is what the quarantine's topic says.
func (w *world) told() map[string]users.Quarantined {
	w.t.Helper()
	told := map[string]users.Quarantined{}
	for _, r := range w.quarantine.Latest() {
		q, err := users.ReadQuarantined(r.Value)
		w.must(err)
		q.AtMS = 0
		told[r.Key] = q
	}
	return told
}

// look reads one user, who may be empty.
func (w *world) look(user string) *push.User {
	w.t.Helper()
	u := new(push.User)
	w.must(users.NewReader(w.redis, false).Fetch(w.ctx, []string{user}, []*push.User{u}))
	return u
}

func device(tok string) string {
	return `{"platform":"fcm","app":"shop","token":"` + tok + `","registered_at":"1999-11-01T00:00:00Z"}`
}

// What cannot be read of one part leaves what was there of it, and all else,
// as it is.
func TestPartsThatCannotBeReadStandAside(t *testing.T) {
	future := strings.ReplaceAll(device(token(1)), "1999", "9999")
	eachRedis(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		for _, part := range []struct{ key, value string }{
			{record.PreferencesKey("ada"), broken},
			{record.DeviceKey("ada", hash(1)), future},
			{record.DeviceKey("ada", hash(2)), device("another")},
			{record.PreferencesKey("dee"), newer},
			{record.PreferencesKey("eve"), newer},
			{record.PreferencesKey("bob/with/slash"), broken},
			{record.DeviceKey("cy", hash(4)), "not json"},
			{"ada/unknown-part", `{}`},
			{"", `{}`},
		} {
			w.raw(part.key, part.value)
		}
		w.register("eve", 7, 7) // all others go on
		w.agree()

		want := map[string]users.Quarantined{}
		expect := func(key, reason string, stands bool, marks push.Quarantine) {
			q := users.QuarantinedAt(key)
			user := q.User
			q.Reason, q.Stands = reason, stands
			want[key] = q
			if got := w.look(user).Quarantine; got&marks != marks || stands && got != 0 {
				t.Errorf("%s: the record has the marks %b, want %b", key, got, marks)
			}
		}
		expect(record.PreferencesKey("ada"), record.BrokenRule, true, 0)
		expect(record.DeviceKey("ada", hash(1)), record.BrokenRule, true, 0)
		expect(record.DeviceKey("ada", hash(2)), record.BrokenRule, true, 0)
		expect(record.PreferencesKey("dee"), record.UnknownVersion, true, 0)
		expect(record.PreferencesKey("eve"), record.UnknownVersion, false, push.PreferencesUnknown)
		expect(record.PreferencesKey("bob/with/slash"), record.BrokenRule, false, push.PreferencesBroken)
		expect(record.DeviceKey("cy", hash(4)), record.BrokenRule, false, push.DeviceUnread)
		got := w.told()
		for key, q := range got {
			q.Partition, q.Offset = 0, 0
			got[key] = q
		}
		if !maps.Equal(got, want) {
			t.Errorf("told: %+v\nwant %+v", got, want)
		}
		now, err := users.InQuarantine(w.ctx, w.redis)
		if err != nil || !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("in quarantine: %v, %v", now, err)
		}

		// Whatever can be read ends it.
		for _, user := range []string{"ada", "dee", "eve", "bob/with/slash"} {
			w.optOut(user, "promo")
		}
		w.register("ada", 1, 50)
		w.register("ada", 2, 50)
		w.must(w.client.RemoveDevice(w.ctx, "cy", hash(4)))
		w.agree()
		if now, err := users.InQuarantine(w.ctx, w.redis); err != nil || len(now) > 0 {
			t.Errorf("in quarantine still: %v, %v", now, err)
		}
		if got := w.told(); len(got) > 0 {
			t.Errorf("told still: %+v", got)
		}
		for _, user := range []string{"ada", "dee", "eve", "bob/with/slash", "cy"} {
			if q := w.look(user).Quarantine; q != 0 {
				t.Errorf("%s has the marks %b still", user, q)
			}
		}
	})
}

// Compaction leaves only what cannot be read: then nobody is opted in by it.
func TestQuarantineOutlivesARebuild(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		w.raw(record.PreferencesKey("dee"), broken)
		w.raw(record.PreferencesKey("ada"), newer)
		w.topic.Compact()
		w.run(options())
		w.settle()
		if got := w.look("dee").Quarantine; got != push.PreferencesBroken {
			t.Errorf("dee's marks are %b", got)
		}
		if u := w.look("ada"); u.Quarantine != push.PreferencesUnknown || len(u.Devices) != 2 {
			t.Errorf("ada is %+v", u)
		}
	})
}

// The quarantine's topic may be away: that is told, and holds up nothing.
func TestQuarantineCannotBeTold(t *testing.T) {
	virtual(t, func(w *world) {
		refuses := &refusing{Log: w.quarantine}
		refuses.refuse.Store(true)
		w.wrap = func(topics *users.RegistryTopics) { topics.Quarantine = refuses }
		w.fill()
		w.run(options())
		w.agree()
		w.raw(record.PreferencesKey("ada"), broken)
		w.optOut("eve", "promo")
		time.Sleep(10 * options().CheckInterval)
		if got := w.look("eve").Preferences.Types; len(got) != 1 {
			t.Errorf("eve's opt-outs are %q: she waits for the quarantine", got)
		}
		if now, err := users.InQuarantine(w.ctx, w.redis); err != nil || !now["ada/prefs"] || len(w.told()) != 0 {
			t.Errorf("in quarantine: %v, %v; told %v", now, err, w.told())
		}
		refuses.refuse.Store(false)
		w.agree()
		if got := w.told(); len(got) != 1 {
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
		w.must(w.topic.Append(w.ctx, records))
		w.run(options())
		w.settle()
		if got := w.told(); len(got) != many {
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
