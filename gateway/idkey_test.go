package gateway

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/push"
)

// The secrets of tests: one that signs, and two from which ids are derived.
var (
	signing = strings.Repeat("s", 32)
	idsOne  = strings.Repeat("i", 32)
	idsTwo  = strings.Repeat("j", 32)
)

// orders17 is the id of a message to u42 by an Idempotency-Key.
func orders17(ks idKeys, key string, now time.Time) string {
	return ks.derive("orders", "shop", owner{user: "u42"}, key, now)
}

// The values were reckoned with Python's hmac: what an id was derived to once it is for
// ever, or a repeat would be pushed twice.
func TestKeyedIDs(t *testing.T) {
	ids := signer(t, signing+"\nids 2025-01-01T00:00:00Z "+idsOne).ids
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for key, want := range map[string]string{
		"order-17":                             "k-FPJHdHv9nQ9RmI7-_AdAnooChBo-29r1",
		"0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21": "0199f3c2-7d1a-7d94-b0aa-b67081f6218c",
	} {
		got := orders17(ids, key, now)
		if got != want {
			t.Errorf("of %s is derived %s, want %s", key, got, want)
		}
		if orders17(nil, key, now) == got || orders17(signer(t, signing+"\nids 2025-01-01T00:00:00Z "+idsTwo).ids, key, now) == got {
			t.Errorf("of %s the secret does not matter", key)
		}
	}
	if id := orders17(ids, "order-17", now); !push.DerivedID(id) {
		t.Errorf("workers do not confirm %s", id)
	}
}

// Who has all but the secret cannot reckon an id, and a message that he sends under the
// one that he reckons is another one.
func TestAnIDCannotBeTaken(t *testing.T) {
	victim := func(w *world) string { return w.post(plain, "Idempotency-Key", "order-17").string("id") }
	thief := func(w *world) string {
		guess := orders17(nil, "order-17", time.Now())
		got := w.do(request{method: "POST", path: "/v1/messages", key: keySupport, body: `{"id":"` + guess + `",` + plain[1:]})
		return got.string("id")
	}
	open := newWorld(t)
	if thief(open) != victim(open) {
		t.Error("without a secret nothing could be taken, so this test shows nothing")
	}
	keyed := newWorld(t, func(o *Options) { o.Signer = signer(t, signing+"\nids 2025-01-01T00:00:00Z "+idsOne) })
	if a, b := thief(keyed), victim(keyed); a == b || a == "" || b == "" {
		t.Errorf("with a secret the thief has %s, and the victim %s", a, b)
	}
}

// Receipts' keys are exchanged, and no id changes.
func TestExchangedKeysLeaveIDs(t *testing.T) {
	line := "\nids 2025-01-01T00:00:00Z " + idsOne
	other := strings.Repeat("t", 32)
	first := ""
	for _, secret := range []string{signing + line, signing + strings.ReplaceAll(line, " ", "\t"), signing + "\n" + other + line, other + "\n" + signing + line, other + line + "\n", "\r\n" + other + "\r\n" + line + "\r\n" + signing} {
		id := orders17(signer(t, secret).ids, "order-17", time.Now())
		if first == "" {
			first = id
		}
		if id != first {
			t.Errorf("%q: the id becomes %s, and was %s", secret, id, first)
		}
	}
	if _, valid := signer(t, other+line).open("s", string(signer(t, idsOne).sign(nil, "s", &claim{id: "n", mode: AtLeastOnce, at: time.UnixMilli(1)}))); valid {
		t.Error("a key of ids signs receipts")
	}
}

// A key counts from its moment on. A repeat across it has the same id if the
// Idempotency-Key has a time, at whatever hour it comes; any other is another
// notification from then on, also that of the 503 before. Whoever repeats with the id
// that was named repeats the same notification.
func TestARepeatAcrossTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		old := newWorld(t) // a gateway whose file has no such line yet, or of the release before
		w := newWorld(t, func(o *Options) { o.Signer = signer(t, signing+"\nids "+from+" "+idsOne) })
		send := func(w *world, key string) string {
			t.Helper()
			got := w.post(plain, "Idempotency-Key", key)
			if got.status != 202 {
				t.Fatal(got.text)
			}
			return got.string("id")
		}
		minted, _ := newID(time.Now())
		before, timed := send(old, "order-17"), send(old, minted)
		if send(w, "order-17") != before || send(w, minted) != timed {
			t.Error("before the moment the line matters")
		}
		time.Sleep(time.Hour)
		if send(w, minted) != timed {
			t.Error("a key with a time from before the moment has another id behind it")
		}
		after := send(w, "order-17")
		if after == before {
			t.Error("behind the moment the secret does not matter")
		}
		if got := w.post(`{"id":"` + before + `",` + plain[1:]); got.string("id") != before {
			t.Errorf("the id that was named: %s", got.text)
		}
		fresh, _ := newID(time.Now())
		if send(w, fresh) == send(old, fresh) {
			t.Error("a key that was minted behind the moment is derived without the secret")
		}
		time.Sleep(1000 * time.Hour)
		if send(w, minted) != timed || send(w, "order-17") != after {
			t.Error("an id changes for no reason")
		}
	})
}

