package gateway

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// dnsName is a name of a host, in small letters. A wildcard is none: it would stand for
// whoever has some name under it.
var dnsName = regexp.MustCompile(`^([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)

// maxCertificateName bounds a name in a certificate, in bytes.
const maxCertificateName = 255

// checkCertificateName says what is wrong with a name that callers' certificates have: a
// DNS name, or a URI such as SPIFFE's.
func checkCertificateName(name string) error {
	if len(name) > maxCertificateName {
		return errors.New("the name is longer than 255 characters")
	}
	if !strings.Contains(name, ":") {
		if !dnsName.MatchString(name) {
			return errors.New("want a DNS name in small letters, without wildcards, or a URI (spiffe://example.org/orders)")
		}
		return nil
	}
	if u, err := url.Parse(name); err != nil || u.Scheme == "" || u.Host == "" || u.String() != name {
		return errors.New("want a URI as it stands in the certificate (spiffe://example.org/orders), or a DNS name")
	}
	return nil
}

// certificateOf is the certificate by which a request without a key says who calls; nil =
// there is none that a trusted CA has signed, or there is a key, which is what counts then.
func certificateOf(r *http.Request) *x509.Certificate {
	if _, keyed := r.Header["Authorization"]; keyed || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// certified finds the caller of a request by the names of its certificate: DNS names and
// URIs of the subject's alternative names. The common name says nothing (RFC 9525, section 2).
func (c *Callers) certified(r *http.Request, leaf *x509.Certificate) (*Caller, *Problem) {
	// Connections may outlive what they began with.
	if now := clock(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return nil, newProblem(codeUnauthorized, "the certificate is not valid now")
	}
	// A browser shows its certificate to whichever page makes it ask.
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return nil, newProblem(codeForbidden, "by a certificate nothing is taken from pages of other origins")
	}
	known := c.now.Load().certificates
	var found *Caller
	take := func(name string) (clash bool) {
		caller := known[name]
		if caller == nil || caller == found {
			return false
		}
		clash = found != nil
		found = caller
		return clash
	}
	for _, name := range leaf.DNSNames {
		if take(strings.ToLower(name)) {
			return nil, newProblem(codeUnauthorized, "the certificate has names of several callers")
		}
	}
	for _, uri := range leaf.URIs {
		if take(uri.String()) {
			return nil, newProblem(codeUnauthorized, "the certificate has names of several callers")
		}
	}
	if found == nil {
		return nil, newProblem(codeUnauthorized, "no caller is known by a name of this certificate")
	}
	return found, nil
}
