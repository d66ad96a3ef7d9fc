package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// What is kept about devices outlives their registrations: a command that is repeated, when their
// tombstones are there already, as it was interrupted or as a worker was just deciding, takes it
// away. A device that is somebody else's by then keeps it.
func TestErasedAgain(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + limited })
	f.startRegistry()
	add := func(user, token string) string {
		if exit, _, stderr := f.run(token, "devices", "add", "--user", user, "--app", "shop", "--platform", "fcm", "--token-file", "-"); exit != exitDone {
			t.Fatal(stderr)
		}
		hash := push.DeviceHash(push.FCM, token)
		f.until([]string{hash}, "devices", "get", user)
		return hash
	}
	const user = "zoe"
	own, sold := add(user, "token-of:own"), add(user, "token-of:sold")
	f.erase(user, exitDone, "--yes", "--wait", "1m")
	add("max", "token-of:sold")
	// Whose a token is stands in another shard than the user, which may be behind.
	for !slices.ContainsFunc(names(f.redis, sold), func(name string) bool { return strings.HasPrefix(name, "t:") }) {
		if f.deadline.Before(time.Now()) {
			t.Fatalf("of the token that is somebody else's there is %q", names(f.redis, sold))
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.spend(own, "n3", "chat")
	f.spend(sold, "n4", "chat")
	v := f.erase(user, exitDone, "--yes", "--wait", "1m")
	if v.Found.Limiters != 1 || v.Left.Limiters != 0 {
		t.Errorf("found %+v, left %+v", v.Found, v.Left)
	}
	if left := names(f.redis, own); len(left) != 0 {
		t.Errorf("Redis still has of the device %q", left)
	}
	if left := names(f.redis, sold); !strings.Contains(strings.Join(left, " "), "l:") {
		t.Errorf("Redis has of the device that is somebody else's %q", left)
	}
}
