package gateway

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
)

// The contract is a page in a browser, which shows every operation, asks nobody but the
// gateway, and on which a request can be tried with a key.
func TestTheContractIsAPage(t *testing.T) {
	chrome := browsertest.Start(t)
	server := httptest.NewServer(newWorld(t).gateway)
	t.Cleanup(server.Close)
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	p := chrome.Open(server.URL + "/openapi")
	const drawn = "document.querySelector('rapi-doc').shadowRoot"
	for _, operations := range doc["paths"].(map[string]any) {
		for _, o := range operations.(map[string]any) {
			if o, is := o.(map[string]any); is {
				p.Until(fmt.Sprintf("%s.textContent.includes(%q)", drawn, o["summary"]))
			}
		}
	}

	const request = "[..." + drawn + ".querySelectorAll('api-request')].find((r) => r.getAttribute('path') === '/v1/limits').shadowRoot"
	try := func(want string) {
		t.Helper()
		p.Run(browsertest.Script("[..." + request + ".querySelectorAll('button')].find((b) => b.textContent.trim() === 'TRY').click()"))
		p.Until(fmt.Sprintf("%s.textContent.includes(%q)", request, want))
	}
	try("Response Status: Unauthorized:401")
	p.Run(browsertest.Script(fmt.Sprintf("%s.querySelector('#http-key-api-key-input').value = %q", drawn, keyOrders)),
		browsertest.Script(drawn+".querySelector('#http-key-api-key-input ~ button').click()"))
	try("Response Status: OK:200")
	p.Clean(strings.TrimPrefix(server.URL, "http://"), "401")
}
