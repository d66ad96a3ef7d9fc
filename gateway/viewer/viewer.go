// Package viewer shows the gateway's contract as a page, on which requests can be tried.
// The page is drawn by RapiDoc 9.3.8 (https://rapidocweb.com, MIT), which is part of the
// binary as it was published: a browser loads nothing from another host.
package viewer

import (
	_ "embed" // the page is part of the binary
	"net/http"
	"strconv"
)

//go:embed page.html
var page []byte

//go:embed rapidoc-9.3.8.js
var rapidoc []byte

// policy lets the page load its script and ask the gateway, and nobody else. RapiDoc has
// style attributes in its templates, so styles may be inline; scripts may not.
const policy = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Routes are the handlers of the page by their patterns. The page reads /openapi.yaml,
// which is the caller's to serve.
func Routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /openapi":                  file{"text/html; charset=utf-8", "no-cache", page},
		"GET /openapi/rapidoc-9.3.8.js": file{"text/javascript; charset=utf-8", "public, max-age=31536000, immutable", rapidoc},
	}
}

// file answers with a text that never changes while the program runs.
type file struct {
	kind  string // Content-Type
	cache string // Cache-Control
	text  []byte
}

// ServeHTTP implements http.Handler.
func (f file) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(f.text)))
	h.Set("Cache-Control", f.cache)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(f.text) // whoever has left does not want it
}
