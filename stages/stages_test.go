package stages_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// hour is when everything in these tests was first seen.
var hour = time.Now().Add(-time.Hour)

// item is an item of user u1 with an id; edit sets what the case is about.
func item(id string, edit func(*pipeline.Item)) pipeline.Item {
	it := pipeline.Item{FirstSeen: push.At(hour), Timestamp: push.At(hour), User: &push.User{}}
	it.Message = push.Message{ID: id, App: "shop", UserID: "u1", Type: "order", Priority: push.Medium}
	if edit != nil {
		edit(&it)
	}
	return it
}

// row is a status row of u1.
func row(id, device string, step int16, s push.State) push.Row {
	return push.Row{ID: id, Device: device, Step: step, State: s, UserHash: push.UserHash("u1")}
}

// filter answers maybe to everything, or to the ids in it.
type filter struct {
	all   bool
	maybe map[string]bool
	since time.Time // its horizon
	asked []string
	err   error
}

func (f *filter) Horizon(time.Time) time.Time { return f.since }

func (f *filter) Check(_ context.Context, ids []string, maybe []bool) error {
	f.asked = append(f.asked, ids...)
	for i, id := range ids {
		maybe[i] = f.all || f.maybe[id]
	}
	return f.err
}

// ledger is a status store with fixed rows.
type ledger struct {
	rows  map[string][]push.Row
	asked []string
	err   error
}

func (l *ledger) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	l.asked = append(l.asked, ids...)
	all := make([][]push.Row, len(ids))
	for i, id := range ids {
		all[i] = l.rows[id]
	}
	return all, l.err
}

