package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/limits/senders"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
)

// limited adds rules to the fleet's configuration.
const limited = `
apps:
  - name: shop
    fcm: {project: shop, service_account_file: none}
lanes:
  - {name: critical, topic: push.critical, greatest_age: 10m, critical_senders: [otp]}
  - {name: transactional, topic: push.transactional}
limits:
  state_version: 2
  rules:
    - {name: hour, per: user, max: 2, window: 1h, over: defer}
    - {name: news-a-day, per: user_type, max: 1, calendar: day, algorithm: fixed_window, types: [news]}
    - {name: device-a-day, per: device_type, max: 5, calendar: day, algorithm: event_set}
preferences: {default_zone: Asia/Kathmandu}
`

// How limits stand, what they would say, and how they begin anew: without spending.
func TestLimits(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + limited })
	f.startRegistry()
	exit, _, stderr := f.run("a-token:of-a_device\n", "devices", "add", "--user", "ada", "--app", "shop", "--platform", "fcm", "--token-file", "-")
	if exit != exitDone {
		t.Fatal(stderr)
	}
	f.until([]string{"fcm"}, "devices", "get", "ada")
	f.spend("ada", "n1", "news")
	f.spend("ada", "n2", "chat")

	says := func(want string, exit int, args ...string) {
		t.Helper()
		got, stdout, stderr := f.run("", append(args, "-o", "json")...)
		if text := strings.Join(strings.Fields(stdout), ""); got != exit || !strings.Contains(text, want) {
			t.Errorf("%v: exit status %d, %s%s, want %d, %s", args, got, text, stderr, exit, want)
		}
	}
	for range 2 { // asking changes nothing
		says(`"dimension":"user","rule":"hour","used":2,"limit":2,"room":false`, exitDone, "limits", "get", "ada")
		says(`"dimension":"user_type","rule":"news-a-day","used":1,"limit":1,"room":false`, exitDone, "limits", "get", "ada", "--type", "news")
		says(`"sent":false,"state":"HELD","reason":"limit_waits:hour"`, exitFailed, "limits", "check", "ada", "--lane", "transactional")
		says(`"sent":false,"state":"SUPPRESSED","reason":"limited:hour"`, exitFailed, "limits", "check", "ada") // 10 minutes are not enough
		says(`"sent":false,"state":"SUPPRESSED","reason":"limited:news-a-day"`, exitFailed, "limits", "check", "ada", "--type", "news")
		says(`"sent":true,"state":"","reason":"","words":"","until":null,"current":0,"limit":0,"reset_at":null,"devices":1,"devices_refused":0`, exitDone, "limits", "check", "ada", "--priority", "critical", "--sender", "otp")
		says(`"sent":false,"state":"SUPPRESSED","reason":"limited:hour"`, exitFailed, "limits", "check", "ada", "--priority", "critical") // not every sender may say so
		says(`"reason":"no_device"`, exitFailed, "limits", "check", "bob")
	}
	f.ok("prefs", "set", "ada", "--opt-out-all")
	f.until([]string{"yes"}, "prefs", "get", "ada")
	says(`"reason":"opted_out_all"`, exitFailed, "limits", "check", "ada")
	says(`{"user_id":"ada","reset":true}`, exitDone, "limits", "reset", "ada")
	says(`{"user_id":"ada","reset":false}`, exitDone, "limits", "reset", "ada")
	says(`"rule":"hour","used":0,"limit":2,"room":true,"reset_at":null`, exitDone, "limits", "get", "ada")

	for _, tt := range []struct{ flag, value, want string }{
		{"--lane", "nowhere", "--lane"}, {"--priority", "urgent", "--priority"}, {"--app", "nowhere", "--app"},
	} {
		if exit, _, stderr := f.run("", "limits", "check", "ada", tt.flag, tt.value); exit != exitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s %s: exit status %d: %s", tt.flag, tt.value, exit, stderr)
		}
	}
}

// Limits of senders are asked without taking a token: after the rules of recipients, and
// also where there are none, or they are bypassed.
func TestLimitsCheckLooksAtSenders(t *testing.T) {
	f := startFleet(t, true)
	const own = "  senders: [{name: slow, algorithm: token_bucket, max: 60, window: 1h, burst: 1, wait: 1h, senders: [ads, otp]}]\n"
	with := strings.Replace(limited, "limits:\n", "limits:\n"+own, 1)
	f.configure(func(text string) string { return text + with })
	f.startRegistry()
	exit, _, stderr := f.run("a-token:of-a_device\n", "devices", "add", "--user", "ada", "--app", "shop", "--platform", "fcm", "--token-file", "-")
	if exit != exitDone {
		t.Fatal(stderr)
	}
	f.until([]string{"fcm"}, "devices", "get", "ada")
	says := func(want string, exit int, args ...string) {
		t.Helper()
		got, stdout, stderr := f.run("", append([]string{"limits", "check", "ada", "--lane", "transactional", "-o", "json"}, args...)...)
		if text := strings.Join(strings.Fields(stdout), ""); got != exit || !strings.Contains(text, want) {
			t.Errorf("%v: exit status %d, %s%s, want %d, %s", args, got, text, stderr, exit, want)
		}
	}
	const waits = `"dimension":"sender","rule":"slow","current":1,"limit":1`
	for range 3 {
		says(`"sent":true`, exitDone, "--sender", "ads")
	}
	f.takeToken("ads")
	for range 3 {
		says(waits, exitFailed, "--sender", "ads")
		says(`"reason":"limit_waits:slow"`, exitFailed, "--sender", "ads")
		says(`"sent":true`, exitDone, "--sender", "orders")
		says(`"sent":true`, exitDone)
	}
	f.takeToken("otp")
	says(waits, exitFailed, "--sender", "otp", "--lane", "critical", "--priority", "critical")
	f.spend("ada", "n1", "chat")
	f.spend("ada", "n2", "chat")
	says(`"rule":"hour"`, exitFailed, "--sender", "ads") // the user's come first
	f.configure(func(text string) string { return text[:strings.Index(text, "  rules:")] })
	says(waits, exitFailed, "--sender", "ads")
}

