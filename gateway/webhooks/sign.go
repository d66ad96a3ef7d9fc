package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// secretPrefix begins secrets, so that they are known for what they are.
const secretPrefix = "whsec_"

// The sizes of a secret in bytes, by the specification.
const minSecret, maxSecret = 24, 64

// ParseSecret reads a secret: whsec_ and base64. The error says nothing of what it is.
func ParseSecret(text string) ([]byte, error) {
	rest, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, errors.New("a secret begins with " + secretPrefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(rest)
	switch {
	case err != nil || strings.ContainsAny(rest, "\r\n"): // which the decoder passes over
		return nil, errors.New("a secret is " + secretPrefix + " and base64")
	case len(key) < minSecret || len(key) > maxSecret:
		return nil, fmt.Errorf("a secret has %d to %d bytes in base64, not %d", minSecret, maxSecret, len(key))
	}
	return key, nil
}

// Sign is the header webhook-signature of a call: one signature for each secret, so that
// a receiver that changes its secret knows one of them.
func Sign(secrets [][]byte, id string, at time.Time, body []byte) string {
	all := make([]string, len(secrets))
	for i, key := range secrets {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