func TestDedupe(t *testing.T) {
	retry := func(devices ...string) func(*pipeline.Item) {
		return func(it *pipeline.Item) { it.Confirm, it.Attempt, it.Devices = true, 1, devices }
	}
	confirm := func(it *pipeline.Item) { it.Confirm = true }
	for _, tt := range []struct {
		why     string
		edit    func(*pipeline.Item)
		maybe   bool
		rows    []push.Row
		want    push.Verdict
		reason  push.Reason
		history bool
	}{
		{why: "the filter has never seen it: no read, no verdict", rows: []push.Row{row("n", "", 0, push.StateSuppressed)}},
		{why: "a false positive drops nothing", maybe: true},
		{why: "delivered to its devices: the devices stage leaves them out", maybe: true,
			rows: []push.Row{row("n", "d1", 0, push.StateDelivered)}, history: true},
		{why: "ended before its devices: a copy", maybe: true,
			rows: []push.Row{row("n", "", 0, push.StateSuppressed)}, want: push.Duplicate},
		{why: "redelivered after an assignment, although the filter lost it", edit: confirm,
			rows: []push.Row{row("n", "", 0, push.StateExpired)}, want: push.Duplicate},
		{why: "a retry of a device that is open", edit: retry("d1"),
			rows: []push.Row{row("n", "d1", 0, push.StateRetrying)}, history: true},
		{why: "a retry without the row of the record it came from: that one may be under way again", edit: retry("d1"),
			want: push.Deferred, reason: push.Unclaimed},
		{why: "one of two named devices was never handed over", edit: retry("d1", "d2"),
			rows: []push.Row{row("n", "d1", 0, push.StateRetrying)}, want: push.Deferred, reason: push.Unclaimed},
		{why: "the next copy of that retry finds its claim", edit: func(it *pipeline.Item) { retry("d1")(it); it.Hops = 1 },
			rows: []push.Row{row("n", "d1", 1, push.StateHeld)}, history: true},
		{why: "and what was under way has its row by then", edit: func(it *pipeline.Item) { retry("d1")(it); it.Hops = 1 },
			rows: []push.Row{row("n", "d1", 0, push.StateDelivered), row("n", "d1", 1, push.StateHeld)}, want: push.Duplicate},
		{why: "what was under way failed: the devices stage says so above the claim", edit: func(it *pipeline.Item) { retry("d1")(it); it.Hops = 1 },
			rows: []push.Row{row("n", "d1", 0, push.StateFailed), row("n", "d1", 1, push.StateHeld)}, history: true},
		{why: "a redrive needs no row: the operator says so", edit: func(it *pipeline.Item) { it.Confirm, it.Hops, it.Redrive = true, 1, 1 }},
		{why: "an intent of this very record without a result", edit: confirm,
			rows: []push.Row{row("n", "d1", 0, push.StateSending)}, want: push.Unresolved, reason: push.IntentLost},
		{why: "an intent whose result came is a copy's end", edit: func(it *pipeline.Item) { it.Reread = true },
			rows: []push.Row{row("n", "d1", 0, push.StateSending), row("n", "d1", 0, push.StateDelivered)}, want: push.Duplicate},
		{why: "read again below the commit, with an intent and nothing after", edit: func(it *pipeline.Item) { it.Reread = true },
			rows: []push.Row{row("n", "d1", 0, push.StateSending)}, want: push.Unresolved, reason: push.IntentLost},
		{why: "read again below the commit, and ended without an intent", edit: func(it *pipeline.Item) { it.Reread = true },
			rows: []push.Row{row("n", "", 0, push.StateSuppressed)}, want: push.Duplicate},
		{why: "the second copy of that retry", edit: retry("d1"),
			rows: []push.Row{row("n", "d1", 0, push.StateRetrying), row("n", "d1", 1, push.StateDelivered)}, want: push.Duplicate},
		{why: "one of two named devices is still open", edit: retry("d1", "d2"),
			rows: []push.Row{row("n", "d1", 1, push.StateDelivered), row("n", "d2", 0, push.StateRetrying)}, history: true},
		{why: "the original comes again when its retry owns the device: left out by the devices stage", edit: confirm,
			rows: []push.Row{row("n", "d1", 0, push.StateRetrying)}, history: true},
		{why: "the id of another user", maybe: true,
			rows: []push.Row{{ID: "n", Device: "d9", State: push.StateDelivered, UserHash: 7}}, want: push.Dead, reason: push.IDReused},
		{why: "the id of another user too: only our rows count", maybe: true,
			rows: []push.Row{{ID: "n", State: push.StateSuppressed, UserHash: 7}, row("n", "d1", 0, push.StateDelivered)}, history: true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			b := &pipeline.Batch{Items: []pipeline.Item{item("n", tt.edit)}}
			s := &stages.Dedupe{Filter: &filter{all: tt.maybe}, Ledger: &ledger{rows: map[string][]push.Row{"n": tt.rows}}}
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			it := &b.Items[0]
			if open := it.Verdict == push.Undecided; it.Verdict != tt.want || it.Reason != tt.reason || (open && it.History != nil) != tt.history {
				t.Errorf("got verdict %v %q, history %v; want %v %q, %v", it.Verdict, it.Reason, it.History != nil, tt.want, tt.reason, tt.history)
			}
			// Whatever it comes to, its sender may still have to be told what the rows say.
			if own, _ := push.OwnRows(tt.rows, push.UserHash(it.Owner())); len(own) > 0 && (it.Confirmed.IsZero() != (it.History == nil) || it.History != nil && len(it.History.Rows) != len(own)) {
				t.Errorf("history %+v, want the rows %+v", it.History, own)
			}
		})
	}
}

// TestDedupeAsksNoMoreThanNeeded: the filter is not queried for ids that are
// confirmed anyway, the ledger not for ids that the filter denies, and neither
// for items that are decided.
func TestDedupeAsksNoMoreThanNeeded(t *testing.T) {
	f, l := &filter{maybe: map[string]bool{"b": true}}, &ledger{}
	b := &pipeline.Batch{Items: []pipeline.Item{item("a", nil), item("b", nil),
		item("c", func(it *pipeline.Item) { it.Confirm = true }),
		item("d", func(it *pipeline.Item) { it.Decide(push.Dead, push.BadJSON, "") })}}
	if err := (&stages.Dedupe{Filter: f, Ledger: l}).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	slices.Sort(l.asked)
	if !slices.Equal(f.asked, []string{"a", "b"}) || !slices.Equal(l.asked, []string{"b", "c"}) {
		t.Errorf("got filter requests %v, ledger requests %v", f.asked, l.asked)
	}
}

