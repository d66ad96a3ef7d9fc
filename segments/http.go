package segments

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// HTTPOptions configure a URL as a Source.
type HTTPOptions struct {
	URL string // http or https, without user and password
	// Token, if set, gives the bearer token of each request, read anew so that it can be
	// rotated. Tokens go over https only, or to this machine.
	Token func() (string, error)
	TLS   *tls.Config // nil = the system's certificate authorities
}

// HTTP is a URL as a Source. It asks with If-None-Match, or If-Modified-Since
// where the server gives no ETag, so unchanged contents cost one small request.
type HTTP struct {
	url    *url.URL
	token  func() (string, error)
	client *http.Client
}

// NewHTTP checks the options. Close ends its idle connections.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("not a URL") // the error of Parse repeats the text, which may have a password
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("not an http or https URL")
	case u.User != nil:
		return nil, errors.New("a URL must not contain a user or password; use a token from a file")
	case u.Scheme == "http" && o.Token != nil && !loopback(u.Hostname()):
		return nil, errors.New("a token is sent over https only")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.TLS
	transport.ResponseHeaderTimeout = time.Minute
	return &HTTP{url: u, token: o.Token, client: &http.Client{Transport: transport, CheckRedirect: redirect}}, nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// redirect allows a few redirects, and none from https to http: anyone on the
// way could then exchange the file.
func redirect(to *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than 5 redirects")
	}
	if via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
		return errors.New("a redirect from https to http")
	}
	return nil
}

// Close closes idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// String implements Source. A query may be a signature, and is left out.
func (h *HTTP) String() string { return h.url.Scheme + "://" + h.url.Host + h.url.EscapedPath() }

// The kinds of tags.
const (
	byETag     = "etag "
	byModified = "modified "
)

// Open implements Source.
func (h *HTTP) Open(ctx context.Context, tag string) (*Contents, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: making a request failed", h)
	}
	req.Header.Set("Accept-Encoding", "identity") // Size and ETag are those of the file itself
	if etag, ok := strings.CutPrefix(tag, byETag); ok {
		req.Header.Set("If-None-Match", etag)
	} else if at, ok := strings.CutPrefix(tag, byModified); ok {
		req.Header.Set("If-Modified-Since", at)
	}
	if h.token != nil {
		token, err := h.token()
		if err != nil {
			return nil, fmt.Errorf("%s: the token: %w", h, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the message of url.Error has the whole URL
		}
		return nil, fmt.Errorf("%s: %w", h, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusNotModified && tag != "" {
			return nil, ErrUnchanged
		}
		return nil, fmt.Errorf("%s: the server answered %s", h, resp.Status)
	}
	return &Contents{Body: resp.Body, Size: resp.ContentLength, Tag: tagOf(resp.Header)}, nil
}

func tagOf(h http.Header) string {
	if etag := h.Get("ETag"); etag != "" {
		return byETag + etag
	}
	if at := h.Get("Last-Modified"); at != "" {
		return byModified + at
	}
	return ""
}
