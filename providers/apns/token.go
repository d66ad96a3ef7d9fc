package apns

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sideshow/apns2/token"
)

const (
	// tokenSlice is what iat is floored to. Apple takes a token for an hour
	// and wants at least 20 minutes between two: with 30 each is used between
	// its 0th and 30th minute, and every worker has the same one without
	// talking, also after a crash.
	tokenSlice = 30 * time.Minute
	// usable is how old a token may be when it is sent: five minutes under
	// Apple's hour, for the difference of clocks.
	usable = 55 * time.Minute
	// calm is how long no token is minted after Apple has complained.
	calm = 20 * time.Minute
	// drift is how far our clock may be from Apple's before it is corrected: a
	// token is used for 30 minutes of the hour that Apple takes it, so that
	// this much does no harm, and all workers but a broken one go on having
	// the same token.
	drift = 5 * time.Minute
)

// TokenSource makes the provider tokens of one key. Apps and environments of
// a team share one, so that one token is signed per key and half hour. It may
// be used by several goroutines.
type TokenSource struct {
	key    *ecdsa.PrivateKey
	keyID  string
	teamID string

	current atomic.Pointer[bearer]
	skew    atomic.Int64 // what to add to our clock to have Apple's, in nanoseconds

	mu        sync.Mutex
	previous  *bearer   // of the slice before current's
	corrected time.Time // when skew was last changed, by our clock; zero = never
	signed    int
}

// bearer is one signed token as the value of an authorization header.
type bearer struct {
	value  []byte
	issued time.Time
	until  time.Time // when the next one is to be used
}

// NewTokenSource reads a .p8 key (PEM, PKCS #8, P-256). Its errors do not hold
// the key.
func NewTokenSource(teamID, keyID string, p8 []byte) (*TokenSource, error) {
	if !isIdentifier(teamID) {
		return nil, errors.New("reading APNs key: team id must be letters and digits")
	}
	if !isIdentifier(keyID) {
		return nil, errors.New("reading APNs key: key id must be letters and digits")
	}
	key, err := token.AuthKeyFromBytes(p8)
	if err != nil {
		return nil, fmt.Errorf("reading APNs key: %w", err)
	}
	if key.Curve != elliptic.P256() {
		return nil, errors.New("reading APNs key: not a P-256 key")
	}
	return &TokenSource{key: key, keyID: keyID, teamID: teamID}, nil
}

func isIdentifier(s string) bool {
	for i := 0; i < len(s); i++ {
		if b := s[i]; (b < '0' || b > '9') && (b < 'A' || b > 'Z') && (b < 'a' || b > 'z') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 64
}

// Authorization returns "bearer <token>" for use at now. The bytes are shared
// and must not be changed.
func (t *TokenSource) Authorization(now time.Time) ([]byte, error) {
	now = t.theirs(now)
	if b := t.current.Load(); b != nil && b.good(now) {
		return b.value, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load()
	if old != nil && old.good(now) {
		return old.value, nil
	}
	b, err := t.sign(now.Truncate(tokenSlice))
	if err != nil {
		return nil, fmt.Errorf("signing provider token: %w", err)
	}
	if old != nil && old.issued.Before(b.issued) {
		t.previous = old
	}
	t.current.Store(b)
	return b.value, nil
}

func (b *bearer) good(now time.Time) bool { return now.Before(b.until) && !now.Before(b.issued) }

// TooManyUpdates is called when Apple answers TooManyProviderTokenUpdates: for
// 20 minutes the token before the present one is used, as long as Apple takes
// it at all, and nothing is minted.
func (t *TokenSource) TooManyUpdates(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	back := t.previous
	if back == nil {
		return
	}
	now = t.theirs(now)
	until := now.Add(calm)
	if last := back.issued.Add(usable); last.Before(until) {
		until = last
	}
	if !now.Before(until) {
		return
	}
	t.current.Store(&bearer{value: back.value, issued: back.issued, until: until})
	t.previous = nil
}

// sign makes the token with this iat. ECDSA without randomness (RFC 6979)
// gives the same bytes on every worker.
func (t *TokenSource) sign(issued time.Time) (*bearer, error) {
	enc := base64.RawURLEncoding
	text := append([]byte("bearer "), enc.EncodeToString([]byte(`{"alg":"ES256","kid":"`+t.keyID+`"}`))...)
	text = append(text, '.')
	text = append(text, enc.EncodeToString([]byte(`{"iat":`+strconv.FormatInt(issued.Unix(), 10)+`,"iss":"`+t.teamID+`"}`))...)
	digest := sha256.Sum256(text[len("bearer "):])
	der, err := t.key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &sig); err != nil {
		return nil, fmt.Errorf("reading the signature of the provider token: %w", err)
	}
	var raw [64]byte
	sig.R.FillBytes(raw[:32])
	sig.S.FillBytes(raw[32:])
	text = append(text, '.')
	text = enc.AppendEncode(text, raw[:])
	t.signed++
	return &bearer{value: text, issued: issued, until: issued.Add(tokenSlice)}, nil
}
