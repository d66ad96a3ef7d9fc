package sim

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// derToken is a provider token whose signature is in DER, as Pushy makes it.
func derToken(t *testing.T, c *Credentials, at time.Time) string {
	t.Helper()
	raw := sign(t, map[string]any{"alg": "ES256", "kid": c.KeyID}, map[string]any{"iss": c.TeamID, "iat": at.Unix()}, c.key)
	signed := raw[:strings.LastIndexByte(raw, '.')]
	sum := sha256.Sum256([]byte(signed))
	der, err := ecdsa.SignASN1(rand.Reader, c.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return "bearer " + signed + "." + base64.RawURLEncoding.EncodeToString(der)
}

// Apple takes signatures as the standard of JWT has them, and in DER.
func TestSignatureForms(t *testing.T) {
	s := newStand(t, nil)
	der := derToken(t, s.shop, s.clock)
	dot := strings.LastIndexByte(der, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(der[dot:])
	if err != nil {
		t.Fatal(err)
	}
	with := func(signature []byte) string { return der[:dot] + base64.RawURLEncoding.EncodeToString(signature) }
	stranger := *s.shop
	stranger.key = s.other.key
	for why, tt := range map[string]struct {
		token string
		want  Reply
	}{
		"r and s":              {s.providerToken(s.shop, s.clock), APNSAccepted},
		"DER":                  {der, APNSAccepted},
		"DER of another key":   {derToken(t, &stranger, s.clock), APNSInvalidProviderToken},
		"DER with more behind": {with(append(bytes.Clone(signature), 0)), APNSInvalidProviderToken},
		"DER cut off":          {with(signature[:len(signature)-1]), APNSInvalidProviderToken},
		"64 bytes of nothing":  {with(make([]byte, 64)), APNSInvalidProviderToken},
		"nothing":              {with(nil), APNSInvalidProviderToken},
	} {
		req := s.push()
		for i := range req.Fields {
			if req.Fields[i].Name == "authorization" {
				req.Fields[i].Value = tt.token
			}
		}
		var ans Answer
		if s.policy.Answer(req, &ans); ans.Reply != tt.want {
			t.Errorf("%s: got %s, want %s", why, ans.Reply, tt.want)
		}
	}
}