// TestOldCopiesAreConfirmed: the filter's no means nothing for an id that it
// may have forgotten. If an item may be that old by its times, or if they
// cannot be right, the status store is read.
func TestOldCopiesAreConfirmed(t *testing.T) {
	now := time.Now()
	since := now.Add(-7 * time.Hour) // everything that was finished before is forgotten
	minted := func(at time.Time) string {
		return fmt.Sprintf("%08x-%04x-7111-8222-333344445555", at.UnixMilli()>>16, at.UnixMilli()&0xffff)
	}
	for _, tt := range []struct {
		why                  string
		id                   string
		firstSeen, timestamp time.Time
		confirmed            bool
	}{
		{"a new notification", minted(now.Add(-time.Second)), now, now, false},
		{"one that waited in the topic for a while", minted(now.Add(-6 * time.Hour)), now.Add(-6 * time.Hour), now.Add(-6 * time.Hour), false},
		{"an id without a time", "order-17", now, now, false},
		{"an id that a gateway has derived from a key: repeated after any time, it looks new", "k-SsZfNlH2Zgu1XCd6kdA4SA1PPKSXo-ni", now, now, true},
		{"read again from the start of the topic", minted(since.Add(-time.Second)), since.Add(-time.Second), since.Add(-time.Second), true},
		{"the same, and its id says nothing", "order-17", since.Add(-time.Second), since.Add(-time.Second), true},
		{"written again by its producer the next day", minted(now.Add(-24 * time.Hour)), now, now, true},
		{"a record that says it is a copy of an old one", "order-17", now.Add(-24 * time.Hour), now, true},
		{"a second ahead: the producer's clock", minted(now.Add(time.Second)), now, now, false},
		{"an id that was minted after its record was written", minted(now.Add(2 * time.Minute)), now, now, true},
		{"the same of an old record: its id is not older than the horizon", minted(now.Add(-3 * time.Hour)), now.Add(-4 * time.Hour), now.Add(-4 * time.Hour), true},
		{"first seen after its record was written", "order-17", now.Add(-time.Hour), now.Add(-2 * time.Hour), true},
		{"a clock of the year 2100, in the record and its id", minted(now.AddDate(74, 0, 0)), now.AddDate(74, 0, 0), now.AddDate(74, 0, 0), true},
		{"without any time", "order-17", time.Time{}, time.Time{}, true},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item(tt.id, func(it *pipeline.Item) { it.FirstSeen, it.Timestamp = push.At(tt.firstSeen), push.At(tt.timestamp) })}}
		l := &ledger{rows: map[string][]push.Row{tt.id: {row(tt.id, "", 0, push.StateSuppressed)}}}
		if err := (&stages.Dedupe{Filter: &filter{since: since}, Ledger: l}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if confirmed := b.Items[0].Verdict == push.Duplicate; confirmed != tt.confirmed {
			t.Errorf("%s: got confirmed %v, want %v", tt.why, confirmed, tt.confirmed)
		}
	}
}

// TestStoresThatAreAwayDecideNothing: an error, and every item unchanged.
func TestStoresThatAreAwayDecideNothing(t *testing.T) {
	away := errors.New("connection refused")
	maybe := &filter{all: true}
	for name, s := range map[string]pipeline.Stage{
		"filter":  &stages.Dedupe{Filter: &filter{err: away}, Ledger: &ledger{}},
		"ledger":  &stages.Dedupe{Filter: maybe, Ledger: &ledger{err: away}},
		"users":   &stages.Preferences{Users: people{err: away}},
		"limiter": &stages.Limits{Limiter: inForce(&limiter{err: away})},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.Deliveries = []pipeline.Delivery{{}} })}}
		if err := s.Apply(t.Context(), b); !errors.Is(err, away) {
			t.Errorf("%s: got error %v, want the store's", name, err)
		}
		if b.Items[0].Verdict != push.Undecided {
			t.Errorf("%s: got verdict %v although the store is down", name, b.Items[0].Verdict)
		}
	}
}

