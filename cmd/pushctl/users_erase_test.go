package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// erase runs the command, and returns its answer.
func (f *fleet) erase(user string, exit int, flags ...string) (v eraseAnswer) {
	f.t.Helper()
	got, stdout, stderr := f.run("", append([]string{"users", "erase", user, "-o", "json"}, flags...)...)
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || got != exit {
		f.t.Fatalf("users erase %q: exit status %d, want %d, %v: %s %s", user, got, exit, err, stdout, stderr)
	}
	return v
}

// configure changes the configuration file.
func (f *fleet) configure(change func(text string) string) {
	f.t.Helper()
	text, err := os.ReadFile(f.config)
	if err == nil {
		err = os.WriteFile(f.config, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// names says which key in Redis, or value, has one of these texts in it.
func names(redis *embedded.Redis, texts ...string) (found []string) {
	for _, key := range redis.Mini.Keys() {
		value, err := redis.Mini.Get(key)
		if err != nil {
			members, _ := redis.Mini.SMembers(key)
			value = strings.Join(members, "\n")
		}
		for _, text := range texts {
			if strings.Contains(key, text) || strings.Contains(value, text) {
				found = append(found, key)
			}
		}
	}
	return found
}

// latest is what compaction leaves of push.users in the end: the latest records by
// key, without tombstones. ended is where its partitions end. It reads over what is
// compacted meanwhile.
func (f *fleet) latest() (values map[string]string, ended kafka.Extent) {
	f.t.Helper()
	follower, err := kafka.NewFollower(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.UsersTopic, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer follower.Close()
	extent, err := follower.Extent(f.t.Context(), time.Time{}, time.Time{})
	if err != nil {
		f.t.Fatal(err)
	}
	values, ended = make(map[string]string), make(kafka.Extent)
	for p, r := range extent {
		ended[p] = kafka.Range{To: r.To}
	}
	err = follower.ReadExtent(f.t.Context(), extent, func(r kafka.Record) error {
		delete(values, string(r.Key))
		if r.Value != nil {
			values[string(r.Key)] = string(r.Value)
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return values, ended
}

// same reports whether nothing was appended to push.users since.
func (f *fleet) same(before kafka.Extent) bool {
	f.t.Helper()
	_, now := f.latest()
	return maps.Equal(now, before)
}

// A whole user: after erase nothing in Redis is the user's, the topic compacts to
// tombstones, and the user may come again.
func TestUsersErase(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + limited })
	f.startRegistry()
	add := func(user string, n int) (hash string) {
		t.Helper()
		token := fmt.Sprintf("token-%d-of:%s", n, user)
		exit, _, stderr := f.run(token, "devices", "add", "--user", user, "--app", "shop", "--platform", "fcm", "--token-file", "-")
		if exit != exitDone {
			t.Fatal(stderr)
		}
		return push.DeviceHash(push.FCM, token)
	}
	bob := add("bob", 1)
	f.until([]string{bob}, "devices", "get", "bob")
	f.spend("bob", "n1", "news")
	before := f.redis.Mini.Keys()

	const user = "zoe-to-be-erased"
	hashes := []string{add(user, 1), add(user, 2), add(user, 3)}
	f.until(hashes, "devices", "get", user)
	f.ok("prefs", "set", user, "--opt-out-type", "promo")
	f.ok("profile", "set", user, "--time-zone", "Europe/Paris", "--number", "270000123")
	f.ok("prefs", "limits", "set", user, "hour=5")
	f.spend(user, "n2", "chat")
	f.spend(hashes[0], "n3", "chat") // a notification that names the device
	if _, err := f.redis.Mini.ZAdd(shards.CollapseKey(shards.UserShard(user), user), 1, "shop order"); err != nil {
		t.Fatal(err)
	}
	there := f.redis.Mini.Keys()
	_, ended := f.latest()

	want := eraseCounts{Devices: 3, Preferences: 1, Profile: 1, Limits: 1, Record: 1, Tokens: 3, Limiters: 2, Collapse: 1}
	for _, flags := range [][]string{nil, {"--dry-run"}} {
		if v := f.erase(user, exitDone, flags...); !v.DryRun || v.Found != want || v.Tombstones != 0 || v.Applied {
			t.Errorf("%v: %+v", flags, v)
		}
	}
	if now := f.redis.Mini.Keys(); !slices.Equal(now, there) || !f.same(ended) {
		t.Errorf("a dry run changed something: %q", now)
	}
	if out := f.ok("users", "erase", user); !strings.Contains(out, "dry run") || !strings.Contains(out, "segments: the user's number, 270000123") ||
		!strings.Contains(out, fmt.Sprintf("its hash %x", push.UserHash(user))) || !strings.Contains(out, "720h0m0s after each was written (cassandra.ttl)") {
		t.Errorf("a dry run says %s", out)
	}

	v := f.erase(user, exitDone, "--yes")
	if v.DryRun || v.Found != want || v.Tombstones != 6 || !v.Applied || v.Left != (eraseCounts{}) || v.UserID != user || len(v.Remains) == 0 {
		t.Errorf("%+v", v)
	}
	if now := f.redis.Mini.Keys(); !slices.Equal(now, before) {
		t.Errorf("keys in Redis: %q, want %q", now, before)
	}
	if found := names(f.redis, append(hashes, user)...); len(found) > 0 {
		t.Errorf("keys in Redis that name the user: %q", found)
	}
	values, ended := f.latest()
	if len(values) != 1 || values[record.DeviceKey("bob", bob)] == "" {
		t.Errorf("push.users compacts to %q", values)
	}

	// Once more there is nothing to do.
	if v := f.erase(user, exitDone, "--yes"); v.Found != (eraseCounts{}) || v.Tombstones != 0 || !v.Applied || !f.same(ended) {
		t.Errorf("the second time: %+v", v)
	}
	if out := f.ok("users", "erase", user, "--yes"); !strings.Contains(out, "\nerased\n") {
		t.Errorf("it says %s", out)
	}
	add(user, 1)
	f.until([]string{hashes[0], "!" + hashes[1]}, "devices", "get", user)
	f.until([]string{"!promo"}, "prefs", "get", user)
	f.spend(user, "n2", "chat")
}

// Nobody applies the tombstones: the command says so, has written them, and ends the
// work when it is repeated.
func TestUsersEraseWithoutARegistry(t *testing.T) {
	f := startFleet(t, true)
	f.ok("prefs", "set", "zoe", "--opt-out-all")
	exit, stdout, stderr := f.run("", "users", "erase", "zoe", "--yes", "--wait", "50ms")
	if exit != exitFailed || !strings.Contains(stdout, "not erased yet") || !strings.Contains(stderr, "is `pushworker registry` running?") || strings.Contains(stderr, "zoe") {
		t.Errorf("exit status %d: %s %s", exit, stdout, stderr)
	}
	if v := f.erase("zoe", exitDone, "--yes", "--wait", "0"); v.Applied || v.Tombstones != 0 {
		t.Errorf("%+v", v)
	}
	if values, _ := f.latest(); len(values) != 0 {
		t.Errorf("push.users compacts to %q", values)
	}
	f.startRegistry()
	if v := f.erase("zoe", exitDone, "--yes"); !v.Applied || v.Left != (eraseCounts{}) {
		t.Errorf("%+v", v)
	}
}

// Ids that today's rules would refuse, and one of whom nobody has heard.
func TestUsersEraseHostileIDs(t *testing.T) {
	f := startFleet(t, true)
	f.startRegistry()
	w, err := kafka.NewWriter(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.WriterOptions{Topic: kafka.UsersTopic, PartitionKey: users.PartitionKey})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, user := range []string{"\xff\xfe{}\n", "*", "zoe/prefs", "--yes", strings.Repeat("z", 128)} {
		if err := w.Append(t.Context(), []kafka.Record{{Key: []byte(record.PreferencesKey(user)), Value: []byte(`{"opt_out_all":true}`)}}); err != nil {
			t.Fatal(err)
		}
		key := shards.UserKey(shards.UserShard(user), user)
		for !f.redis.Mini.Exists(key) {
			if time.Now().After(f.deadline) {
				t.Fatalf("%q is not in Redis", user)
			}
			time.Sleep(10 * time.Millisecond)
		}
		exit, stdout, stderr := f.run("", "users", "erase", "--yes", "--", user)
		if exit != exitDone || !strings.Contains(stdout, "\nerased\n") || f.redis.Mini.Exists(key) {
			t.Errorf("%q: exit status %d: %s %s", user, exit, stdout, stderr)
		}
	}
	_, ended := f.latest()
	if v := f.erase("nobody", exitDone, "--yes"); v.Found != (eraseCounts{}) || v.Tombstones != 0 || !v.Applied {
		t.Errorf("nobody: %+v", v)
	}
	if !f.same(ended) {
		t.Error("erasing nobody writes to push.users")
	}
	for _, args := range [][]string{{""}, {strings.Repeat("z", 129)}, {"zoe", "--yes", "--dry-run"}, {"zoe", "--wait", "-1s"}, {}, {"zoe", "uma"}} {
		if exit, _, stderr := f.run("", append([]string{"users", "erase"}, args...)...); exit != exitUsage {
			t.Errorf("%q: exit status %d: %s", args, exit, stderr)
		}
	}
}

// One user with 20,000 devices, of which the registry keeps 20 and is still
// removing the rest.
func TestUsersEraseManyDevices(t *testing.T) {
	const devices = 20_000
	f := startFleet(t, true)
	f.configure(func(text string) string { // the in-process Redis runs scripts slowly
		return strings.Replace(text, "redis: {", "redis: {read_timeout: 1m, ", 1)
	})
	var file strings.Builder
	file.WriteString("user_id,platform,token,app,registered_at\n")
	for i := range devices {
		fmt.Fprintf(&file, "zoe-of-many,fcm,token-%d,shop,%s\n", i, when)
	}
	if exit, _, stderr := f.run(file.String(), "devices", "import", "--format", "csv", "-"); exit != exitDone {
		t.Fatal(stderr)
	}
	f.startRegistry()
	v := f.erase("zoe-of-many", exitDone, "--yes", "--wait", "10m")
	if v.Found.Devices == 0 || v.Tombstones != v.Found.Devices || !v.Applied || v.Left != (eraseCounts{}) {
		t.Errorf("%+v", v)
	}
	if found := names(f.redis, "zoe-of-many"); len(found) > 0 {
		t.Errorf("%d keys in Redis name the user", len(found))
	}
	if values, _ := f.latest(); len(values) != 0 {
		t.Errorf("push.users compacts to %d records", len(values))
	}
}

// A long read shows its rate and share on a terminal, on a line that goes.
func TestErasingShowsItsReading(t *testing.T) {
	var shown bytes.Buffer
	p := &progress{w: &shown, terminal: true}
	told := p.readingUsers(time.Now().Add(-time.Hour))
	told(3_600_000, 0.25)
	p.end()
	want := "\r\x1b[Kpush.users: 25 % of the user's partition read, 3600000 records, "
	if text := shown.String(); !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "/s\r\x1b[K") {
		t.Errorf("shown %q", text)
	}
}
