package payload

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"

	"github.com/pushfleet/pushfleet/push"
)

// AppendContent appends what an aps dictionary says besides its alert.
func AppendContent(dst []byte, m *push.Message) []byte {
	dst = AppendMember(dst, "sound", m.Sound)
	if m.HasBadge {
		dst = strconv.AppendInt(AppendName(dst, "badge"), int64(m.Badge), 10)
	}
	dst = AppendMember(dst, "category", m.Category)
	dst = AppendMember(dst, "thread-id", m.ThreadID)
	if m.Image != "" || m.Video != "" {
		dst = append(AppendName(dst, "mutable-content"), '1')
	}
	return dst
}

// IsCollapseID reports whether Apple's collapse id can be the key itself: 64
// bytes of printable ASCII at most, without spaces at either end. Any other key
// is replaced by its hash, so that equal keys still replace each other.
func IsCollapseID(key string) bool {
	if key == "" || len(key) > 64 || key[0] == ' ' || key[len(key)-1] == ' ' {
		return false
	}
	for i := 0; i < len(key); i++ {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return true
}

// AppendKeyHash appends the hash of a collapse key, for where the key itself is
// not allowed: 32 characters that fit into any header, web push's Topic
// included.
func AppendKeyHash(dst []byte, key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.AppendEncode(dst, sum[:24])
}