func TestAccept(t *testing.T) {
	s := &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: 24 * time.Hour,
		DefaultPriority: push.High, MayBeCritical: map[string]bool{"auth": true}}
	for _, tt := range []struct {
		why    string
		edit   func(*pipeline.Item)
		want   push.Verdict
		reason push.Reason
	}{
		{why: "an ordinary one"},
		{"an app nobody configured", func(it *pipeline.Item) { it.App = "shoq" }, push.Dead, push.UnknownApp},
		{"critical from a sender that may", func(it *pipeline.Item) { it.Priority, it.SenderID = push.Critical, "auth" }, push.Undecided, ""},
		{"an expiry that was left unset", func(it *pipeline.Item) { it.ExpiresAt = time.Time{}.Add(1) }, push.Expired, push.PastExpiry},
		{"past its expiry", func(it *pipeline.Item) { it.ExpiresAt = time.Now().Add(-time.Second) }, push.Expired, push.PastExpiry},
		{"older than the lane allows", func(it *pipeline.Item) { it.FirstSeen = push.At(time.Now().Add(-25 * time.Hour)) }, push.Expired, push.TooOld},
		{"a retry counts from the first record, not from its own", func(it *pipeline.Item) {
			it.FirstSeen, it.Timestamp = push.At(time.Now().Add(-25*time.Hour)), push.At(time.Now())
		}, push.Expired, push.TooOld},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", tt.edit)}}
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if it := &b.Items[0]; it.Verdict != tt.want || it.Reason != tt.reason {
			t.Errorf("%s: got %v %q, want %v %q", tt.why, it.Verdict, it.Reason, tt.want, tt.reason)
		}
	}
	soon := time.Now().Add(time.Minute)
	b := &pipeline.Batch{Items: []pipeline.Item{item("a", func(it *pipeline.Item) { it.ExpiresAt, it.Priority = soon, 0 }), item("b", nil)}}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if it := &b.Items[0]; !it.Expires.Time().Equal(soon) || it.Priority != push.High {
		t.Errorf("got expiry %v, priority %v; want its own expiry and the lane's priority", it.Expires, it.Priority)
	}
	if it := &b.Items[1]; !it.Expires.Time().Equal(hour.Add(24*time.Hour)) || it.Priority != push.Medium {
		t.Errorf("got expiry %v, priority %v; want the lane's maximum age and its own priority", it.Expires, it.Priority)
	}
}

// A repeated send replaces the first one on the screen, and does so only where that is
// asked for; a key of the sender's own stays.
func TestAcceptReplacesRepeatedSends(t *testing.T) {
	for _, tt := range []struct {
		why     string
		replace bool
		own     string
		want    string
	}{
		{"a key of its own", true, "", push.DerivedCollapseKey("n")},
		{"the sender's", true, "score", "score"},
		{"nobody asked for it", false, "", ""},
	} {
		s := &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: 24 * time.Hour, Replace: tt.replace}
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.CollapseKey = tt.own })}}
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if it := &b.Items[0]; it.CollapseKey != tt.want || it.Derived != (tt.replace && tt.own == "") {
			t.Errorf("%s: got key %q, derived %t, want %q", tt.why, it.CollapseKey, it.Derived, tt.want)
		}
	}
}

// What was decided before, as a record that cannot be read, stays as it is and is not
// counted as lowered.
func TestAcceptLeavesWhatIsDecided(t *testing.T) {
	s := &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: time.Hour, DefaultPriority: push.Medium, MayBeCritical: map[string]bool{},
		Replace: true, Lowered: func(n int) { t.Errorf("counted %d as lowered", n) }}
	unread := func() pipeline.Item {
		return item("n", func(it *pipeline.Item) {
			it.App, it.Priority, it.Verdict, it.Reason = "shoq", push.Critical, push.Dead, push.BadJSON
		})
	}
	b := &pipeline.Batch{Items: []pipeline.Item{unread()}}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if want := unread(); !reflect.DeepEqual(b.Items[0], want) {
		t.Errorf("got %+v, want %+v", b.Items[0], want)
	}
}

