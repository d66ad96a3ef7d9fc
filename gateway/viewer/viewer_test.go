package viewer

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// What is part of the binary is what its authors published: the sum is that of
// dist/rapidoc-min.js in rapidoc 9.3.8 of npm.
func TestRapidocIsAsPublished(t *testing.T) {
	const published = "affbd173a65e870e18f392cca963113bcdafb6e50e88cd2f6a834a65b22db94d"
	if sum := sha256.Sum256(rapidoc); hex.EncodeToString(sum[:]) != published {
		t.Errorf("the checksum is %x, want %s", sum, published)
	}
}
