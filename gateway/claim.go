package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
	"time"
)

// claim is what a receipt says: which notification, and where its record is.
type claim struct {
	id      string
	mode    Mode
	lane    string
	service string
	app     string
	owner   owner
	topic   [16]byte // id of the lane's topic; zero = not known
	place   Place
	at      time.Time // of acceptance, in milliseconds
}

// A receipt is id + "~" + base64url of: version, the mode's number, lane, service type,
// app, user and device, each with its length before it, the topic's id, partition,
// offset + 1 and Unix milliseconds as varints, and 16 bytes of HMAC-SHA-256 over the id,
// the sender and all that. Who is not the sender has no use for it.
const (
	claimVersion = 1
	macBytes     = 16
	maxReceipt   = 1200 // bytes of the longest there can be, and some more
	maxText      = 128  // of one of its texts
)

var modeNumbers = map[Mode]byte{AtLeastOnce: 1, AtMostOnce: 2, EffectivelyOnce: 3}

// Signer signs receipts, and knows those that it, or a replica with one of its keys, has
// signed. Ids are derived by keys of its own. It is safe for concurrent use.
type Signer struct {
	keys []*signingKey // the first one signs
	ids  idKeys
}

// signingKey is one key.
type signingKey struct {
	macs sync.Pool // of *keyedMAC: a new one hashes the key twice before it does anything
}

// keyedMAC computes the sums of one key, one at a time.
type keyedMAC struct {
	hash           hash.Hash
	body, head, at []byte // memory for what is hashed and for the sum
}

func newSigningKey(key []byte) *signingKey {
	k := &signingKey{}
	k.macs.New = func() any { return &keyedMAC{hash: hmac.New(sha256.New, key)} }
	return k
}

// NewSigner makes a Signer from the lines of a secret: the first signs, and what the
// others have signed is still valid, so that keys can be exchanged. Each has at least
// MinKey characters. A line "ids TIME KEY" has no part in that: by such a key, which
// counts from that time on, ids are derived. It may not be the first line, with which
// a release that does not know it would sign.
func NewSigner(secret string) (*Signer, error) {
	s := &Signer{}
	number := 0
	for line := range strings.Lines(secret) {
		number++
		if line = strings.Trim(line, " \t\r\n"); line == "" {
			continue
		}
		// A mark of byte order, the line ends of another system or UTF-16 would make another key of it.
		if line[0] == '#' || strings.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c > '~' }) {
			return nil, fmt.Errorf("line %d is no key: want ASCII that does not begin with # (openssl rand -base64 32)", number)
		}
		if strings.EqualFold(strings.Fields(line)[0], idLine) {
			k, err := parseIDKey(line)
			if err == nil && len(s.keys) == 0 {
				err = errors.New("the first line must be one that signs")
			}
			if err == nil {
				err = s.ids.add(k)
			}
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			continue
		}
		if len(line) < MinKey {
			return nil, fmt.Errorf("line %d has %d characters, want at least %d (openssl rand -base64 32)", number, len(line), MinKey)
		}
		s.keys = append(s.keys, newSigningKey([]byte(line)))
	}
	if len(s.keys) == 0 {
		return nil, errors.New("has no key (openssl rand -base64 32)")
	}
	return s, nil
}

// KeyedFrom is the moment from which derived ids depend on a secret; false = they never do.
func (s *Signer) KeyedFrom() (time.Time, bool) {
	if len(s.ids) == 0 {
		return time.Time{}, false
	}
	return s.ids[len(s.ids)-1].from, true
}

// sum is what signs a body; what is signed for one use is of none for another. It is
// valid until the next one.
func (m *keyedMAC) sum(use string, body []byte, parts ...string) []byte {
	head := appendPart(m.head[:0], use) // each part with its length before it
	for _, part := range parts {
		head = appendPart(head, part)
	}
	m.head = binary.BigEndian.AppendUint32(head, uint32(len(body)))
	m.hash.Reset()
	m.hash.Write(m.head)
	m.hash.Write(body)
	m.at = m.hash.Sum(m.at[:0])
	return m.at[:macBytes]
}