// TestAcceptLowersCritical: priority critical alone does not bypass the limits.
// If the sender is not allowed to use it, the item is sent with high, and is
// counted once, however often the stage is applied.
func TestAcceptLowersCritical(t *testing.T) {
	for _, tt := range []struct {
		why             string
		may             map[string]bool
		sender          string
		given, standard push.Priority
		want            push.Priority
		lowered         int
	}{
		{"one that may", map[string]bool{"auth": true}, "auth", push.Critical, push.Medium, push.Critical, 0},
		{"one that may not", map[string]bool{"auth": true}, "ads", push.Critical, push.Medium, push.High, 1},
		{"one without a name", map[string]bool{"auth": true}, "", push.Critical, push.Medium, push.High, 1},
		{"nobody may", map[string]bool{}, "auth", push.Critical, push.Medium, push.High, 1},
		{"everybody may", nil, "ads", push.Critical, push.Medium, push.Critical, 0},
		{"another priority", map[string]bool{}, "ads", push.Low, push.Medium, push.Low, 0},
		{"the lane's default is critical, and the sender may not", map[string]bool{"auth": true}, "ads", 0, push.Critical, push.High, 1},
	} {
		lowered := 0
		s := &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: time.Hour, DefaultPriority: tt.standard,
			MayBeCritical: tt.may, Lowered: func(n int) { lowered += n }}
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
			it.Priority, it.SenderID, it.FirstSeen = tt.given, tt.sender, push.At(time.Now())
		})}}
		for range 2 { // a stage may be applied twice to the same batch
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if it := &b.Items[0]; it.Verdict != push.Undecided || it.Priority != tt.want || lowered != tt.lowered {
			t.Errorf("%s: got %v %q, priority %v, %d counted; want undecided, %v, %d", tt.why, it.Verdict, it.Reason, it.Priority, lowered, tt.want, tt.lowered)
		}
	}
}

// people is a registry that has the same record for everybody.
type people struct {
	user push.User
	err  error
}

func (p people) Fetch(_ context.Context, _ []string, users []*push.User) error {
	for i := range users {
		*users[i] = p.user
	}
	return p.err
}

// A user who cannot be read counts neither as opted in nor as missing. Broken
// preferences hold back everything; what may become readable later waits, and so does
// what is critical.
func TestUsersInQuarantine(t *testing.T) {
	expires := time.Now().Add(20 * time.Second)
	critical := func(it *pipeline.Item) { it.Priority = push.Critical }
	for _, tt := range []struct {
		why    string
		user   push.User
		edit   func(*pipeline.Item)
		want   push.Verdict
		reason push.Reason
		wait   time.Duration
	}{
		{why: "broken preferences", user: push.User{Quarantine: push.PreferencesBroken}, want: push.Suppressed, reason: push.PreferencesUnread},
		{why: "broken preferences, critical", user: push.User{Quarantine: push.PreferencesBroken}, edit: critical, want: push.Deferred, reason: push.UserQuarantined, wait: 30 * time.Second},
		{why: "preferences of an unknown version", user: push.User{Quarantine: push.PreferencesUnknown}, want: push.Deferred, reason: push.UserQuarantined, wait: 30 * time.Second},
		{why: "the same, critical", user: push.User{Quarantine: push.PreferencesUnknown}, edit: critical, want: push.Deferred, reason: push.UserQuarantined, wait: 30 * time.Second},
		{why: "an opt-out that is known counts", user: push.User{Quarantine: push.PreferencesUnknown, Preferences: push.Preferences{OptOutAll: true}},
			want: push.Suppressed, reason: push.OptedOutAll},
		{why: "nothing is known, critical too", user: push.User{Quarantine: push.RecordUnread}, edit: critical, want: push.Deferred, reason: push.UserQuarantined, wait: 30 * time.Second},
		{why: "a device, and no other", user: push.User{Quarantine: push.DeviceUnread}, want: push.Deferred, reason: push.UserQuarantined, wait: 30 * time.Second},
		{why: "a device beside another", user: push.User{Quarantine: push.DeviceUnread, Devices: []push.Device{{App: "shop", Token: "t", Hash: "h"}}}},
		{why: "a device, which may be of another channel than that opted out of", user: push.User{Quarantine: push.DeviceUnread, Preferences: push.Preferences{Channels: []string{"push"}},
			Devices: []push.Device{{App: "shop", Platform: push.FCM, Token: "t", Hash: "h"}}}, want: push.Deferred, reason: push.UserQuarantined, wait: 30 * time.Second},
		{why: "looked at before", user: push.User{Quarantine: push.RecordUnread}, edit: func(it *pipeline.Item) { it.Hops = 1 },
			want: push.Deferred, reason: push.UserQuarantined, wait: 5 * time.Minute},
		{why: "it expires before", user: push.User{Quarantine: push.RecordUnread}, edit: func(it *pipeline.Item) { it.Expires = push.At(expires) },
			want: push.Deferred, reason: push.UserQuarantined, wait: time.Until(expires)},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
			it.Expires = push.At(time.Now().Add(time.Hour))
			if tt.edit != nil {
				tt.edit(it)
			}
		})}}
		for _, s := range []pipeline.Stage{&stages.Preferences{Users: people{user: tt.user}}, &stages.Devices{}} {
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		it := &b.Items[0]
		if it.Verdict != tt.want || it.Reason != tt.reason {
			t.Errorf("%s: got %v(%s), want %v(%s)", tt.why, it.Verdict, it.Reason, tt.want, tt.reason)
		}
		if tt.want != push.Undecided && len(it.Deliveries) > 0 {
			t.Errorf("%s: got %d deliveries of what is decided as a whole", tt.why, len(it.Deliveries))
		}
		if off := time.Until(it.NotBefore) - tt.wait; tt.wait > 0 && (off > time.Second || off < -30*time.Second) {
			t.Errorf("%s: got next look in %v, want %v", tt.why, time.Until(it.NotBefore), tt.wait)
		}
	}
}

