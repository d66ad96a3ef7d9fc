package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// A page that complains, in any of its ways, or asks somebody else, is found out; one that
// does neither is not.
func TestComplaints(t *testing.T) {
	chrome := Start(t)
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer foreign.Close()
	pages := map[string]string{
		"/quiet":   ``,
		"/error":   `<script>console.error('no good')</script>`,
		"/warning": `<script>console.warn('not so good')</script>`,
		"/thrown":  `<script>throw new Error('thrown away')</script>`,
		"/missing": `<script src="/none.js"></script>`,
		"/foreign": fmt.Sprintf(`<script>fetch('%s/', {mode: 'no-cors'})</script>`, foreign.URL),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, known := pages[r.URL.Path]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `<!doctype html><title>page</title><link rel="icon" href="data:,">%s<p id="end">a "quoted" \ word</p>`, body)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	patient, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for path, want := range map[string]string{"/quiet": "", "/error": "no good", "/warning": "not so good", "/thrown": "Uncaught", "/missing": "none.js", "/foreign": "it asked for " + foreign.URL} {
		p := chrome.Open(server.URL + path)
		p.Until(Text("#end", `a "quoted" \ word`) + " && " + Has("p", `"quoted" \`))
		told := func() bool {
			return slices.ContainsFunc(p.complaints(host, nil), func(c string) bool { return strings.Contains(c, want) })
		}
		for want != "" && !told() {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-patient.Done():
				t.Fatalf("%s: %q, want %q", path, p.complaints(host, nil), want)
			}
		}
		if got := p.complaints(host, []string{want}); path != "/foreign" && len(got) > 0 {
			t.Errorf("%s: %q, want nothing besides %q", path, got, want)
		}
	}
}
