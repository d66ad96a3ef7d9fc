package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

func goldenSegments(t *testing.T, at time.Time) *segments.Set {
	t.Helper()
	var b segments.Builder
	for _, err := range []error{b.AddGroup("g", true, segments.ByRecord), b.AddUsers("g", "a", segments.UsersOf(1, 2))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build(7, at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Scripts depend on the keys, so a change here breaks them.
func TestJSONKeysAreStable(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC)
	committed, lag := int64(1), int64(2)
	topics, _ := explainTopics([]kafka.TopicState{{Topic: kafka.UsersTopic, State: kafka.TopicExists}}, "kept", kafka.EnsureOptions{})
	later := at.Add(time.Hour)
	one := dlq.Letter{Place: "t.dlq/1/2", Time: at, Lane: "l", ID: "n", App: "shop", Type: "default", Reason: "retries_used_up", Detail: "UNAVAILABLE", Providers: []string{"fcm"}, Attempts: 3, Hops: 1, Redrives: 2,
		Devices: []string{"h"}, Origin: "t/0/5", FirstSeen: &at, ExpiresAt: &later, Mark: &dlq.Mark{What: kafka.Redriven, At: at, By: "me"}}
	secret := `{"id": "n"}`
	revealed := one
	revealed.Value = &secret
	golden := goldenSegments(t, at)
	sum := golden.Checksum().String()
	diffed, _ := explainSegmentsDiff(golden, golden)
	const row = `"place":"t.dlq/1/2","time":"2026-11-21T08:30:00Z","lane":"l","id":"n","app":"shop","sender":"","type":"default","reason":"retries_used_up","detail":"UNAVAILABLE","providers":["fcm"],` +
		`"attempts":3,"hops":1,"redrives":2,"devices":["h"],"origin":"t/0/5","first_seen":"2026-11-21T08:30:00Z","expires_at":"2026-11-21T09:30:00Z","expired":false,` +
		`"mark":{"what":"redriven","at":"2026-11-21T08:30:00Z","by":"me"},"problem":""`
	for name, tt := range map[string]struct {
		answer terminal.Answer
		want   string
	}{
		"topics ensure": {topics, `[{"topic":"push.users","state":"exists","differences":["kept"]}]`},
		"lag": {explainLag([]lagRow{{Lane: "l", Group: "g", Topic: "t", Committed: &committed, End: 3, Lag: &lag}, {Topic: "t", Partition: 1}}),
			`[{"lane":"l","group":"g","topic":"t","partition":0,"committed":1,"end":3,"lag":2},{"lane":"","group":"","topic":"t","partition":1,"committed":null,"end":0,"lag":null}]`},
		"devices get": {explainDevices("u", &users.Stored{User: push.User{Devices: []push.Device{{Platform: push.APNS, Environment: push.Sandbox, App: "shop", Token: "SECRET", Hash: "h", Locale: "nl", RegisteredAt: at}}}, Dropped: 3, DroppedUpTo: at}),
			`{"user_id":"u","devices":[{"hash":"h","platform":"apns","environment":"sandbox","app":"shop","locale":"nl","app_version":"","registered_at":"2026-11-21T08:30:00Z"}],"dropped":3,"dropped_up_to":"2026-11-21T08:30:00Z","unreadable":false}`},
		"devices get, none": {explainDevices("u", &users.Stored{}), `{"user_id":"u","devices":[],"dropped":0,"unreadable":false}`},
		"devices import":    {terminal.Answer{Value: importAnswer{Read: 3, Registered: 2, Refused: 1, Rules: map[string]int{"r": 1}, StoppedAt: 4}}, `{"read":3,"registered":2,"refused":1,"rules":{"r":1},"stopped_at_line":4}`},
		"users quarantine ls": {explainQuarantine(map[string]users.Quarantined{"u/prefs": {User: "u", Reason: record.BrokenRule, Partition: 1, Offset: 2, Stands: true, AtMS: at.UnixMilli()}}, map[string]bool{"u/prefs": true}),
			`[{"user_id":"u","part":"preferences","device":"","reason":"broken_rule","place":"push.users/1/2","stands":true,"at":"2026-11-21T08:30:00Z"}]`},
		"users quarantine ls, none": {explainQuarantine(nil, nil), `[]`},
		"users erase": {explainErased(&eraseAnswer{UserID: "u", UserHash: "ff", Found: eraseCounts{Devices: 1, Tokens: 1}, Tombstones: 1, Applied: true, Remains: []remaining{{"w", "x", "y"}}}, 0),
			`{"user_id":"u","user_hash":"ff","dry_run":false,"found":{"devices":1,"preferences":0,"profile":0,"personal_limits":0,"other_parts":0,"user_record":0,"token_index_entries":1,"limiter_states":0,"collapse_keys":0,"device_limit_rows":0,"subscriptions":0,"inbox_entries":0,"reports":0,"audiences":0,"journal_entries":0},` +
				`"tombstones":1,"applied":true,"left":{"devices":0,"preferences":0,"profile":0,"personal_limits":0,"other_parts":0,"user_record":0,"token_index_entries":0,"limiter_states":0,"collapse_keys":0,"device_limit_rows":0,"subscriptions":0,"inbox_entries":0,"reports":0,"audiences":0,"journal_entries":0},` +
				`"remains":[{"where":"w","what":"x","until":"y"}]}`},
		"prefs": {explainPrefs("u", push.Preferences{Types: []string{"promo"}, Quiet: []push.QuietHours{{From: 22 * 60, To: 7 * 60, Days: 3}}}),
			`{"user_id":"u","opt_out_all":false,"opt_out_channels":[],"opt_out_types":["promo"],"blocked":false,"opt_out_senders":[],"opt_in_types":[],` +
				`"quiet_hours":[{"from":"22:00","to":"07:00","days":["mon","sun"],"types":[]}]}`},
		"prefs limits":       {explainLimits("u", []push.PersonalLimit{{Name: "promo", Max: 2}}), `{"user_id":"u","limits":{"promo":2}}`},
		"prefs limits, none": {explainLimits("u", nil), `{"user_id":"u","limits":{}}`},
		"profile, nothing": {explainProfile("u", push.Profile{}, time.UTC, quiet.DefaultClock),
			`{"user_id":"u","locale":"","time_zone":"","country":"","user_number":null,"last_activity":null,"clock":"UTC","clock_from":"the default zone"}`},
		"profile": {explainProfile("u", push.Profile{Locale: "nl", Zone: "Europe/Brussels", Country: "BE", HasNumber: true, LastActivity: at}, time.UTC, quiet.UsersClock),
			`{"user_id":"u","locale":"nl","time_zone":"Europe/Brussels","country":"BE","user_number":0,"last_activity":"2026-11-21T08:30:00Z","clock":"UTC","clock_from":"the user's zone"}`},
		"send": {terminal.Answer{Value: sendAnswer{Lane: "l", Topic: "t", Produced: 1, Notifications: []sentRow{{ID: "n", Outcome: "DELIVERED"}}}},
			`{"lane":"l","topic":"t","produced":1,"refused":0,"notifications":[{"id":"n","outcome":"DELIVERED"}]}`},
		"load": {terminal.Answer{Value: loadAnswer{Topic: "t", Produced: 10, Seconds: 1, Rate: 10, Wanted: 10, AckP50: 1.5, AckP99: 2.5, Fates: map[string]int{"reaches": 10}}},
			`{"topic":"t","produced":10,"seconds":1,"rate":10,"wanted_rate":10,"ack_p50_ms":1.5,"ack_p99_ms":2.5,"fates":{"reaches":10}}`},
		"status": {showNotification(explain.Of("n", []push.Row{{ID: "n", Device: "d", Step: 1, State: push.StateFailed, At: at, Platform: push.FCM, ProviderID: "p", Reason: "NOT_FOUND", UserHash: 255}}, explain.Times{Kept: time.Hour, Delay: time.Hour}, at)),
			`{"id":"n","outcome":"FAILED","meaning":"it cannot be delivered to any device","devices":[{"device":"d","provider":"fcm","state":"FAILED","since":"2026-11-21T08:30:00Z","step":1,"meaning":"NOT_FOUND, Google: there is no such project"}],` +
				`"states":[{"at":"2026-11-21T08:30:00Z","step":1,"state":"FAILED","device":"d","provider":"fcm","provider_id":"p","reason":"NOT_FOUND","meaning":"Google: there is no such project","user_hash":"ff"}]}`},
		"events stats": {(&eventStatsFlags{eventFilter: eventFilter{since: moment{Time: at}}, by: []string{"lane", "state"}}).explain(map[eventSum]int64{{Lane: "l", State: "FAILED"}: 3}),
			`{"since":"2026-11-21T08:30:00Z","by":["lane","state"],"total":3,"counts":[{"lane":"l","state":"FAILED","n":3,"share":1}]}`},
		"dlq ls":           {explainLetters([]dlq.Letter{one}, 0, false), `[{` + row + `}]`},
		"dlq ls, revealed": {explainLetters([]dlq.Letter{revealed}, 0, true), `[{` + row + `,"value":"{\"id\": \"n\"}"}]`},
		"dlq ls, none":     {explainLetters([]dlq.Letter{}, 0, false), `[]`},
		"dlq show": {terminal.Answer{Value: []letterView{viewOf(dlq.View{Letter: one, Contents: dlq.Contents{StatusID: "n", Key: "u", Headers: []dlq.Field{}, Bytes: 54, Fields: []dlq.Field{{Name: "title", Value: "<6 characters>"}}}})}}, `[{` + row + `,"meaning":"the provider could not take it and all retries were used; redrive it when the provider has recovered; the last answer was UNAVAILABLE (Google: the service was not available)",` +
			`"status_id":"n","key":"u","headers":[],"bytes":54,"fields":[{"name":"title","value":"<6 characters>"}]}]`},
		"dlq stats": {explainStats(dlq.Stats{Records: 3, Open: 2, Expired: 1, By: map[string][]dlq.Count{"app": {{Value: "shop", Records: 3, Open: 2, Expired: 1}}, "day": {}}}),
			`{"records":3,"open":2,"expired":1,"by":{"app":[{"value":"shop","records":3,"open":2,"expired":1}],"day":[]}}`},
		"dlq redrive": {explainRedriven(dlq.Redriven{DryRun: true, Matched: 3, Redriven: 1, Skipped: map[string]int{dlq.SkipExpired: 2}, Topics: []string{"t.retry.30s"}, Delay: 30, Letters: []dlq.Letter{}}, 30*time.Second),
			`{"dry_run":true,"matched":3,"redriven":1,"skipped":{"expired":2},"topics":["t.retry.30s"],"delay_seconds":30,"letters":[]}`},
		"webhooks redeliver": {explainRedelivered(dlq.Redelivered{DryRun: true, Matched: 3, Redelivered: 2, Skipped: map[string]int{dlq.SkipUntold: 1}, Senders: map[string]int{"orders": 2}, Reasons: map[string]int{"refused": 2}, Rate: 7}),
			`{"dry_run":true,"matched":3,"redelivered":2,"skipped":{"sender_not_told":1},"senders":{"orders":2},"reasons":{"refused":2}}`},
		"dlq dismiss": {terminal.Answer{Value: dlq.Dismissed{DryRun: true, Dismissed: 2}}, `{"dry_run":true,"dismissed":2}`},
		"dlq purge": {explainPurged(dlq.Purged{Records: 2, Open: 1, Partitions: []dlq.PurgedPartition{{Topic: "t.dlq", Partition: 1, From: 3, To: 5, Records: 2, Open: 1}}}),
			`{"dry_run":false,"records":2,"open":1,"partitions":[{"topic":"t.dlq","partition":1,"from":3,"to":5,"records":2,"open":1}]}`},
		"replay": {explainReplayed(dlq.Replayed{DryRun: true, Read: 9, Matched: 3, Replayed: 1, Skipped: map[string]int{dlq.SkipExpired: 2}, Topics: []string{"t.retry.30s"}, Delay: 30,
			Shed: []dlq.ShedRecord{{Place: "t/1/2", Time: at, ID: "n", App: "shop", Priority: "low", Reason: "depth:class=low depth=3 threshold=2", ExpiresAt: &at}}}, 30*time.Second),
			`{"dry_run":true,"read":9,"matched":3,"replayed":1,"skipped":{"expired":2},"topics":["t.retry.30s"],"delay_seconds":30,"shed":[{"place":"t/1/2","time":"2026-11-21T08:30:00Z","id":"n","app":"shop","priority":"low","reason":"depth:class=low depth=3 threshold=2","expires_at":"2026-11-21T08:30:00Z"}]}`},
		"segments build": {explainBuild("x.seg", golden, map[string]uint64{"g/a": 3}, 1500*time.Millisecond),
			`{"file":"x.seg","version":7,"checksum":"` + sum + `","bytes":295,"seconds":1.5,"segments":[{"group":"g","segment":"a","read":3,"users":2,"bytes":20}]}`},
		"segments inspect": {explainInspect("x.seg", golden, 1500*time.Millisecond),
			`{"source":"x.seg","checksum":"` + sum + `","bytes":295,"version":7,"built":"2026-11-21T08:30:00Z","groups":[{"name":"g","exclusive":true,"numbers":"record","segments":[{"name":"a","users":2,"bytes":20,"sha256":"` +
				golden.Manifest().Groups[0].Segments[0].SHA256 + `"}]}],"memory":14,"seconds":1.5}`},
		"segments diff": {diffed,
			`{"old_version":7,"new_version":7,"same":true,"groups":[{"group":"g","segments":[{"segment":"a","before":2,"after":2,"came":0,"went":0}],"moves":[],"properties":[]}]}`},
		"segments push":   {explainPush(pushAnswer{Destination: "d", Version: 7, Checksum: "c", Bytes: 1, Changed: true}), `{"destination":"d","version":7,"checksum":"c","bytes":1,"before":null,"changed":true}`},
		"segments lookup": {explainLookup([]lookupRow{{"42", "g", []string{}}}, 1), `[{"user":"42","group":"g","segments":[]}]`},
		"dedupe fill": {explainFill(dedupe.Fill{IDs: 5, Capacity: 10, Ratio: 0.5}, dedupe.Options{Window: 6 * time.Hour, Capacity: 10_000, ErrorRate: 0.001}, at),
			`{"windows":[{"from":"2026-11-21T06:00:00Z","to":"2026-11-21T12:00:00Z","ids":5,"capacity":10,"fill":0.5,"needed":0,"bytes":34047}]}`},
	} {
		var indented, got bytes.Buffer
		if err := terminal.WriteJSON(&indented, tt.answer.Value, indent); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&got, indented.Bytes()); err != nil {
			t.Fatal(err)
		}
		if got.String() != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got.String(), tt.want)
		}
	}
}
