package payload

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if len(s)-i >= 8 && plain(s[i:]) {
			i += 8
			continue
		}
		b := s[i]
		if b < utf8.RuneSelf {
			if b >= 0x20 && b != '"' && b != '\\' {
				i++
				continue
			}
			dst = appendASCII(append(dst, s[start:i]...), b)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			i++
			start = i
			continue
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// plain reports whether the first eight bytes of s are ASCII that needs no escape. It
// looks at all of them at once: the highest bit of a byte is set where it is beyond ASCII
// or, after the subtraction, a control character, a quote or a backslash. A borrow sets
// one only above a byte that is marked already.
func plain(s string) bool {
	const ones = 0x0101010101010101
	_ = s[7]
	w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	quote, slash := w^ones*'"', w^ones*'\\'
	wrong := w | (w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash
	return wrong&(ones<<7) == 0
}

// AppendRawMember appends a member of raw JSON as the iterator over it has it,
// with a comma before it if it is not the first of its object.
func AppendRawMember(dst []byte, it *Iterator) []byte {
	dst = append(appendQuoted(comma(dst), it.Key), ':')
	return appendCompact(dst, it.Value)
}

// comma appends a comma unless dst ends at the start of an object: what every
// member but the first needs before it.
func comma(dst []byte) []byte {
	if n := len(dst); n > 0 && dst[n-1] == '{' {
		return dst
	}
	return append(dst, ',')
}

// AppendMember appends `"name":` and the JSON string of value, with a comma
// before it if it is not the first of its object. An empty value appends
// nothing. name must need no escaping.
func AppendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(AppendName(dst, name), value)
}

// AppendName appends `"name":`, with a comma before it if it is not the first
// of its object. name must need no escaping.
func AppendName(dst []byte, name string) []byte {
	dst = append(comma(dst), '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// appendCompact appends raw JSON without the white space between its tokens,
// its strings as appendQuoted has them.
func appendCompact(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		switch b := raw[i]; b {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			end := skipString(raw, i)
			dst = appendQuoted(dst, raw[i:end])
			i = end
		default:
			dst = append(dst, b)
			i++
		}
	}
	return dst
}