func TestPreferences(t *testing.T) {
	for _, tt := range []struct {
		why    string
		prefs  push.Preferences
		reason push.Reason
	}{
		{"nothing opted out of", push.Preferences{}, ""},
		{"everything", push.Preferences{OptOutAll: true}, push.OptedOutAll},
		{"our channel", push.Preferences{Channels: []string{"email", "push"}}, push.OptedOutChannel},
		{"another channel", push.Preferences{Channels: []string{"email"}}, ""},
		{"this type", push.Preferences{Types: []string{"promo", "order"}}, push.OptedOutType},
		{"another type", push.Preferences{Types: []string{"promo"}}, ""},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", nil)}}
		if err := (&stages.Preferences{Users: people{user: push.User{Preferences: tt.prefs}}}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if it := &b.Items[0]; it.Reason != tt.reason || (it.Verdict == push.Suppressed) != (tt.reason != "") {
			t.Errorf("opted out of %s: got %v %q", tt.why, it.Verdict, it.Reason)
		}
	}
}

// limiter denies the ids in it.
type limiter struct {
	deny     map[string]bool
	critical bool
	asked    []string
	err      error
}

func (l *limiter) DecideWith(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits) error {
	for _, r := range reqs {
		if r.Allowed = r.Exempt; r.Exempt {
			continue
		}
		l.asked = append(l.asked, r.ID)
		if r.Allowed = !l.deny[r.ID]; !r.Allowed {
			r.Rule = "day"
		}
	}
	if err := lastly(ctx, reqs, senders); err != nil {
		return err
	}
	return l.err
}

// lastly asks senders as a limiter does.
func lastly(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits) error {
	if senders == nil {
		return nil
	}
	return senders.Decide(ctx, slices.DeleteFunc(slices.Clone(reqs), func(r *limits.Request) bool { return !r.Allowed || r.Sender == "" || r.Paid }))
}

// inForce are rules that do not change.
func inForce(l stages.Limiter) func() stages.Limiter { return func() stages.Limiter { return l } }

func (l *limiter) CountsCritical() bool { return l.critical }

func TestLimits(t *testing.T) {
	l := &limiter{deny: map[string]bool{"over": true, "otp": true, "again": true, "held": true}}
	b := &pipeline.Batch{Items: []pipeline.Item{item("under", nil), item("over", nil),
		item("otp", func(it *pipeline.Item) { it.Priority = push.Critical }),
		item("again", func(it *pipeline.Item) { it.Attempt = 1 }),
		item("held", func(it *pipeline.Item) { it.Hops, it.Allowed = 1, true })}}
	for i := range b.Items {
		b.Items[i].Deliveries = []pipeline.Delivery{{Item: &b.Items[i]}}
	}
	if err := (&stages.Limits{Limiter: inForce(l)}).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.asked, []string{"under", "over"}) {
		t.Errorf("got requests about %v: critical messages, retries and items allowed before their hold need none", l.asked)
	}
	for i, want := range []struct {
		push.Verdict
		allowed bool // so that the record after it says so
	}{{push.Undecided, true}, {push.Suppressed, false}, {push.Undecided, false}, {push.Undecided, false}, {push.Undecided, true}} {
		if it := &b.Items[i]; it.Verdict != want.Verdict || it.Allowed != want.allowed {
			t.Errorf("%s: got %v, allowed %t; want %v, %t", it.ID, it.Verdict, it.Allowed, want.Verdict, want.allowed)
		}
	}
	if it := &b.Items[1]; it.Reason != push.Limited || it.Detail != "day" {
		t.Errorf("got reason %q %q, want the rule's name", it.Reason, it.Detail)
	}
	if err := (&stages.Limits{}).Apply(t.Context(), b); err != nil || b.Items[0].Verdict != push.Undecided {
		t.Errorf("without rules: %v, %v", b.Items[0].Verdict, err)
	}
	if err := (&stages.Limits{Limiter: inForce(nil)}).Apply(t.Context(), b); err != nil || b.Items[0].Verdict != push.Undecided {
		t.Errorf("with none in force: %v, %v", b.Items[0].Verdict, err)
	}
}

