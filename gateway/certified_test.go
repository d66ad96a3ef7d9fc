package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// certified is a world whose callers are known by keys and by names in certificates.
func certifiedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.certify(t, `{"name": "orders-2", "certificate": "orders.example", "sender": "orders", "apps": ["shop"], "rights": ["send", "users"]},
		{"name": "mesh", "certificate": "spiffe://example.org/mesh", "sender": "mesh", "apps": ["shop"], "rights": ["read"]}`)
	return w
}

// certify puts a file with these callers by certificates in force, behind those with keys.
func (w *world) certify(t *testing.T, callers string) {
	t.Helper()
	text := strings.TrimSuffix(keysText(t), "]}")
	if callers != "" {
		text += ", " + callers
	}
	if err := os.WriteFile(w.keys, []byte(text+"]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.gateway.o.Callers.Reload(); err != nil {
		t.Fatal(err)
	}
}

// shown is a certificate with these names, which holds now.
func shown(t *testing.T, names ...string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, name := range names {
		if !strings.Contains(name, ":") {
			c.DNSNames = append(c.DNSNames, name)
			continue
		}
		u, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

// by makes a request over a connection that has shown a certificate, signed by a trusted CA
// or not.
func (w *world) by(c *x509.Certificate, trusted bool, r request) *reply {
	w.t.Helper()
	req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
	req.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
	if trusted {
		req.TLS.VerifiedChains = [][]*x509.Certificate{{c}}
	}
	return w.exchange(req)
}

func TestCallersByCertificates(t *testing.T) {
	w := certifiedWorld(t)
	send := request{method: "POST", path: "/v1/messages", body: plain}
	with := func(key string, header ...string) request {
		r := send
		r.key, r.header = key, map[string]string{}
		for i := 0; i < len(header); i += 2 {
			r.header[header[i]] = header[i+1]
		}
		return r
	}
	over, early, common := shown(t, "orders.example"), shown(t, "orders.example"), shown(t)
	over.NotAfter = time.Now().Add(-time.Second)
	early.NotBefore = time.Now().Add(time.Minute)
	common.Subject.CommonName = "orders.example"
	for _, tt := range []struct {
		why       string
		shown     *x509.Certificate
		untrusted bool
		request   request
		status    int
		says      string
	}{
		{why: "its DNS name", shown: shown(t, "other.example", "orders.example"), request: send, status: 202},
		{why: "names of hosts have no case", shown: shown(t, "Orders.Example"), request: send, status: 202},
		{why: "its name twice", shown: shown(t, "orders.example", "ORDERS.example"), request: send, status: 202},
		{why: "its URI; it may only read", shown: shown(t, "spiffe://example.org/mesh"), request: send, status: 403, says: "right send"},
		{why: "a URI that is another one", shown: shown(t, "spiffe://example.org/mesh/x"), request: send, status: 401, says: "no caller is known"},
		{why: "a wildcard stands for nobody", shown: shown(t, "*.example"), request: send, status: 401, says: "no caller is known"},
		{why: "the common name says nothing", shown: common, request: send, status: 401, says: "no caller is known"},
		{why: "names of two callers", shown: shown(t, "orders.example", "spiffe://example.org/mesh"), request: send, status: 401, says: "several callers"},
		{why: "it has ended since", shown: over, request: send, status: 401, says: "not valid now"},
		{why: "it begins later", shown: early, request: send, status: 401, says: "not valid now"},
		{why: "nobody trusted has signed it", shown: shown(t, "orders.example"), untrusted: true, request: send, status: 401, says: "Bearer"},
		{why: "a key is what counts: another right", shown: shown(t, "orders.example"), request: with(keyReader), status: 403, says: "right send"},
		{why: "a wrong key is not made good by it", shown: shown(t, "orders.example"), request: with(strings.Repeat("w", 40)), status: 401, says: "not known"},
		{why: "the name is no key", shown: shown(t, "x.example"), request: with("certificate+orders.example+padding"), status: 401, says: "not known"},
		{why: "a page of another origin", shown: shown(t, "orders.example"), request: with("", "Sec-Fetch-Site", "cross-site"), status: 403, says: "other origins"},
		{why: "an older browser says it so", shown: shown(t, "orders.example"), request: with("", "Origin", "https://evil.example"), status: 403, says: "other origins"},
	} {
		a := w.by(tt.shown, !tt.untrusted, tt.request)
		if a.status != tt.status || !strings.Contains(a.string("detail"), tt.says) {
			t.Errorf("%s: %d %s, want %d and %q", tt.why, a.status, a.text, tt.status, tt.says)
		}
	}
}

// What is taken out of the file counts no more, whatever connection it came by.
func TestCallersByCertificatesGo(t *testing.T) {
	w := certifiedWorld(t)
	orders := shown(t, "orders.example")
	token := w.by(orders, true, request{method: "POST", path: "/v1/users/u1/tokens", body: `{"app": "shop"}`})
	if token.status != 201 {
		t.Fatalf("a token: %d %s", token.status, token.text)
	}
	devices := func() int {
		return w.do(request{method: "GET", path: "/v1/users/u1/devices", key: token.string("token")}).status
	}
	if status := devices(); status != 200 {
		t.Fatalf("by the token: %d", status)
	}
	w.certify(t, `{"name": "orders-2", "certificate": "orders-new.example", "sender": "orders", "apps": ["shop"], "rights": ["send", "users"]}`)
	if a := w.by(orders, true, request{method: "POST", path: "/v1/messages", body: plain}); a.status != 401 {
		t.Errorf("the former name: %d %s", a.status, a.text)
	}
	if a := w.by(shown(t, "orders-new.example"), true, request{method: "POST", path: "/v1/messages", body: plain}); a.status != 202 {
		t.Errorf("the new name: %d %s", a.status, a.text)
	}
	if status := devices(); status != 401 {
		t.Errorf("a token that the former name has made: %d, want 401", status)
	}
}

func TestNamesInCertificates(t *testing.T) {
	for name, good := range map[string]bool{
		"orders": true, "orders.prod.svc": true, "a_b.example": true, "spiffe://example.org/ns/prod/sa/orders": true, "https://orders.example/": true,
		"Orders.example": false, "*.example": false, ".example": false, "orders.": false, "orders example": false, "spiffe:orders": false,
		"://x": false, "spiffe://example.org/a b": false, strings.Repeat("a.", 128) + "a": false, "": false,
	} {
		if err := checkCertificateName(name); (err == nil) != good {
			t.Errorf("%q: %v, good is %v", name, err, good)
		}
	}
}
