package calls

import "strings"

// idsAtOnce is how many bytes of names share one piece of memory: some 45 to 110 names.
const idsAtOnce = 4 << 10

// IDs keeps providers' names for messages, many in one piece of memory, which lives as
// long as any of them. The zero value is ready to use, and so is nil, which gives each name
// a piece of its own. It is not safe for concurrent use.
type IDs struct{ text strings.Builder }

// Keep is a provider's name for a message as it may be kept: its first most
// bytes, or nothing if they are not all visible ASCII.
func (ids *IDs) Keep(b []byte, most int) string {
	b = b[:min(len(b), most)]
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return ""
		}
	}
	if ids == nil {
		return string(b)
	}
	if ids.text.Len()+len(b) > ids.text.Cap() {
		ids.text = strings.Builder{} // the names in the former one keep it
		ids.text.Grow(max(idsAtOnce, len(b)))
	}
	from := ids.text.Len()
	ids.text.Write(b) // never fails, and moves nothing: there is room
	return ids.text.String()[from:]
}
