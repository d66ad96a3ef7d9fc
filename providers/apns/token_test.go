package apns

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
)

func p8(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func source(t testing.TB, key *ecdsa.PrivateKey) *TokenSource {
	t.Helper()
	s, err := NewTokenSource("TEAM123456", "KEY1234567", p8(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func authorize(t testing.TB, s *TokenSource, now time.Time) string {
	t.Helper()
	v, err := s.Authorization(now)
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

func TestTokenIsValidAndTheSameEverywhere(t *testing.T) {
	key := newKey(t)
	now := time.Date(2026, 11, 21, 10, 17, 3, 0, time.UTC)
	one, two := source(t, key), source(t, key)
	value := authorize(t, one, now)
	if other := authorize(t, two, now.Add(12*time.Minute)); value != other {
		t.Error("two workers in one half hour have different tokens")
	}
	raw, ok := strings.CutPrefix(value, "bearer ")
	if !ok {
		t.Fatalf("no bearer: %q", value[:10])
	}
	var claims jwt.MapClaims
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithoutClaimsValidation())
	token, err := parser.ParseWithClaims(raw, &claims, func(*jwt.Token) (any, error) { return &key.PublicKey, nil })
	if err != nil {
		t.Fatal(err)
	}
	if token.Header["kid"] != "KEY1234567" || len(token.Header) != 2 {
		t.Errorf("header %v", token.Header)
	}
	floor := float64(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).Unix())
	if claims["iss"] != "TEAM123456" || claims["iat"] != floor || len(claims) != 2 {
		t.Errorf("claims %v; iat must be %v", claims, floor)
	}
}

func TestOneSignatureAHalfHour(t *testing.T) {
	s := source(t, newKey(t))
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for at := time.Duration(0); at < tokenSlice; at += time.Minute {
				authorize(t, s, start.Add(at))
			}
		})
	}
	wg.Wait()
	if s.signed != 1 {
		t.Errorf("signed %d times in one half hour", s.signed)
	}
	first := authorize(t, s, start)
	if next := authorize(t, s, start.Add(tokenSlice)); next == first || s.signed != 2 {
		t.Error("the next half hour has no token of its own")
	}
	if back := authorize(t, s, start.Add(tokenSlice-time.Second)); back != first {
		t.Error("a clock set back gets another token than it had")
	}
}

func TestTooManyUpdatesGoesBackToThePreviousToken(t *testing.T) {
	s := source(t, newKey(t))
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	first := authorize(t, s, start.Add(20*time.Minute))
	s.TooManyUpdates(start.Add(21 * time.Minute)) // no previous token
	if authorize(t, s, start.Add(21*time.Minute)) != first {
		t.Error("the only token was given up")
	}
	second := authorize(t, s, start.Add(31*time.Minute))
	s.TooManyUpdates(start.Add(32 * time.Minute))
	for _, c := range []struct {
		minute time.Duration
		want   string
		why    string
	}{
		{33, first, "calm for 20 minutes"},
		{51, first, "still calm"},
		{52, second, "the 20 minutes are over"},
	} {
		if authorize(t, s, start.Add(c.minute*time.Minute)) != c.want {
			t.Errorf("minute %d: %s", c.minute, c.why)
		}
	}
	// Apple accepts no token of over an hour, whatever else it complains about.
	third := authorize(t, s, start.Add(61*time.Minute))
	s.TooManyUpdates(start.Add(84 * time.Minute))
	if authorize(t, s, start.Add(84*time.Minute)) != second || authorize(t, s, start.Add(85*time.Minute)) != third {
		t.Error("the previous token must end 55 minutes after its iat")
	}
}

// A complaint during the 20 minutes is about the token before, too, and lengthens nothing.
func TestTooManyUpdatesTwiceIsOneCalm(t *testing.T) {
	s := source(t, newKey(t))
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	first := authorize(t, s, start.Add(29*time.Minute))
	second := authorize(t, s, start.Add(30*time.Minute))
	s.TooManyUpdates(start.Add(31 * time.Minute))
	s.TooManyUpdates(start.Add(40 * time.Minute))
	if authorize(t, s, start.Add(50*time.Minute)) != first || authorize(t, s, start.Add(51*time.Minute)) != second {
		t.Error("want the first token until 20 minutes after the first complaint, and the second from then on")
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := p8(t, newKey(t))
	for why, c := range map[string]struct {
		team, id string
		p8       []byte
	}{
		"empty":        {"TEAM123456", "KEY1234567", nil},
		"not PEM":      {"TEAM123456", "KEY1234567", []byte("secret-looking text")},
		"RSA":          {"TEAM123456", "KEY1234567", p8(t, rsaKey)},
		"P-384":        {"TEAM123456", "KEY1234567", p8(t, p384)},
		"cut":          {"TEAM123456", "KEY1234567", good[:len(good)/2]},
		"no team":      {"", "KEY1234567", good},
		"key id in it": {"TEAM123456", `K","x":"`, good},
	} {
		_, err := NewTokenSource(c.team, c.id, c.p8)
		if err == nil {
			t.Errorf("%s: accepted", why)
			continue
		}
		if len(c.p8) > 20 && bytes.Contains([]byte(err.Error()), c.p8[:19]) {
			t.Errorf("%s: the error holds the key", why)
		}
	}
}
