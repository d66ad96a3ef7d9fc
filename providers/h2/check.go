package h2

import (
	"encoding/binary"
	"fmt"
)

// MaxValue is the longest header value that is sent, in bytes. Apple's and
// Google's longest legal ones are under half of it, as their paths are.
const (
	MaxValue = 8 << 10
	maxPath  = 8 << 10
)

// check refuses a request that could mean something else on the wire than its
// caller meant. Nothing after it checks again. The error names the rule and the
// header's name, never a value.
//
// before, unless nil, was checked just now: headers of r that share memory with
// its headers are not checked twice. Most of a batch do.
func check(r, before *Request) error {
	if r.call != nil {
		if err := checkTarget(r.call.method, r.Path); err != nil {
			return err
		}
	} else if err := checkPath(r.Path); err != nil {
		return err
	}
	for i := range r.Header {
		f := &r.Header[i]
		known := Field{}
		if before != nil && i < len(before.Header) {
			known = before.Header[i]
		}
		if f.Name != known.Name || known.Name == "" {
			if err := checkName(f.Name); err != nil {
				return err
			}
		}
		if !sameBytes(f.Value, known.Value) {
			if err := checkValue(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameBytes reports whether two slices are the same memory.
func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// checkPath allows "/" followed by segments of letters, digits and
// "-._~:@!$&'()*+,;=" without percent escapes, query, fragment, empty or dot
// segments: whatever needs more is not one of our paths.
func checkPath(p []byte) error {
	if len(p) == 0 || p[0] != '/' {
		return fmt.Errorf("%w: path does not start with a slash", ErrMalformed)
	}
	if len(p) > maxPath {
		return fmt.Errorf("%w: path over %d bytes", ErrMalformed, maxPath)
	}
	for {
		n := 0
		for p = p[1:]; n < len(p) && pathByte[p[n]]; n++ {
		}
		switch {
		case n < len(p) && p[n] != '/':
			return fmt.Errorf("%w: byte 0x%02x in path", ErrMalformed, p[n])
		case n == 0, n == 1 && p[0] == '.', n == 2 && p[0] == '.' && p[1] == '.':
			return fmt.Errorf("%w: empty or dot segment in path", ErrMalformed)
		case n == len(p):
			return nil
		}
		p = p[n:] // the next slash
	}
}

// checkTarget is for requests of a Transport: any method but CONNECT, and a
// path that may have escapes and a query.
func checkTarget(method string, target []byte) error {
	for i := 0; i < len(method); i++ {
		if b := method[i]; !nameByte[b] && (b < 'A' || b > 'Z') {
			return fmt.Errorf("%w: byte 0x%02x in method", ErrMalformed, b)
		}
	}
	switch {
	case method == "" || len(method) > 32 || method == "CONNECT":
		return fmt.Errorf("%w: method is empty, too long or CONNECT", ErrMalformed)
	case method == "OPTIONS" && string(target) == "*":
		return nil
	case len(target) == 0 || target[0] != '/':
		return fmt.Errorf("%w: path does not start with a slash", ErrMalformed)
	case len(target) > maxPath:
		return fmt.Errorf("%w: path over %d bytes", ErrMalformed, maxPath)
	}
	for _, b := range target {
		if b <= ' ' || b > '~' || b == '#' {
			return fmt.Errorf("%w: byte 0x%02x in path", ErrMalformed, b)
		}
	}
	return nil
}

// checkName allows lower-case names that are the caller's to set.
func checkName(name string) error {
	if name == "" || len(name) > 128 {
		return fmt.Errorf("%w: header name of %d bytes", ErrMalformed, len(name))
	}
	for i := 0; i < len(name); i++ {
		if !nameByte[name[i]] {
			return fmt.Errorf("%w: byte 0x%02x in header name", ErrMalformed, name[i])
		}
	}
	if ofConnection(name) {
		return fmt.Errorf("%w: header %s belongs to the connection", ErrMalformed, name)
	}
	return nil
}

// checkValue allows printable ASCII without space at either end.
func checkValue(f *Field) error {
	v := f.Value
	if len(v) > MaxValue {
		return fmt.Errorf("%w: header %s over %d bytes", ErrMalformed, f.Name, MaxValue)
	}
	for i := 0; i < len(v); i++ {
		for i+8 <= len(v) && printable8(binary.LittleEndian.Uint64(v[i:])) {
			i += 8
		}
		if i < len(v) && (v[i] < 0x20 || v[i] > 0x7e) {
			return fmt.Errorf("%w: byte 0x%02x in header %s", ErrMalformed, v[i], f.Name)
		}
	}
	if len(v) > 0 && (v[0] == ' ' || v[len(v)-1] == ' ') {
		return fmt.Errorf("%w: space around header %s", ErrMalformed, f.Name)
	}
	return nil
}

// ofConnection reports whether a header is set by the connection, or is
// hop-by-hop.
func ofConnection(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host", "te", "content-length", "expect", "trailer":
		return true
	}
	return false
}

// printable8 reports whether eight bytes are all in 0x20..0x7e. It may report
// false for some that are, never true for one that is not.
func printable8(w uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	below := w - 0x20*ones // borrows at a byte under 0x20
	above := w + ones      // carries into the high bit from 0x7f on
	return (w|below|above)&high == 0
}

var (
	pathByte = byteSet("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:@!$&'()*+,;=")
	nameByte = byteSet("abcdefghijklmnopqrstuvwxyz0123456789-_!#$%&'*+.^`|~")
)

func byteSet(s string) (set [256]bool) {
	for i := 0; i < len(s); i++ {
		set[s[i]] = true
	}
	return set
}
