package payload

import (
	"bytes"
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
)

// appendQuoted appends a string of raw JSON, with its quotes, in UTF-8, and
// keeps only necessary escapes. Half a surrogate pair becomes U+FFFD. The
// result is never longer.
func appendQuoted(dst, quoted []byte) []byte {
	at := bytes.IndexByte(quoted, '\\')
	if at < 0 {
		return append(dst, quoted...)
	}
	for ; at >= 0; at = bytes.IndexByte(quoted, '\\') {
		dst = append(dst, quoted[:at]...)
		r, n := escape(quoted[at:])
		if n == 0 { // not valid JSON: copied as it is
			return append(dst, quoted[at:]...)
		}
		if r < utf8.RuneSelf {
			dst = appendASCII(dst, byte(r))
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		quoted = quoted[at+n:]
	}
	return append(dst, quoted...)
}

// TextLen is the number of bytes of what a JSON string says; of any other value
// it is its length as written.
func TextLen(value []byte) int {
	if len(value) < 2 || value[0] != '"' {
		return len(value)
	}
	text := value[1 : len(value)-1]
	n := len(text)
	for at := bytes.IndexByte(text, '\\'); at >= 0; at = bytes.IndexByte(text, '\\') {
		r, length := escape(text[at:])
		if length == 0 {
			break
		}
		n += utf8.RuneLen(r) - length
		text = text[at+length:]
	}
	return n
}

// appendASCII appends a character of a JSON string, escaped if it must be.
func appendASCII(dst []byte, b byte) []byte {
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if b < ' ' {
		return append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
	}
	return append(dst, b)
}

// escape reads the escape at the start of b, a whole surrogate pair at once. n
// is its length, 0 if it is none.
func escape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := hex4(b[2:])
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if low, ok := hex4(b[8:]); ok {
				if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
					return r, 12
				}
			}
		}
		return utf8.RuneError, 6
	}
	return 0, 0
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (r rune, ok bool) {
	var v [2]byte
	if len(b) < 4 {
		return 0, false
	}
	_, err := hex.Decode(v[:], b[:4])
	return rune(v[0])<<8 | rune(v[1]), err == nil
}