// registry has a record for some owners.
type registry map[string]push.User

func (r registry) Fetch(_ context.Context, owners []string, users []*push.User) error {
	for i, o := range owners {
		*users[i] = r[o]
	}
	return nil
}

// TestOnlyWhatIsSentSpendsACap: with the stages in their order, the limiter is
// not asked about an item without a device, and an item that it denies is sent
// to no device.
func TestOnlyWhatIsSentSpendsACap(t *testing.T) {
	phone := push.Device{Platform: push.FCM, App: "shop", Token: "aa", Hash: "d1"}
	people := registry{
		"u1": {Devices: []push.Device{phone}},
		"u2": {},
		"u3": {Devices: []push.Device{{Platform: push.FCM, App: "bank", Token: "bb", Hash: "d2"}}},
		"u4": {Devices: []push.Device{phone}, Preferences: push.Preferences{OptOutAll: true}},
	}
	l := &ledger{rows: map[string][]push.Row{
		"closed":   {row("closed", "d1", 0, push.StateDelivered)},
		"redriven": {row("redriven", "gone", 0, push.StateDeadLettered)},
	}}
	of := func(user string) func(*pipeline.Item) { return func(it *pipeline.Item) { it.UserID = user } }
	b := &pipeline.Batch{Items: []pipeline.Item{
		item("sent", nil),
		item("over", nil),
		item("nobody", of("u2")),
		item("elsewhere", of("u3")),
		item("out", of("u4")),
		item("closed", func(it *pipeline.Item) { it.Confirm = true }),
		item("redriven", func(it *pipeline.Item) { it.Confirm, it.Redrive, it.Hops, it.Devices = true, 1, 1, []string{"gone"} }),
	}}
	caps := &limiter{deny: map[string]bool{"over": true}}
	for _, s := range stages.NewOrder(&stages.Dedupe{Filter: &filter{}, Ledger: l}, nil, &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: 24 * time.Hour},
		nil, nil, &stages.Preferences{Users: people}, &stages.Devices{}, nil, &stages.Limits{Limiter: inForce(caps)}) {
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(caps.asked, []string{"sent", "over"}) {
		t.Errorf("got limiter requests %v, want only items with a device", caps.asked)
	}
	for i, want := range []struct {
		verdict push.Verdict
		reason  push.Reason
		devices int
	}{
		{push.Undecided, "", 1}, {push.Suppressed, push.Limited, 0}, {push.Suppressed, push.NoDevice, 0},
		{push.Suppressed, push.NoDevice, 0}, {push.Suppressed, push.OptedOutAll, 0}, {push.Duplicate, "", 0},
		{push.Undecided, "", 1}, // its only device ends as gone
	} {
		if it := &b.Items[i]; it.Verdict != want.verdict || it.Reason != want.reason || len(it.Deliveries) != want.devices {
			t.Errorf("%s: got %v %q with %d deliveries, want %v %q with %d", it.ID, it.Verdict, it.Reason, len(it.Deliveries), want.verdict, want.reason, want.devices)
		}
	}
}

