package fanout

import (
	"time"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/push"
)

// maxUser is the longest user id, in bytes (docs/messages.md).
const maxUser = 128

// usable reports whether a user can be the receiver of a record. An id that is not UTF-8
// could only be written as another one.
func usable(user string) bool {
	return user != "" && len(user) <= maxUser && utf8.ValidString(user)
}

// The record of a receiver: this, the id, that, the user, what all receivers with one
// priority have in common (a middle), and the job's rest.
const (
	beforeID   = `{"id":"`
	beforeUser = `","user_id":"`
)

// middleOf is what comes between the user and the rest.
func middleOf(expires time.Time, p push.Priority) []byte {
	b := append(make([]byte, 0, 96), `","expires_at":"`...)
	b = expires.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(append(b, `","priority":"`...), p.String()...)
	return append(b, `",`...)
}

// mostBytes is the most that a record of the job can take.
func (j *Job) mostBytes() int {
	most := 0
	for _, middle := range j.middles {
		most = max(most, len(middle))
	}
	if j.Clicks {
		most += len(tokenBegins) + MostToken + len(`",`)
	}
	return len(beforeID) + idBytes + len(beforeUser) + maxEscaped*maxUser + most + len(j.Rest)
}

// tokenBegins is what stands before a click token in the data, and MostToken the most bytes
// that one may have, which are of base64url.
const (
	tokenBegins = `"pf_click":"`
	MostToken   = 640
)

// appendRecord appends the record of a receiver, who must be usable. A priority of 0 is
// the job's; a higher one than that is not given. It has a click token if the job says so
// and there are tokens.
func (j *Job) appendRecord(out []byte, user string, p push.Priority, tokens Tokens) []byte {
	if p == 0 || p > j.Priority {
		p = j.Priority
	}
	out = append(out, beforeID...)
	id := len(out)
	out = AppendID(out, j.Message, user)
	out = append(out, beforeUser...)
	out = appendEscaped(out, user)
	end := id + idBytes
	out = append(out, j.middles[p]...)
	if !j.Clicks || tokens == nil {
		return append(out, j.Rest...)
	}
	out = append(append(out, DataBegins...), tokenBegins...)
	out = tokens.AppendClickToken(out, string(out[id:end]), user, j.App, j.kind, j.Sender, j.Accepted)
	out = append(out, '"')
	data := j.Rest[len(DataBegins):]
	if data[0] != '}' {
		out = append(out, ',')
	}
	return append(out, data...)
}

// maxEscaped is how long a byte can get inside a string of JSON: six, as \u00 and two
// digits.
const maxEscaped = 6

// appendEscaped appends a text as the inside of a string of JSON. All but quotes,
// backslashes and control characters stands for itself (RFC 8259, section 7).
func appendEscaped(out []byte, text string) []byte {
	const digits = "0123456789abcdef"
	start := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		out = append(out, text[start:i]...)
		if start = i + 1; c < ' ' {
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
		} else {
			out = append(out, '\\', c)
		}
	}
	return append(out, text[start:]...)
}
