// Package browsertest drives a real headless browser for tests of pages: it opens them,
// waits for what they show, and holds against them what they complain of and whom they ask.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/deploy/local"
)

// Patience bounds what a page may take to show something. It is not an expectation: the
// machine may be busy with something else.
const Patience = 3 * time.Minute

// Browser is a browser that runs until its test ends.
type Browser struct {
	t   testing.TB
	ctx context.Context
}

// Start starts a real browser. Without one the test fails where real servers are wanted,
// and is passed over elsewhere.
func Start(t testing.TB) *Browser {
	t.Helper()
	wanted := os.Getenv(local.EnvServers) != ""
	path := ""
	for _, name := range []string{"chromium", "chromium-headless-shell", "google-chrome", "chromium-browser"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	switch {
	case !wanted:
		t.Skip("no browser is started: make test, or `go run ./deploy/local/servers run -- go test` of this package, do so")
	case path == "":
		t.Fatal("no browser: deploy/local/fetch.sh --tests installs chromium on Debian")
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(Patience))...)
	t.Cleanup(cancel)
	return &Browser{t, ctx}
}

// Open opens a page in a tab of its own, once the actions before it are done.
func (b *Browser) Open(url string, before ...chromedp.Action[chromedp.Void]) *Tab {
	b.t.Helper()
	p := &Tab{t: b.t}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithErrorf(func(string, ...any) {}), chromedp.WithListener(p.hear)) // errors are values of the protocol that are new
	b.t.Cleanup(cancel)
	p.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // it begins here, and lives as long as this context
		b.t.Fatal(err)
	}
	p.Run(append(before, chromedp.Navigate(url))...)
	return p
}
