package payload

import "bytes"

// maxDepth bounds the recursion of a merge; the decoder allows 16. Deeper
// values are taken whole from the producer.
const maxDepth = 64

// AppendMerged appends base with over merged into it: where both have a key,
// two objects are merged in the same way, and otherwise over's value wins.
// Keys of base come first, in their order. The key except, unless empty, is
// left out of over's top level. Both must be JSON objects; anything else
// counts as an empty one.
func AppendMerged(dst, base, over []byte, except string) []byte {
	return appendMerged(dst, base, over, except, 0)
}

func appendMerged(dst, base, over []byte, except string, depth int) []byte {
	ours, theirs := indexed(base), indexed(over)
	dst = append(dst, '{')
	for b := Members(base); b.Next(); {
		dst = append(appendQuoted(comma(dst), b.Key), ':')
		value, found := theirs.lookUp(b.Key)
		switch {
		case !found || except != "" && keyIs(b.Key, except):
			dst = appendCompact(dst, b.Value)
		case depth < maxDepth && isObject(value) && isObject(b.Value):
			dst = appendMerged(dst, b.Value, value, "", depth+1)
		default:
			dst = appendCompact(dst, value)
		}
	}
	for o := Members(over); o.Next(); {
		if except != "" && keyIs(o.Key, except) {
			continue
		}
		if _, found := ours.lookUp(o.Key); found {
			continue
		}
		dst = AppendRawMember(dst, &o)
	}
	return append(dst, '}')
}

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }

// fewMembers is how many members are compared one by one. A larger object is
// indexed, so that the cost of a hostile one is linear in its length.
const fewMembers = 16

// object finds its members by their keys.
type object struct {
	raw  []byte
	many map[string][]byte // values by canonical key, of an object of many
}

func indexed(raw []byte) object {
	n := 0
	for m := Members(raw); m.Next() && n <= fewMembers; {
		n++
	}
	if n <= fewMembers {
		return object{raw: raw}
	}
	many := make(map[string][]byte)
	for m := Members(raw); m.Next(); {
		key := string(appendQuoted(nil, m.Key))
		if _, twice := many[key]; !twice {
			many[key] = m.Value
		}
	}
	return object{many: many}
}

// lookUp finds a member by its key, as it stands in JSON with its quotes.
func (o object) lookUp(key []byte) ([]byte, bool) {
	if o.many != nil {
		var buf [64]byte
		value, found := o.many[string(appendQuoted(buf[:0], key))]
		return value, found
	}
	for m := Members(o.raw); m.Next(); {
		if sameKey(m.Key, key) {
			return m.Value, true
		}
	}
	return nil, false
}

// sameKey compares two quoted keys by what they mean: "\u0061ps" is "aps".
func sameKey(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	var x, y [64]byte // longer keys allocate
	return bytes.Equal(appendQuoted(x[:0], a), appendQuoted(y[:0], b))
}

// keyIs reports whether a quoted key means name, which needs no escaping.
func keyIs(key []byte, name string) bool {
	return keyBegins(key, name, true)
}

// keyBegins reports whether what a quoted key means begins with prefix, which
// needs no escaping, and, if it is to be all, ends there.
func keyBegins(key []byte, prefix string, all bool) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return plainBegins(key, prefix, all)
	}
	var buf [64]byte
	return plainBegins(appendQuoted(buf[:0], key), prefix, all)
}

// plainBegins is keyBegins for a key that stands there as it is meant.
func plainBegins(key []byte, prefix string, all bool) bool {
	n := len(prefix) + 1
	return len(key) > n && string(key[1:n]) == prefix && (!all || len(key) == n+1)
}

// Find returns the value at a path of keys, as written, or nil.
func Find(raw []byte, path ...string) []byte {
	for _, name := range path {
		it := Members(raw)
		for raw = nil; raw == nil && it.Next(); {
			if it.Is(name) {
				raw = it.Value
			}
		}
	}
	return raw
}

// Iterator walks the members of one JSON object in their order.
type Iterator struct {
	Key   []byte // with its quotes, as written
	Value []byte // as written
	rest  []byte
	plain bool // Key has no escapes: Next has looked
}

// Members starts a walk over raw. What is not an object has no members.
func Members(raw []byte) Iterator {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return Iterator{}
	}
	return Iterator{rest: raw[i+1:]}
}

// Next goes on to the next member and reports whether there is one.
func (it *Iterator) Next() bool {
	r := it.rest
	i := skipSpace(r, 0)
	if i < len(r) && r[i] == ',' {
		i = skipSpace(r, i+1)
	}
	if i >= len(r) || r[i] != '"' {
		it.rest = nil
		return false
	}
	end := skipString(r, i)
	it.Key = r[i:end]
	it.plain = bytes.IndexByte(it.Key, '\\') < 0 // looked for once: a key is compared with many names
	i = skipSpace(r, end)
	if i >= len(r) || r[i] != ':' {
		it.rest = nil
		return false
	}
	i = skipSpace(r, i+1)
	end = skipValue(r, i)
	if end == i {
		it.rest = nil
		return false
	}
	it.Value, it.rest = r[i:end], r[end:]
	return true
}

// Is reports whether the present member's key means name.
func (it *Iterator) Is(name string) bool { return it.keyBegins(name, true) }

// Begins reports whether the present member's key begins with prefix.
func (it *Iterator) Begins(prefix string) bool { return it.keyBegins(prefix, false) }

func (it *Iterator) keyBegins(prefix string, all bool) bool {
	if it.plain {
		return plainBegins(it.Key, prefix, all)
	}
	return keyBegins(it.Key, prefix, all)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the index after the value that starts at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	return i
}
