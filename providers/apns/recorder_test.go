package apns_test

import (
	"crypto/ecdsa"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"

	"github.com/pushfleet/pushfleet/providers/providertest"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// newRecorder plays Apple, which knows the key of provider tokens.
func newRecorder(t *testing.T, key *ecdsa.PublicKey) *providertest.Recorder {
	t.Helper()
	return providertest.NewRecorder(t, func(w providertest.Wire) {
		w["authorization"] = kindOf(w["authorization"], key)
		if uuid.MatchString(w["apns-id"]) {
			w["apns-id"] = "a UUID"
		}
	}, "")
}

// kindOf describes a verified provider token without what may vary: its age
// within the hour, and the signature.
func kindOf(authorization string, key *ecdsa.PublicKey) string {
	scheme, raw, _ := strings.Cut(authorization, " ")
	var claims jwt.MapClaims
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithoutClaimsValidation())
	token, err := parser.ParseWithClaims(raw, &claims, func(*jwt.Token) (any, error) { return key, nil })
	if err != nil {
		return "invalid: " + err.Error()
	}
	iat, _ := claims["iat"].(float64)
	age := time.Since(time.Unix(int64(iat), 0))
	inTime := age > -time.Second && age < time.Hour
	delete(claims, "iat")
	return fmt.Sprint(scheme, " ", token.Header, " ", claims, " in time: ", inTime)
}
