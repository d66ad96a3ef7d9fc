package gateway

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func signer(t *testing.T, secret string) *Signer {
	t.Helper()
	s, err := NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signed(s *Signer, sender string, c *claim) string { return string(s.sign(nil, sender, c)) }

// A receipt says what was signed, to its sender alone, and no other text does.
func TestReceiptsSayWhatWasSigned(t *testing.T) {
	s := signer(t, strings.Repeat("a", 32))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 32, 128)
		c := &claim{id: rapid.StringMatching(`[!-~]{1,64}`).Draw(t, "id"), mode: rapid.SampledFrom([]Mode{AtLeastOnce, AtMostOnce, EffectivelyOnce}).Draw(t, "mode"),
			lane: text.Draw(t, "lane"), service: text.Draw(t, "service"), app: text.Draw(t, "app"), owner: owner{text.Draw(t, "user"), text.Draw(t, "device")},
			place: Place{rapid.Int32Min(0).Draw(t, "partition"), rapid.Int64Range(-1, 1<<50).Draw(t, "offset")},
			at:    time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "at")).UTC()}
		copy(c.topic[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic"))
		receipt := signed(s, "orders", c)
		if len(receipt) > maxReceipt {
			t.Fatalf("a receipt of %d bytes", len(receipt))
		}
		got, ok := s.open("orders", receipt)
		if !ok || !reflect.DeepEqual(got, c) {
			t.Fatalf("signed\n%+v\nread\n%+v", c, got)
		}
		if _, ok := s.open("order", receipt); ok {
			t.Fatal("another sender can use it")
		}
		at := rapid.IntRange(0, len(receipt)-1).Draw(t, "changed")
		changed := []byte(receipt)
		changed[at] ^= byte(rapid.IntRange(1, 127).Draw(t, "by"))
		if _, ok := s.open("orders", string(changed)); ok {
			t.Fatalf("with byte %d changed it is valid", at)
		}
	})
}

// The first key signs; what the others have signed is still read, so that keys can be
// exchanged.
func TestKeysOfReceiptsAreExchanged(t *testing.T) {
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	c := &claim{id: "n", mode: AtLeastOnce, at: time.UnixMilli(1).UTC()}
	of := signed(signer(t, a), "s", c)
	for _, secret := range []string{a, a + "\n" + b, b + "\r\n" + a + "\n"} {
		if _, ok := signer(t, secret).open("s", of); !ok {
			t.Errorf("%q does not read it", secret)
		}
	}
	if _, ok := signer(t, b).open("s", of); ok {
		t.Error("a key that has not signed it reads it")
	}
	for _, secret := range []string{"", "\n", "short", a + "\nshort", "\ufeff" + a, "\u00a0" + a, a + "\u2028", "\ufeffids 2026-12-01T00:00:00Z " + a, a + "\r" + b, strings.Repeat("\x00", 40), "# " + a, "IDS 2026-12-01T00:00:00Z " + a} {
		if _, err := NewSigner(secret); err == nil || strings.Contains(err.Error(), "short\n") {
			t.Errorf("%q: %v", secret, err)
		}
	}
}

// Receipts from outside do nothing but not be one.
func FuzzReceipt(f *testing.F) {
	s, err := NewSigner(strings.Repeat("a", 32))
	if err != nil {
		f.Fatal(err)
	}
	one := signed(s, "s", &claim{id: "n~x", mode: AtMostOnce, lane: "l", owner: owner{user: "u"}, place: Place{1, 2}, at: time.UnixMilli(3)})
	f.Add(one)
	f.Add(one[:20] + "\n" + one[20:]) // which base64 passes over
	f.Add("~")
	f.Add("n~AQ")
	f.Fuzz(func(t *testing.T, text string) {
		if id, body, ok := cutReceipt(text); ok {
			parseClaim(id, body[:len(body)-macBytes]) // as if it were signed
		}
		if c, ok := s.open("s", text); ok && signed(s, "s", c) != text {
			t.Errorf("%q is read, and signed it is %q", text, signed(s, "s", c))
		}
	})
}
