package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
)

// errSyntax is any departure from RFC 8259.
var errSyntax = errors.New("malformed JSON")

const deepest = 100 // nesting that is followed; Google's parser has the same limit

// scanner walks over JSON once, without building anything. It checks the
// syntax as it goes.
type scanner struct {
	b     []byte
	i     int
	depth int
}

// kind is the type of the JSON value at hand.
type kind uint8

const (
	kindBad kind = iota
	kindObject
	kindArray
	kindString
	kindNumber
	kindBool
	kindNull
)

func (s *scanner) space() {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return // the common case
	}
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek says what kind of value comes next.
func (s *scanner) peek() kind {
	s.space()
	if s.i >= len(s.b) {
		return kindBad
	}
	switch c := s.b[s.i]; {
	case c == '{':
		return kindObject
	case c == '[':
		return kindArray
	case c == '"':
		return kindString
	case c == '-' || c >= '0' && c <= '9':
		return kindNumber
	case c == 't' || c == 'f':
		return kindBool
	case c == 'n':
		return kindNull
	}
	return kindBad
}

// end reports whether nothing but space is left.
func (s *scanner) end() bool {
	s.space()
	return s.i == len(s.b)
}

func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// object calls member for every member; member must consume the value.
func (s *scanner) object(member func(key []byte) error) error {
	return s.list('{', '}', func() error {
		if s.peek() != kindString {
			return errSyntax
		}
		raw, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return errSyntax
		}
		return member(unquote(raw))
	})
}

// array calls element for every element; element must consume the value.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

func (s *scanner) list(first, last byte, element func() error) error {
	if !s.take(first) {
		return errSyntax
	}
	if s.depth++; s.depth > deepest {
		return errSyntax
	}
	defer func() { s.depth-- }()
	if s.take(last) {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.take(last) {
			return nil
		}
		if !s.take(',') {
			return errSyntax
		}
	}
}

// text consumes a string and returns what stands between its quotes, escapes
// and all.
func (s *scanner) text() ([]byte, error) {
	if !s.take('"') {
		return nil, errSyntax
	}
	start := s.i
	for {
		s.i += plainPrefix(s.b[s.i:])
		if s.i == len(s.b) {
			return nil, errSyntax
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], nil
		case c == '\\' && s.escape():
		default:
			return nil, errSyntax
		}
	}
}

// Words that repeat one byte in all eight.
const (
	eachByte = 0x0101010101010101
	topBits  = 0x80 * eachByte
)

// plainPrefix is how many bytes at the beginning of b stand in a string for
// themselves: no quote, no backslash, no control character. It looks at eight
// bytes at a time.
func plainPrefix(b []byte) int {
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, backslash := w^'"'*eachByte, w^'\\'*eachByte
		// A byte that is 0 borrows from its top bit; one below a space from that
		// of the difference. Bytes behind the first find may be wrong.
		found := (quote-eachByte)&^quote | (backslash-eachByte)&^backslash | (w-' '*eachByte)&^w
		if found &= topBits; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(b) && b[n] >= ' ' && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

func (s *scanner) escape() bool {
	if s.i+1 >= len(s.b) {
		return false
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	case 'u':
		if s.i+6 > len(s.b) {
			return false
		}
		for _, c := range s.b[s.i+2 : s.i+6] {
			if !isHex(c) {
				return false
			}
		}
		s.i += 6
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

func (s *scanner) number() ([]byte, error) {
	start := s.i
	if s.b[s.i] == '-' {
		s.i++
	}
	zero := s.i < len(s.b) && s.b[s.i] == '0'
	from := s.i
	if !s.digits() || zero && s.i > from+1 {
		return nil, errSyntax
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return nil, errSyntax
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return nil, errSyntax
		}
	}
	return s.b[start:s.i], nil
}

// value consumes any value and returns its bytes.
func (s *scanner) value() ([]byte, error) {
	k := s.peek()
	start := s.i
	var err error
	switch k {
	case kindObject:
		err = s.object(func([]byte) error { _, err := s.value(); return err })
	case kindArray:
		err = s.array(func() error { _, err := s.value(); return err })
	case kindString:
		_, err = s.text()
	case kindNumber:
		_, err = s.number()
	case kindBool, kindNull:
		err = s.word()
	default:
		err = errSyntax
	}
	return s.b[start:s.i], err
}

func (s *scanner) word() error {
	for _, w := range [...]string{"true", "false", "null"} {
		if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
			s.i += len(w)
			return nil
		}
	}
	return errSyntax
}

// unquote resolves the escapes of what text returned. Without any, and that is
// the common case, it returns raw itself.
func unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var s string
	quoted := append(append([]byte{'"'}, raw...), '"')
	if json.Unmarshal(quoted, &s) != nil {
		return raw
	}
	return []byte(s)
}

// hexDigits are those of both cases.
var hexDigits = func() (is [256]bool) {
	for _, c := range "0123456789abcdefABCDEF" {
		is[c] = true
	}
	return is
}()

func isHex(c byte) bool { return hexDigits[c] }
