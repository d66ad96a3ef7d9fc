package crowd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// TestRecordsMeetTheirFate holds what the crowd says of its records against
// the decoder and its users' kinds.
func TestRecordsMeetTheirFate(t *testing.T) {
	o := crowd.Default("shop", 20_000)
	o.Soon, o.Within = 0.02, 5*time.Second
	c, err := crowd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g, seen, fates := c.Records(), map[string]bool{}, [crowd.Fates]int{}
	for range 20_000 {
		rec := g.Next(time.Now())
		fates[rec.Fate]++
		var m push.Message
		defect := decode.Message(rec.Value, &m)
		usable := rec.Value != nil && defect == nil && m.App == "shop"
		if usable == (rec.Fate == crowd.DeadLetters) {
			t.Fatalf("fate %v, decoder says %v of %s", rec.Fate, defect, rec.Value)
		}
		if rec.Fate == crowd.DeadLetters {
			continue
		}
		if seen[rec.ID] != (rec.Fate == crowd.IsCopy) {
			t.Fatalf("id %s: seen before %v, fate %v", rec.ID, seen[rec.ID], rec.Fate)
		}
		seen[rec.ID] = true
		u := c.User(rec.User)
		if m.UserID != u.ID || string(rec.Key) != u.ID {
			t.Fatalf("record of user %s has key %s and user %s", u.ID, rec.Key, m.UserID)
		}
		if v, _ := (&push.User{Preferences: u.Preferences}).Verdict(&m, &push.Consent{}); (v == push.Suppressed) != (u.Kind == crowd.OptedOut) {
			t.Fatalf("a message for a user of kind %v is %v", u.Kind, v)
		}
		if expired := m.ExpiresAt.Before(time.Now()); expired && rec.Fate != crowd.Expires {
			t.Fatalf("expired record has fate %v", rec.Fate)
		}
		// The text has whole seconds.
		if soon := time.Until(m.ExpiresAt); (rec.Fate == crowd.MayExpire) != (soon > 3*time.Second && soon <= 5*time.Second) {
			t.Fatalf("a record that expires in %v has fate %v", soon, rec.Fate)
		}
	}
	for f, n := range fates {
		if n == 0 {
			t.Errorf("no record with fate %v", crowd.Fate(f))
		}
	}
}

// TestSameSeedSameCrowd: the users do not depend on who asks, or when.
func TestSameSeedSameCrowd(t *testing.T) {
	a, _ := crowd.New(crowd.Default("shop", 5000))
	b, _ := crowd.New(crowd.Default("shop", 5000))
	kinds := map[crowd.Kind]int{}
	for i := range a.Users {
		x, _ := json.Marshal(a.User(i))
		y, _ := json.Marshal(b.User(i))
		if string(x) != string(y) {
			t.Fatalf("user %d differs", i)
		}
		kinds[a.User(i).Kind]++
	}
	if len(kinds) != 6 {
		t.Errorf("kinds %v, want all six", kinds)
	}
	for _, d := range a.User(0).Devices {
		if len(d.Hash) != 16 {
			t.Errorf("device hash %q", d.Hash)
		}
	}
}

// TestBadOptionsAreRefused names each.
func TestBadOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]crowd.Options{
		"no app":            {Users: 100},
		"too few users":     {App: "shop", Users: 3},
		"shares over one":   {App: "shop", Users: 100, OptedOut: 0.7, NoDevice: 0.7},
		"soon is now":       {App: "shop", Users: 100, Soon: 0.1},
		"wide, and never":   {App: "shop", Users: 100, Wide: 5},
		"nobody is wide":    {App: "shop", Users: 100, Wide: 5, WideEvery: 1, NoDevice: 1},
		"all records break": {App: "shop", Users: 100, Broken: 1},
	} {
		if _, err := crowd.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// With further apps every user is of one: its devices and all that it gets.
func TestUsersAreOfOneApp(t *testing.T) {
	o := crowd.Default("shop", 5000)
	o.Others = []string{"news"}
	c, err := crowd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g, records := c.Records(), map[string]int{}
	for range 5000 {
		rec := g.Next(time.Now())
		var m push.Message
		if rec.Fate == crowd.DeadLetters || decode.Message(rec.Value, &m) != nil {
			continue
		}
		records[m.App]++
		if m.App != c.AppOf(rec.User) {
			t.Fatalf("user %d is of %s and gets something of %s", rec.User, c.AppOf(rec.User), m.App)
		}
		for _, d := range c.User(rec.User).Devices {
			if d.App != m.App {
				t.Fatalf("user %d is of %s and has a device of %s", rec.User, m.App, d.App)
			}
		}
	}
	if len(records) != 2 || records["shop"] < 2000 || records["news"] < 2000 {
		t.Errorf("records %v, want about as many of each app", records)
	}
}

// One user has as many devices as asked for, all different and alive, and gets
// one of so many records until its cap is reached; the others have as before.
func TestOneUserIsWide(t *testing.T) {
	o := crowd.Default("shop", 5000)
	plain, err := crowd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Wide, o.WideEvery = 400, 100
	c, err := crowd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	widest := -1
	for i := range o.Users {
		n := len(c.User(i).Devices)
		if n == 400 && widest < 0 && len(c.Targets(i).Live) == 400 {
			widest = i
		} else if n != len(plain.User(i).Devices) {
			t.Errorf("user %d has %d devices", i, n)
		}
	}
	if widest < 0 {
		t.Fatal("nobody has 400 devices that live")
	}
	hashes := map[string]bool{}
	for _, d := range c.User(widest).Devices {
		hashes[d.Hash] = true
	}
	if len(hashes) != 400 {
		t.Errorf("%d different devices of 400", len(hashes))
	}
	g, got := c.Records(), 0
	for i := 1; i <= 4000; i++ {
		rec := g.Next(time.Now())
		switch turn := i%100 == 50 && i < 2000; { // 20 of them are its cap
		case turn && (rec.User != widest || rec.Fate != crowd.Reaches):
			t.Errorf("record %d is for user %d and %v", i, rec.User, rec.Fate)
		case turn:
			got++
		case rec.User == widest && rec.Fate != crowd.IsCopy:
			t.Errorf("record %d is for the widest user", i)
		}
	}
	if got != o.Cap {
		t.Errorf("the widest user got %d, want %d", got, o.Cap)
	}
}

// An id says when it was made, to the millisecond, and no two are the same.
func TestMint(t *testing.T) {
	seen := map[string]bool{}
	for _, at := range []time.Time{time.UnixMilli(0), time.UnixMilli(1_790_000_000_123), time.UnixMilli(1<<48 - 1)} {
		for range 1000 {
			id := crowd.Mint(at)
			var ms int64
			if _, err := fmt.Sscanf(strings.ReplaceAll(id[:13], "-", ""), "%x", &ms); err != nil || ms != at.UnixMilli() {
				t.Fatalf("%s is of %d, want %d (%v)", id, ms, at.UnixMilli(), err)
			}
			if u, err := uuid.Parse(id); err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 || seen[id] {
				t.Fatalf("%s: version %d, variant %v, seen %v (%v)", id, u.Version(), u.Variant(), seen[id], err)
			}
			seen[id] = true
		}
	}
}