// Replicas agree, in whatever order their lines stand.
func TestKeysOfIDsInAnyOrder(t *testing.T) {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		hours := rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 1, 6, rapid.ID[int]).Draw(t, "hours")
		line := func(hour int) string {
			return "ids " + base.Add(time.Duration(hour)*time.Hour).Format(time.RFC3339) + " " + strings.Repeat(string(rune('a'+hour)), 32)
		}
		secret := func(order []int) string {
			lines := []string{signing}
			for _, hour := range order {
				lines = append(lines, line(hour))
			}
			return strings.Join(lines, "\n")
		}
		one, err := NewSigner(secret(hours))
		if err != nil {
			t.Fatal(err)
		}
		two, err := NewSigner(secret(rapid.Permutation(hours).Draw(t, "shuffled")))
		if err != nil {
			t.Fatal(err)
		}
		now := base.Add(time.Duration(rapid.IntRange(-60, 11*60).Draw(t, "minutes")) * time.Minute)
		got := orders17(one.ids, "order-17", now)
		if again := orders17(two.ids, "order-17", now); again != got {
			t.Fatalf("%s and %s", got, again)
		}
		latest := -1
		for _, hour := range hours {
			if !base.Add(time.Duration(hour) * time.Hour).After(now) {
				latest = max(latest, hour)
			}
		}
		var want idKeys
		if latest >= 0 {
			want = idKeys{{base, []byte(strings.Repeat(string(rune('a'+latest)), 32))}}
		}
		if orders17(want, "order-17", now) != got {
			t.Fatalf("at %v not the key of hour %d counts", now, latest)
		}
	})
}

// What is wrong with a line is said, and nothing of what stands there.
func TestLinesOfIDs(t *testing.T) {
	for _, tt := range []struct{ why, secret, says string }{
		{"no time", signing + "\nids hunter2" + idsOne, "line 2: want ids"},
		{"no key", signing + "\nids 2026-12-01T00:00:00Z", "line 2: want ids"},
		{"a time that is none", signing + "\n\nids hunter2 " + idsOne, "line 3: the second word"},
		{"a day", signing + "\nids 2026-12-01 " + idsOne, "line 2: the second word"},
		{"a short key", signing + "\nids 2026-12-01T00:00:00Z hunter2", "line 2: the key has 7"},
		{"one word more", signing + "\nids 2026-12-01T00:00:00Z " + idsOne + " hunter2", "line 2: want ids"},
		{"nothing that signs", "ids 2026-12-01T00:00:00Z " + idsOne, "line 1: the first line"},
		{"nothing that signs before it", "ids 2026-12-01T00:00:00Z " + idsOne + "\n" + signing, "line 1: the first line"},
		{"the same moment twice", signing + "\nids 2026-12-01T00:00:00Z " + idsOne + "\nids 2026-12-01T01:00:00+01:00 " + idsTwo, "line 3: two keys"},
	} {
		_, err := NewSigner(tt.secret)
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "iii") {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.says)
		}
	}
}

// Secrets of any bytes are taken or refused, and an error quotes no word of them that
// could be a key.
func FuzzSecret(f *testing.F) {
	f.Add(signing + "\nids 2026-12-01T00:00:00Z " + idsOne + "\n")
	f.Add("ids")
	f.Fuzz(func(t *testing.T, secret string) {
		s, err := NewSigner(secret)
		if err == nil {
			if len(s.keys) == 0 || orders17(s.ids, "k", time.Now()) == "" {
				t.Error("it is of no use")
			}
			return
		}
		for _, word := range strings.Fields(secret) {
			if len(word) >= MinKey && strings.Contains(err.Error(), word) {
				t.Errorf("quoted is %q", word)
			}
		}
	})
}
