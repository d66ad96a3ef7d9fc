// Package seal encrypts the texts of messages to confidential topics, which lie so in Kafka
// and in Cassandra, and opens them for their readers.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A sealed content is an object of JSON with one member, base64url of: version, what names
// the key, a nonce, and what AES-256-GCM has made of the content (NIST SP 800-38D). What the
// content belongs to is authenticated with it, so that nobody can put it elsewhere. Nonces
// are random: a key is good for 2^32 contents (section 8.3 there).
const (
	version  = 1
	nameSize = 4
	begins   = `{"sealed":"`
	ends     = `"}`
	overhead = 1 + nameSize + 12 + 16
)

// MinKey is the least length of a line of a secret.
const MinKey = 32

// Why a content cannot be opened.
var (
	ErrNoKey  = errors.New("sealed by a key that is not among those given")
	ErrBroken = errors.New("not as it was sealed, or not where it was")
)

// Keys seal and open. They are safe for concurrent use.
type Keys struct {
	all []*key // the first one seals
}

type key struct {
	name [nameSize]byte
	aead cipher.AEAD
	sums []byte
}

// Parse makes Keys of the lines of a secret: the first seals, and all open, so that keys can
// be exchanged. An error names the line at fault and nothing of it.
func Parse(secret string) (*Keys, error) {
	k := &Keys{}
	number := 0
	for line := range strings.Lines(secret) {
		number++
		if line = strings.Trim(line, " \t\r\n"); line == "" {
			continue
		}
		if line[0] == '#' || strings.ContainsFunc(line, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, fmt.Errorf("line %d is no key: want ASCII without blanks that does not begin with # (openssl rand -base64 32)", number)
		}
		if len(line) < MinKey {
			return nil, fmt.Errorf("line %d has %d characters, want at least %d (openssl rand -base64 32)", number, len(line), MinKey)
		}
		one, err := newKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if k.named(one.name[:]) != nil {
			return nil, fmt.Errorf("line %d is there twice, or shares its name with another line: take another one", number)
		}
		k.all = append(k.all, one)
	}
	if len(k.all) == 0 {
		return nil, errors.New("has no key (openssl rand -base64 32)")
	}
	return k, nil
}

// newKey derives what is needed from a line, each part apart from the others (RFC 5869).
func newKey(line string) (*key, error) {
	part := func(of string, size int) ([]byte, error) {
		return hkdf.Key(sha256.New, []byte(line), nil, "pushfleet confidential "+of, size)
	}
	name, err1 := part("name", nameSize)
	secret, err2 := part("text", 32)
	sums, err3 := part("sums", 32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &key{[nameSize]byte(name), aead, sums}, nil
}

// named is the key of a name; nil = there is none.
func (k *Keys) named(name []byte) *key {
	for _, one := range k.all {
		if bytes.Equal(one.name[:], name) {
			return one
		}
	}
	return nil
}

// Seal encrypts a content that belongs to something, which is said by some words. The same
// content is sealed to something else each time.
func (k *Keys) Seal(content []byte, of ...string) []byte {
	one := k.all[0]
	b := make([]byte, 0, overhead+len(content))
	b = append(append(b, version), one.name[:]...)
	nonce := b[len(b) : len(b)+one.aead.NonceSize()]
	_, _ = rand.Read(nonce) // it never fails
	b = one.aead.Seal(b[:len(b)+len(nonce)], nonce, content, place(of))
	out := make([]byte, 0, len(begins)+base64.RawURLEncoding.EncodedLen(len(b))+len(ends))
	return append(base64.RawURLEncoding.AppendEncode(append(out, begins...), b), ends...)
}

// Sealed reports whether a content is one that Seal has made: none of an inbox's own has
// such a member.
func Sealed(content []byte) bool { return bytes.HasPrefix(content, []byte(begins)) }

// Open decrypts a sealed content that belongs to something: ErrNoKey, or ErrBroken.
func (k *Keys) Open(sealed []byte, of ...string) ([]byte, error) {
	text, ok := bytes.CutPrefix(sealed, []byte(begins))
	text, closed := bytes.CutSuffix(text, []byte(ends))
	b, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if !ok || !closed || err != nil || len(b) < overhead || b[0] != version {
		return nil, ErrBroken
	}
	one := k.named(b[1 : 1+nameSize])
	if one == nil {
		return nil, ErrNoKey
	}
	b = b[1+nameSize:]
	nonce, b := b[:one.aead.NonceSize()], b[one.aead.NonceSize():]
	content, err := one.aead.Open(b[:0], nonce, b, place(of))
	if err != nil {
		return nil, ErrBroken
	}
	return content, nil
}

// place is what some words say, as no others do.
func place(words []string) (b []byte) {
	for _, word := range words {
		b = append(binary.AppendUvarint(b, uint64(len(word))), word...)
	}
	return b
}

// Sums are what stands for a sum of a text that belongs to something, where others may read
// it: by a sum itself a text of few digits would be found, and equal texts. The first is to be
// kept; who compares takes all, as a key may have been exchanged meanwhile.
func (k *Keys) Sums(sum uint64, of ...string) []uint64 {
	text := append(place(of), binary.BigEndian.AppendUint64(nil, sum)...)
	all := make([]uint64, len(k.all))
	for i, one := range k.all {
		mac := hmac.New(sha256.New, one.sums)
		_, _ = mac.Write(text) // a hash takes everything
		all[i] = binary.BigEndian.Uint64(mac.Sum(nil))
	}
	return all
}
