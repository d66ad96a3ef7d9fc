package decode

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/pushfleet/pushfleet/push"
)

// maxDepth is how deep objects and arrays of a record may nest; the record
// itself is the first level.
const maxDepth = 16

// scanner walks over JSON text once, from left to right. The first thing that
// makes the text unreadable (syntax, UTF-8, depth, a key twice) sticks in
// reason: from there on every method returns at once.
type scanner struct {
	b     []byte
	i     int
	depth int
	keys  [24]string // the keys met so far of all open objects, innermost last
	nkeys int

	path string // the field being read

	reason push.Reason
	in     string // the field it was found in
	at     int    // and the byte offset
}

// object is one object being read.
type object struct {
	base    int // its first key in scanner.keys
	started bool
	many    map[string]struct{} // its keys, once scanner.keys is full
}

func (s *scanner) fail(r push.Reason, at int) {
	if s.reason == "" {
		s.reason, s.in, s.at = r, s.path, at
	}
}

// where is the position of unreadable text: the field, if the contract knows
// it, and the byte offset. A name that a producer chose is content and not
// reported.
func (s *scanner) where() string { return s.in + "@" + strconv.Itoa(s.at) }

// next skips white space and returns the byte there, or 0 at the end.
func (s *scanner) next() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// open enters the object whose brace is next.
func (s *scanner) open() object {
	s.descend()
	return object{base: s.nkeys}
}

func (s *scanner) descend() {
	if s.depth++; s.depth > maxDepth {
		s.fail(push.TooDeep, s.i)
	}
	s.i++
}

// member reads up to the value of the next member and returns its key, or
// leaves the object. ok is false at its end and when the text is unreadable.
func (s *scanner) member(o *object) (key string, ok bool) {
	if s.reason != "" {
		return "", false
	}
	c := s.next()
	switch {
	case c == '}':
		s.i++
		s.depth--
		s.nkeys = o.base
		return "", false
	case o.started && c == ',':
		s.i++
		c = s.next()
	case o.started:
		s.fail(push.BadJSON, s.i)
		return "", false
	}
	o.started = true
	if c != '"' {
		s.fail(push.BadJSON, s.i)
		return "", false
	}
	key = s.text()
	if s.next() != ':' {
		s.fail(push.BadJSON, s.i)
	}
	s.i++
	return key, s.reason == ""
}

// unique notes a key and fails if the object has it already. Few keys are
// compared one by one; an object with many gets a map, so that a hostile one
// costs no more than its length.
func (s *scanner) unique(o *object, key string) {
	if o.many == nil {
		for _, k := range s.keys[o.base:s.nkeys] {
			if k == key {
				s.fail(push.DuplicateKey, s.i)
				return
			}
		}
		if s.nkeys < len(s.keys) {
			s.keys[s.nkeys] = key
			s.nkeys++
			return
		}
		o.many = make(map[string]struct{})
		for _, k := range s.keys[o.base:s.nkeys] {
			o.many[k] = struct{}{}
		}
	}
	if _, twice := o.many[key]; twice {
		s.fail(push.DuplicateKey, s.i)
		return
	}
	o.many[key] = struct{}{}
}

// skip reads past any value and checks all of it.
func (s *scanner) skip() {
	if s.reason != "" {
		return
	}
	switch c := s.next(); c {
	case '{':
		o := s.open()
		for key, ok := s.member(&o); ok; key, ok = s.member(&o) {
			s.unique(&o, key)
			s.skip()
		}
	case '[':
		s.array()
	case '"':
		s.quoted()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		if c == '-' || isDigit(c) {
			s.number()
			return
		}
		s.fail(push.BadJSON, s.i)
	}
}

func (s *scanner) array() {
	s.descend()
	if s.next() == ']' {
		s.i++
		s.depth--
		return
	}
	for s.reason == "" {
		s.skip()
		switch s.next() {
		case ',':
			s.i++
		case ']':
			s.i++
			s.depth--
			return
		default:
			s.fail(push.BadJSON, s.i)
		}
	}
}

func (s *scanner) literal(word string) {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		s.fail(push.BadJSON, s.i)
		return
	}
	s.i += len(word)
}

// number reads over a number and returns its text. integer is false if it has
// a fraction or an exponent.
func (s *scanner) number() (text []byte, integer bool) {
	start := s.i
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else {
		s.digits()
	}
	integer = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		integer = false
		s.i++
		s.digits()
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		integer = false
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		s.digits()
	}
	return s.b[start:s.i], integer
}

// digits reads over one digit or more.
func (s *scanner) digits() {
	start := s.i
	for s.i < len(s.b) && isDigit(s.b[s.i]) {
		s.i++
	}
	if s.i == start {
		s.fail(push.BadJSON, s.i)
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// text reads the string whose quote is next. Without escapes it is cut from
// the text and shares its memory.
func (s *scanner) text() string {
	raw, escaped := s.quoted()
	if s.reason != "" || len(raw) == 0 {
		return ""
	}
	if escaped {
		return unescape(raw)
	}
	return unsafe.String(&raw[0], len(raw))
}

// quoted reads past the string whose quote is next, checks it, and returns what
// is between the quotes. It looks at eight bytes at a time.
func (s *scanner) quoted() (raw []byte, escaped bool) {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	b, i := s.b, s.i+1
	start, nonASCII := i, uint64(0)
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^('"'*ones), w^('\\'*ones)
			// A high bit marks a byte that ends the run: a quote, a backslash or a
			// control character. Borrows reach only bytes above a marked one, so
			// the lowest mark is right.
			stop := ((quote-ones)&^quote | (slash-ones)&^slash | (w-' '*ones)&^w) & high
			if stop == 0 {
				nonASCII |= w & high
				i += 8
				continue
			}
			n := bits.TrailingZeros64(stop) &^ 7
			nonASCII |= w & high & (1<<n - 1)
			i += n / 8
			break
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			nonASCII |= uint64(b[i]) & 0x80
			i++
		}
		if i < len(b) && b[i] == '\\' {
			if n := escapeLen(b[i:]); n > 0 {
				escaped = true
				i += n
				continue
			}
		}
		break
	}
	raw, s.i = b[start:min(i, len(b))], i
	if nonASCII != 0 && !utf8.Valid(raw) {
		s.fail(push.BadUTF8, start)
	}
	if i >= len(b) || b[i] != '"' {
		s.fail(push.BadJSON, i)
		return raw, escaped
	}
	s.i++
	return raw, escaped
}

// escapeLen is the length of the escape at the start of b, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape decodes the inside of a string that quoted has checked. Half a
// surrogate pair becomes U+FFFD, as encoding/json has it.
func unescape(raw []byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		c := raw[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					low, _ = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	return unsafe.String(unsafe.SliceData(out), len(out))
}
