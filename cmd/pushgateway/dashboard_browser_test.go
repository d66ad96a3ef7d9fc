package main

import (
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
)

// The page of a team asks for a key by which somebody is known: a wrong one is told so, one
// that does not open the fleet is told why and may be followed by another, and with that the
// page is there until its session is left.
func TestATeamLogsInOnThePage(t *testing.T) {
	chrome := browsertest.Start(t)
	b, stop := serveBoard(t, teamFleet(t), nil)
	defer stop()
	host := strings.TrimPrefix(b.url, "http://")
	p := chrome.Open(b.url + "/")
	give := func(key string) {
		p.Fill("input[name=key]", key)
		p.Enter("input[name=key]")
	}
	give("no key of anybody's")
	p.Until("document.querySelector('#wrong')?.hidden === false")
	give(keyOf("narrow"))
	p.Until(browsertest.Has("#refused", "the key narrow is not for all apps, and a dashboard shows all: bank missing") + " && document.querySelector('#wrong').hidden")
	give(keyOf("app"))
	p.Until(browsertest.Has("#refused", `the key app has not the right "dashboard"`))
	give(keyOf("eye"))
	p.Until(browsertest.Text("#status", "live") + " && document.querySelector('#login').hidden")
	p.Click("#logout button")
	p.Until("document.querySelector('form#login') && !document.querySelector('#status')")
	p.Clean(host, "403")
}
