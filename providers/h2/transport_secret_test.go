package h2

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// Secret headers are marked as never indexed, so that no hop stores them. A
// request without a method is a GET.
func TestTransportKeepsSecretsOutOfTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := map[string]bool{}
		method := ""
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) {
			for f := c.next(); f != nil; f = c.next() {
				if head, ok := f.(*http2.MetaHeadersFrame); ok {
					method = head.PseudoValue("method")
					for _, field := range head.RegularFields() {
						secret[field.Name] = field.Sensitive
					}
					c.answer(head.StreamID)
				}
			}
		}
		tr := &Transport{Pool: s.pool(Options{Connections: 1})}
		res, err := tr.RoundTrip(&http.Request{URL: &url.URL{Scheme: "https", Host: "push.example", Path: "/x"},
			Header: http.Header{"Authorization": {"bearer a"}, "Cookie": {"b=c"}, "Proxy-Authorization": {"basic d"}, "Accept": {"text/plain"}, "X-Other": {"e"}}})
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		want := map[string]bool{"authorization": true, "cookie": true, "proxy-authorization": true, "accept": false, "x-other": false}
		for name, is := range want {
			if got, came := secret[name]; !came || got != is {
				t.Errorf("%s came: %v, as a secret: %v, want %v", name, came, got, is)
			}
		}
		if len(secret) != len(want) || method != "GET" {
			t.Errorf("%s with %v", method, secret)
		}
	})
}
