package sim

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
)

// errToken is any fault of a JWT that its receiver does not tell apart.
var errToken = errors.New("malformed token")

// jwt is a decoded token whose signature has not been looked at.
type jwt struct {
	Alg, KeyID string
	claims     []byte
	signed     string
	signature  []byte
}

func parseJWT(raw string) (*jwt, error) {
	if len(raw) > 8<<10 {
		return nil, errToken
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return nil, errToken
	}
	var decoded [3][]byte
	for i, p := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return nil, errToken
		}
	}
	var header struct {
		Alg string `json:"alg"`
		Kid string `json:"kid"`
	}
	if json.Unmarshal(decoded[0], &header) != nil {
		return nil, errToken
	}
	return &jwt{
		Alg: header.Alg, KeyID: header.Kid, claims: decoded[1],
		signed: raw[:len(parts[0])+1+len(parts[1])], signature: decoded[2],
	}, nil
}

// decode reads the claims. Numbers must be JSON numbers: a string that holds
// one is refused.
func (t *jwt) decode(claims any) error {
	if json.NewDecoder(bytes.NewReader(t.claims)).Decode(claims) != nil {
		return errToken
	}
	return nil
}

// signedES256 takes a signature as the standard of JWT has it, r and s, and in
// DER, as Apple does.
func (t *jwt) signedES256(key *ecdsa.PublicKey) bool {
	if key == nil || t.Alg != "ES256" {
		return false
	}
	sum := sha256.Sum256([]byte(t.signed))
	if len(t.signature) == 64 {
		r, s := new(big.Int).SetBytes(t.signature[:32]), new(big.Int).SetBytes(t.signature[32:])
		if ecdsa.Verify(key, sum[:], r, s) {
			return true
		}
	}
	return ecdsa.VerifyASN1(key, sum[:], t.signature)
}

func (t *jwt) signedRS256(key *rsa.PublicKey) bool {
	if key == nil || t.Alg != "RS256" {
		return false
	}
	sum := sha256.Sum256([]byte(t.signed))
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], t.signature) == nil
}