func appendPart(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
}

// signed adds what signs a body for one use, over the parts too, which the body lacks.
func (s *Signer) signed(body []byte, use string, parts ...string) []byte {
	m := s.keys[0].macs.Get().(*keyedMAC)
	defer s.keys[0].macs.Put(m)
	return append(body, m.sum(use, body, parts...)...)
}

// verified takes off what signed has added; false = it was another one. Every key is
// tried, each in constant time.
func (s *Signer) verified(b []byte, use string, parts ...string) (body []byte, valid bool) {
	if len(b) < macBytes {
		return nil, false
	}
	body, sum := b[:len(b)-macBytes], b[len(b)-macBytes:]
	for _, key := range s.keys {
		m := key.macs.Get().(*keyedMAC)
		if hmac.Equal(m.sum(use, body, parts...), sum) {
			valid = true
		}
		key.macs.Put(m)
	}
	return body, valid
}

// forReceipts is the use of what signs receipts.
const forReceipts = "pushfleet receipt"

// sign makes the receipt and appends it.
func (s *Signer) sign(out []byte, sender string, c *claim) []byte {
	key := s.keys[0]
	m := key.macs.Get().(*keyedMAC)
	defer key.macs.Put(m)
	b := appendClaim(m.body[:0], c)
	b = append(b, m.sum(forReceipts, b, c.id, sender)...)
	m.body = b
	return base64.RawURLEncoding.AppendEncode(append(append(out, c.id...), '~'), b)
}

// appendClaim appends what a receipt says besides the id.
func appendClaim(b []byte, c *claim) []byte {
	b = append(b, claimVersion, modeNumbers[c.mode])
	for _, text := range [...]string{c.lane, c.service, c.app, c.owner.user, c.owner.device} {
		b = appendText(b, text)
	}
	b = append(b, c.topic[:]...)
	b = binary.AppendUvarint(b, uint64(c.place.Partition))
	b = binary.AppendUvarint(b, uint64(c.place.Offset+1))
	return binary.AppendUvarint(b, uint64(c.at.UnixMilli()))
}

// appendText appends a text with its length before it.
func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// open reads a receipt of this sender; false = it is none.
func (s *Signer) open(sender, receipt string) (*claim, bool) {
	id, body, ok := cutReceipt(receipt)
	if !ok {
		return nil, false
	}
	body, valid := s.verified(body, forReceipts, id, sender)
	if !valid {
		return nil, false
	}
	return parseClaim(id, body)
}

// cutReceipt takes a receipt apart, whoever has signed it.
func cutReceipt(receipt string) (id string, body []byte, ok bool) {
	at := strings.LastIndexByte(receipt, '~')
	// The decoder passes over line ends: the same receipt would have many forms.
	if at < 1 || len(receipt) > maxReceipt || strings.ContainsAny(receipt, "\r\n") {
		return "", nil, false
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(receipt[at+1:])
	if err != nil || len(body) < 2+macBytes || body[0] != claimVersion {
		return "", nil, false
	}
	return receipt[:at], body, true
}

func parseClaim(id string, b []byte) (*claim, bool) {
	c := &claim{id: id}
	for mode, number := range modeNumbers {
		if number == b[1] {
			c.mode = mode
		}
	}
	r := claimReader{b: b[2:]}
	for _, to := range []*string{&c.lane, &c.service, &c.app, &c.owner.user, &c.owner.device} {
		*to = r.text()
	}
	copy(c.topic[:], r.take(uint64(len(c.topic))))
	c.place.Partition = int32(r.number(1<<31 - 1))
	c.place.Offset = int64(r.number(1<<62)) - 1
	c.at = time.UnixMilli(int64(r.number(1 << 53))).UTC()
	return c, !r.bad && len(r.b) == 0 && c.mode != ""
}

// claimReader reads a claim. After what cannot be read it reads nothing more.
type claimReader struct {
	b   []byte
	bad bool
}

func (r *claimReader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *claimReader) text() string { return string(r.take(r.number(maxText))) }

func (r *claimReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}