// takeToken takes a token of a sender, as a worker would.
func (f *fleet) takeToken(sender string) {
	f.t.Helper()
	c, err := configs.Load(f.config, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	o := shards.DefaultOptions()
	o.Addrs = []string{f.redis.Addr()}
	client, err := shards.Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.Close()
	l, err := senders.New(client, wiring.SenderRules(c), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r := &limits.Request{ID: "n", Sender: sender, Priority: 3, At: time.Now()}
	if err := l.Decide(f.t.Context(), []*limits.Request{r}); err != nil || !r.Allowed {
		f.t.Fatalf("%+v, %v", r.Decision, err)
	}
}

// In Cassandra too, what rules of devices count is shown, begins anew and is erased:
// that of the devices which are the user's.
func TestLimitsOfDevicesInCassandra(t *testing.T) {
	server := localtest.Require(t)
	f := startFleet(t, true)
	f.configure(func(text string) string {
		text += strings.Replace(limited, "state_version: 2", "devices: {backend: cassandra}\n  state_version: 2", 1)
		return text + fmt.Sprintf("cassandra: {hosts: [%q], keyspace: pushctl_%d}\n", server.Cassandra, time.Now().UnixNano())
	})
	f.ok("schema", "apply")
	f.startRegistry()
	const token = "a-token:of-a_device"
	exit, _, stderr := f.run(token+"\n", "devices", "add", "--user", "ada", "--app", "shop", "--platform", "fcm", "--token-file", "-")
	if exit != exitDone {
		t.Fatal(stderr)
	}
	f.until([]string{"fcm"}, "devices", "get", "ada")
	phone, lost := push.DeviceHash(push.FCM, token), push.DeviceHash(push.FCM, "earlier")

	says := func(want string, args ...string) {
		t.Helper()
		exit, stdout, stderr := f.run("", append(args, "-o", "json")...)
		if text := strings.Join(strings.Fields(stdout), ""); exit != exitDone || !strings.Contains(text, want) {
			t.Errorf("%v: exit status %d, %s%s, want %s", args, exit, text, stderr, want)
		}
	}
	f.spend("ada", "n1", "news", phone, lost)
	says(`"rule":"device-a-day","device":"`+phone+`","used":1`, "limits", "get", "ada", "--type", "news")
	says(`{"user_id":"ada","reset":true,"device_rows":1}`, "limits", "reset", "ada")
	says(`"rule":"device-a-day","device":"`+phone+`","used":0`, "limits", "get", "ada", "--type", "news")
	says(`{"user_id":"ada","reset":false,"device_rows":0}`, "limits", "reset", "ada")

	f.spend("ada", "n2", "news", phone)
	f.spend(phone, "n3", "news", phone) // that named no user
	says(`{"user_id":"`+phone+`","reset":true,"device_rows":1}`, "limits", "reset", phone)
	f.spend(phone, "n3", "news", phone)
	if v := f.erase("ada", exitDone); v.Found.DeviceRows != 2 || v.Left.DeviceRows != 2 {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found.DeviceRows != 2 || v.Left.DeviceRows != 0 {
		t.Errorf("erased: %+v", v)
	}

	// What a user had on a device is the user's, also when somebody else has it by now.
	register := func(user string) {
		t.Helper()
		if exit, _, stderr := f.run(token+"\n", "devices", "add", "--user", user, "--app", "shop", "--platform", "fcm", "--token-file", "-"); exit != exitDone {
			t.Fatal(stderr)
		}
		f.until([]string{"fcm"}, "devices", "get", user)
	}
	register("eve")
	f.spend("eve", "n4", "news", phone)
	register("max")
	f.spend("max", "n5", "news", phone)
	if v := f.erase("eve", exitDone, "--yes", "--wait", "1m"); v.Found.DeviceRows != 1 || v.Left.DeviceRows != 0 {
		t.Errorf("erased who had the device before: %+v", v)
	}
	says(`"rule":"device-a-day","device":"`+phone+`","used":1`, "limits", "get", "max", "--type", "news")
}

// spend has the limits allow a notification, as a worker would.
func (f *fleet) spend(user, id, messageType string, devices ...string) {
	f.t.Helper()
	c, err := configs.Load(f.config, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	o := shards.DefaultOptions()
	o.Addrs = []string{f.redis.Addr()}
	client, err := shards.Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.Close()
	servers, err := wiring.Cassandra(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	log, done, err := wiring.DeviceLog(f.t.Context(), c, servers)
	if err != nil {
		f.t.Fatal(err)
	}
	defer done()
	limiter, err := limits.New(client, wiring.Rules(c), wiring.LimitsOptions(c, log)...)
	if err != nil {
		f.t.Fatal(err)
	}
	zone, err := time.LoadLocation(c.Preferences.DefaultZone)
	if err != nil {
		f.t.Fatal(err)
	}
	r := &limits.Request{Owner: user, ID: id, Type: messageType, App: "shop", Channel: "push", Priority: 3, Zone: zone, At: time.Now()}
	for _, name := range devices {
		r.Devices = append(r.Devices, limits.Device{Hash: limits.DeviceHash(name)})
	}
	if err := limiter.Decide(f.t.Context(), []*limits.Request{r}); err != nil || !r.Allowed {
		f.t.Fatalf("%s: %+v, %v", id, r.Decision, err)
	}
}
