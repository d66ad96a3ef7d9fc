package payload

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
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
