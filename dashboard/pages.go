package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// loginPage is the page that asks for a key.
const loginPage = "login.html"

// pages are the files that a browser loads. Files other than pages have names with the
// hash of their content, so that they can be kept for ever; embedded files have no time
// of change (golang/go#44854).
type pages struct {
	html  map[string][]byte // by their own name
	tags  map[string]string // of html
	files map[string][]byte // by name with hash
}

// newPages names every file by its content, in all files that refer to it.
func newPages() (*pages, error) {
	found, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded pages: %w", err)
	}
	p := &pages{html: map[string][]byte{}, tags: map[string]string{}, files: map[string][]byte{}}
	raw := map[string][]byte{}
	for _, entry := range found {
		if raw[entry.Name()], err = assets.ReadFile(path.Join("assets", entry.Name())); err != nil {
			return nil, fmt.Errorf("reading the embedded pages: %w", err)
		}
	}
	named := map[string]string{} // name with hash by name
	for len(raw) > 0 {
		before := len(raw)
		for name, text := range raw {
			if refersToAny(text, name, raw) {
				continue // its names are not known yet
			}
			for plain, hashed := range named {
				text = bytes.ReplaceAll(text, []byte("/assets/"+plain), []byte("/assets/"+hashed))
			}
			sum := sha256.Sum256(text)
			tag := hex.EncodeToString(sum[:8])
			if strings.HasSuffix(name, ".html") {
				p.html[name], p.tags[name] = text, `"`+tag+`"`
			} else {
				ext := path.Ext(name)
				named[name] = strings.TrimSuffix(name, ext) + "." + tag + ext
				p.files[named[name]] = text
			}
			delete(raw, name)
		}
		if len(raw) == before {
			return nil, fmt.Errorf("the embedded pages refer to each other in a circle, or to themselves")
		}
	}
	return p, nil
}

// refersToAny reports whether a file refers to one that has no name with a hash yet.
func refersToAny(text []byte, name string, raw map[string][]byte) bool {
	for other := range raw {
		if other != name && bytes.Contains(text, []byte("/assets/"+other)) {
			return true
		}
	}
	return false
}

// typeOf is what a browser is told that a file is.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// serve answers with a page, or that it has not changed.
func (p *pages) serve(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Type", typeOf(name))
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", p.tags[name])
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(p.html[name]))
}

// refusal is where the page that asks for a key says why the last one opens nothing.
const refusal = "<!-- why not -->"

// refuse answers with the page that asks for a key, and why the last one opens nothing.
func (p *pages) refuse(w http.ResponseWriter, why string) {
	says := `<p id="refused" role="alert" class="bad">` + html.EscapeString(why) + `. Ask who keeps the keys for what it lacks, or log in with another one.</p>`
	w.Header().Set("Content-Type", typeOf(loginPage))
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write(bytes.Replace(p.html[loginPage], []byte(refusal), []byte(says), 1)) // who has gone needs no answer
}

// asset answers with a file. Nothing in it is secret, so it needs no key.
func (p *pages) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, known := p.files[name]
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", typeOf(name))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
}
