package viewer

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// Whatever the page is made to load or is put into, the browser refuses: nothing of another
// host, no script in the page, and no frame of another page around it.
func TestNobodyElsesPageShowsThis(t *testing.T) {
	for pattern, h := range Routes() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimPrefix(pattern, "GET "), nil))
		policy := strings.Split(w.Header().Get("Content-Security-Policy"), "; ")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
			if !slices.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %q", pattern, policy, want)
			}
		}
	}
}
