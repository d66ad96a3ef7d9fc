package apns

import (
	"bytes"
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
	"strings"
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

// TokenSource makes the provider tokens of one key, and of the key that takes its
// place. Apps and environments of a team share one, so that one token is signed
// per key and half hour. It may be used by several goroutines.
type TokenSource struct {
	teamID string
	keyID  string // of keys whose file names none

	inUse atomic.Pointer[signer] // never nil
	skew  atomic.Int64           // what to add to our clock to have Apple's, in nanoseconds

	mu        sync.Mutex
	former    *signer   // guarded by mu; for connections that were opened under it. nil = none
	corrected time.Time // guarded by mu; when skew was last changed, by our clock; zero = never
	signed    int       // guarded by mu
}

// signer is one key with its tokens.
type signer struct {
	identity uint64 // from 0, in the order in which keys came into use
	key      *ecdsa.PrivateKey
	keyID    string

	current  atomic.Pointer[bearer]
	previous *bearer // guarded by the source's mu; of the slice before current's
}

// bearer is one signed token as the value of an authorization header.
type bearer struct {
	value  []byte
	issued time.Time
	until  time.Time // when the next one is to be used
}

// NewTokenSource reads a .p8 key (PEM, PKCS #8, P-256). A line "Key-Id: ABCDE12345"
// before the PEM block takes the place of keyID, so that a key and its id can change
// in one file at once. Its errors do not hold the key.
func NewTokenSource(teamID, keyID string, p8 []byte) (*TokenSource, error) {
	if !isIdentifier(teamID) {
		return nil, errors.New("reading APNs key: team id must be letters and digits")
	}
	t := &TokenSource{teamID: teamID, keyID: keyID}
	first, err := t.read(p8)
	if err != nil {
		return nil, err
	}
	t.inUse.Store(first)
	return t, nil
}

// SetKey puts the key of a file in use, as NewTokenSource reads it, and reports
// whether it is another one. Its first token is minted at once: Apple's rule of one
// in 20 minutes is about the tokens of one key, and about one connection, and
// connections are not taken from one key to the next (h2.Options.Identity).
// After an error the former key stays in use.
func (t *TokenSource) SetKey(p8 []byte) (changed bool, err error) {
	next, err := t.read(p8)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.inUse.Load()
	if now.keyID == next.keyID && now.key.Equal(next.key) {
		return false, nil
	}
	next.identity = now.identity + 1
	t.former = now
	t.inUse.Store(next)
	return true, nil
}

// KeyID is the id of the key in use. It is no secret.
func (t *TokenSource) KeyID() string { return t.inUse.Load().keyID }

// read reads a key file.
func (t *TokenSource) read(p8 []byte) (*signer, error) {
	keyID, named, err := keyIDOf(p8)
	if err != nil {
		return nil, fmt.Errorf("reading APNs key: %w", err)
	}
	if !named {
		keyID = t.keyID
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
	return &signer{key: key, keyID: keyID}, nil
}

// keyIDOf finds the line before the PEM block that names the key's id, whatever the case
// of its name: to pass over "Key-ID" would be to sign with the former key's id. Apple's
// ids have ten capital letters and digits.
func keyIDOf(p8 []byte) (id string, named bool, err error) {
	const name = "Key-Id:"
	before, _, _ := bytes.Cut(p8, []byte("-----BEGIN"))
	for line := range bytes.Lines(before) {
		label, value, is := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if !is || !strings.EqualFold(string(bytes.TrimSpace(label)), "Key-Id") {
			continue
		}
		if named {
			return "", false, errors.New("line " + name + " stands there twice")
		}
		id, named = string(bytes.TrimSpace(value)), true
		if !isIdentifier(id) || len(id) != 10 || id != strings.ToUpper(id) {
			return "", false, errors.New("the line " + name + " must have the ten capital letters and digits of the key's id")
		}
	}
	return id, named, nil
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
	value, _, err := t.authorization(now)
	return value, err
}

// authorization is Authorization, and the identity of the key that signed it.
func (t *TokenSource) authorization(now time.Time) (value []byte, identity uint64, err error) {
	k := t.inUse.Load()
	value, err = t.token(k, now)
	return value, k.identity, err
}

// identity is that of the key in use.
func (t *TokenSource) identity() uint64 { return t.inUse.Load().identity }

// authorizationOf is authorization by the key of an identity, if that is the one in
// use or the one before it, and else by the one in use.
func (t *TokenSource) authorizationOf(identity uint64, now time.Time) ([]byte, uint64, error) {
	if t.identity() != identity {
		t.mu.Lock()
		former := t.former
		t.mu.Unlock()
		if former != nil && former.identity == identity {
			value, err := t.token(former, now)
			return value, identity, err
		}
	}
	return t.authorization(now)
}

// token is a key's token for use at now.
func (t *TokenSource) token(k *signer, now time.Time) ([]byte, error) {
	now = t.theirs(now)
	if b := k.current.Load(); b != nil && b.good(now) {
		return b.value, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := k.current.Load()
	if old != nil && old.good(now) {
		return old.value, nil
	}
	b, err := t.sign(k, now.Truncate(tokenSlice))
	if err != nil {
		return nil, fmt.Errorf("signing provider token: %w", err)
	}
	if old != nil && old.issued.Before(b.issued) {
		k.previous = old
	}
	k.current.Store(b)
	return b.value, nil
}

func (b *bearer) good(now time.Time) bool { return now.Before(b.until) && !now.Before(b.issued) }

// TooManyUpdates is called when Apple answers TooManyProviderTokenUpdates: for
// 20 minutes the token before the present one is used, as long as Apple takes
// it at all, and nothing is minted.
func (t *TokenSource) TooManyUpdates(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.inUse.Load()
	back := k.previous
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
	k.current.Store(&bearer{value: back.value, issued: back.issued, until: until})
	k.previous = nil
}

// sign makes a key's token with this iat; mu is held. ECDSA without randomness
// (RFC 6979) gives the same bytes on every worker.
func (t *TokenSource) sign(k *signer, issued time.Time) (*bearer, error) {
	enc := base64.RawURLEncoding
	text := append([]byte("bearer "), enc.EncodeToString([]byte(`{"alg":"ES256","kid":"`+k.keyID+`"}`))...)
	text = append(text, '.')
	text = append(text, enc.EncodeToString([]byte(`{"iat":`+strconv.FormatInt(issued.Unix(), 10)+`,"iss":"`+t.teamID+`"}`))...)
	digest := sha256.Sum256(text[len("bearer "):])
	der, err := k.key.Sign(nil, digest[:], crypto.SHA256)
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
