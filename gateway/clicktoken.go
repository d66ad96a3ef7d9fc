package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/fanout"
)

// clickClaim is what a click token says: which notification, and what is counted of it.
type clickClaim struct {
	clicks.Key
	kind   string // the message's type
	sender string
	sent   time.Time // as clicks.SentAt has it; the token ends so long after it
}

// A click token is base64url of: version, id, user, app, type and sender, each with its
// length plus 1 before it, or as 0 and 16 bytes if it is a UUID as it is usually written,
// Unix milliseconds as a varint, and 16 bytes of HMAC-SHA-256 over all that.
const (
	clickVersion = 1
	forClicks    = "pushfleet click token"
	mostClick    = fanout.MostToken // bytes, which the longest there can be has

	// clickKey is the name of the token in the data of a message.
	clickKey = "pf_click"
)

func (c *clickClaim) texts() [5]*string {
	return [...]*string{&c.ID, &c.User, &c.App, &c.kind, &c.sender}
}

// appendClick makes the token and appends it.
func (s *Signer) appendClick(out []byte, c *clickClaim) []byte {
	key := s.keys[0]
	m := key.macs.Get().(*keyedMAC)
	defer key.macs.Put(m)
	b := append(m.body[:0], clickVersion)
	for _, text := range c.texts() {
		b = appendPacked(b, *text)
	}
	b = binary.AppendUvarint(b, uint64(c.sent.UnixMilli()))
	b = append(b, m.sum(forClicks, b)...)
	m.body = b
	return base64.RawURLEncoding.AppendEncode(out, b)
}

// AppendClickToken makes the token of a notification that was accepted at a time, and
// appends it.
func (s *Signer) AppendClickToken(out []byte, id, user, app, kind, sender string, accepted time.Time) []byte {
	return s.appendClick(out, &clickClaim{clicks.Key{User: user, App: app, ID: id}, kind, sender, clicks.SentAt(id, accepted)})
}

// openClick reads a token; false = it is none.
func (s *Signer) openClick(token string) (*clickClaim, bool) {
	if len(token) > mostClick || bytes.ContainsAny([]byte(token), "\r\n") { // over which the decoder passes
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return nil, false
	}
	b, valid := s.verified(b, forClicks)
	if !valid || len(b) < 1 || b[0] != clickVersion {
		return nil, false
	}
	c, r := &clickClaim{}, claimReader{b: b[1:]}
	for _, to := range c.texts() {
		*to = r.packed()
	}
	c.sent = time.UnixMilli(int64(r.number(1 << 53))).UTC()
	return c, !r.bad && len(r.b) == 0
}

// appendPacked appends a text that is often a UUID.
func appendPacked(b []byte, text string) []byte {
	if u, err := uuid.Parse(text); err == nil && len(text) == 36 && u.String() == text {
		return append(append(b, 0), u[:]...)
	}
	return append(binary.AppendUvarint(b, uint64(len(text))+1), text...)
}

// packed reads what appendPacked has written.
func (r *claimReader) packed() string {
	n := r.number(maxText + 1)
	if n > 0 {
		return string(r.take(n - 1))
	}
	var u uuid.UUID
	copy(u[:], r.take(uint64(len(u))))
	return u.String()
}

// withClick puts the token of a click into the data of a message that can be read, with room
// for so many bytes more.
func (s *Signer) withClick(value []byte, c *clickClaim, more int) []byte {
	out := append(make([]byte, 0, len(value)+mostClick+len(clickKey)+16+more), '{')
	members(value, func(name, whole, _ []byte) {
		if string(name) != memberData {
			out = append(append(out, whole...), ',')
		}
	})
	out = append(out, fanout.DataBegins+`"`+clickKey+`":"`...)
	out = append(s.appendClick(out, c), '"')
	data := dataOf(value)
	if data[0] != '}' {
		out = append(out, ',')
	}
	return append(append(out, data...), '}')
}

// dataOf is the data of a message that can be read, from behind the brace that it begins with
// and blanks, and its end alone if there is none.
func dataOf(value []byte) []byte {
	data := []byte("}")
	members(value, func(name, _, of []byte) {
		if string(name) == memberData && of[0] == '{' { // and not null
			data = bytes.TrimLeft(of[1:], " \t\r\n")
		}
	})
	return data
}

// hasData reports whether the data of a message has something under a name.
func hasData(value []byte, wanted string) (has bool) {
	members(append([]byte{'{'}, dataOf(value)...), func(name, _, _ []byte) { has = has || string(name) == wanted })
	return has
}