func TestDevices(t *testing.T) {
	phone := push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: "aa", Hash: "d1", RegisteredAt: hour.Add(-time.Hour)}
	tablet := push.Device{Platform: push.FCM, App: "shop", Token: "bb", Hash: "d2", RegisteredAt: hour} // no later than the record
	late := push.Device{Platform: push.FCM, App: "shop", Token: "cc", Hash: "d3", RegisteredAt: hour.Add(time.Minute)}
	bank := push.Device{Platform: push.FCM, App: "bank", Token: "dd", Hash: "d4"}
	with := func(edit func(*pipeline.Item), devices ...push.Device) func(*pipeline.Item) {
		return func(it *pipeline.Item) {
			it.User = &push.User{Devices: devices}
			if edit != nil {
				edit(it)
			}
		}
	}
	rows := func(rs ...push.Row) func(*pipeline.Item) {
		return func(it *pipeline.Item) { it.History = &push.History{Rows: rs} }
	}
	retryOf := func(devices ...string) func(*pipeline.Item) {
		return func(it *pipeline.Item) {
			it.Attempt, it.Devices = 1, devices
			it.History = &push.History{Rows: []push.Row{row("n", "d1", 0, push.StateRetrying), row("n", "d2", 0, push.StateDelivered)}}
		}
	}
	for _, tt := range []struct {
		why    string
		edit   func(*pipeline.Item)
		want   []string // hashes to send to; "-d9" = ended as token gone, or failed
		end    push.Verdict
		reason push.Reason
	}{
		{"all devices of the app", with(nil, phone, tablet, bank), []string{"d1", "d2"}, 0, ""},
		{"none registered", with(nil), nil, push.Suppressed, push.NoDevice},
		{"only another app's", with(nil, bank), nil, push.Suppressed, push.NoDevice},
		{"one closed by an earlier try", with(rows(row("n", "d1", 0, push.StateDelivered)), phone, tablet), []string{"d2"}, 0, ""},
		{"all closed: a copy", with(rows(row("n", "d1", 0, push.StateDelivered)), phone), nil, push.Duplicate, ""},
		{"handed over to a retry: the retry's, not ours", with(rows(row("n", "d1", 0, push.StateRetrying)), phone), nil, push.Duplicate, ""},
		{"a device registered later gets no part of a redelivery", with(rows(row("n", "d1", 0, push.StateDelivered)), phone, late), nil, push.Duplicate, ""},
		{"a device registered later is fine while nobody has a row", with(nil, phone, late), []string{"d1", "d3"}, 0, ""},
		{"a retry goes to the device it names", with(retryOf("d1"), phone, tablet), []string{"d1"}, 0, ""},
		{"a retry that claimed a device which then failed: that is said again above the claim", with(func(it *pipeline.Item) {
			it.Attempt, it.Hops, it.Devices = 1, 1, []string{"d1"}
			it.History = &push.History{Rows: []push.Row{row("n", "d1", 0, push.StateFailed), row("n", "d1", 1, push.StateHeld)}}
		}, phone), []string{"-d1"}, 0, ""},
		{"a retry whose device is gone", with(retryOf("d1"), tablet), []string{"-d1"}, 0, ""},
		{"the one device that the message names", with(func(it *pipeline.Item) {
			it.Device = push.Target{Platform: push.FCM, Token: "zz"}
		}, phone), []string{push.DeviceHash(push.FCM, "zz")}, 0, ""},
	} {
		t.Run(tt.why, func(t *testing.T) {
			b := &pipeline.Batch{Items: []pipeline.Item{item("n", tt.edit)}}
			if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			it := &b.Items[0]
			var got []string
			for _, d := range it.Deliveries {
				name := d.Device.Hash
				if d.Verdict == push.Suppressed && d.Reason == push.TokenGone || d.Verdict == push.Failed {
					name = "-" + name
				} else if !d.Route.Platform.Known() || d.Route.App != "shop" || d.Item != it {
					t.Errorf("delivery with route %v of device %v", d.Route, d.Device.Hash)
				}
				got = append(got, name)
			}
			if !slices.Equal(got, tt.want) || it.Verdict != tt.end || it.Reason != tt.reason {
				t.Errorf("got %v, %v %q; want %v, %v %q", got, it.Verdict, it.Reason, tt.want, tt.end, tt.reason)
			}
		})
	}
	b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
		it.Device = push.Target{Platform: push.APNS, Token: "aa"}
	})}}
	if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r := b.Items[0].Deliveries[0].Route; r.Environment != push.Production {
		t.Errorf("APNs target without an environment: got %q", r.Environment)
	}
}
