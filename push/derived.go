package push

// An id that was derived from a caller's key, and carries no time, is DerivedPrefix and
// DerivedBytes bytes in base64url.
const (
	DerivedPrefix = "k-"
	DerivedBytes  = 24
)

// DerivedID reports whether an id looks like one that was derived from a key without a
// time. Its caller may repeat it after any time, and a record of it looks new, so the
// memory of filters is not enough for it.
func DerivedID(id string) bool {
	if len(id) != len(DerivedPrefix)+DerivedBytes/3*4 || id[:len(DerivedPrefix)] != DerivedPrefix {
		return false
	}
	for i := len(DerivedPrefix); i < len(id); i++ {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
