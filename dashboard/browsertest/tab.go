package browsertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Tab is a page of a browser. Its methods are for the goroutine of its test, and end that
// test if what they want does not come about.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex // guards the two below
	faults   []string
	requests []string
}

// hear notes what the page complains of, and whom it asks.
func (p *Tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, word := range e.Args {
				p.faults = append(p.faults, "console: "+string(word.Value)+word.Description)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.faults = append(p.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	}
}

// Context is that of the tab, for what chromedp can do and Tab cannot.
func (p *Tab) Context() context.Context { return p.ctx }

// Run does things in the page, one after the other.
func (p *Tab) Run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fail(err)
	}
}

// Fill puts words into the field of a selector, which is there or comes, in place of what
// was in it.
func (p *Tab) Fill(selector, words string) {
	p.t.Helper()
	p.Run(chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.SetValue(chromedp.CSS(selector), words))
}

// Click clicks on the first element of a selector, which is there or comes.
func (p *Tab) Click(selector string) {
	p.t.Helper()
	p.Run(chromedp.Click(chromedp.CSS(selector)))
}

// Enter presses Enter in the field of a selector. Unlike a click it does not miss what moves
// meanwhile.
func (p *Tab) Enter(selector string) {
	p.t.Helper()
	p.Run(chromedp.SendKeys(chromedp.CSS(selector), "\r"))
}

// Value is what an expression, a string, is in the page now.
func (p *Tab) Value(expression string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		p.Fail(err)
	}
	return value
}

// Fail ends the test with what the page says.
func (p *Tab) Fail(err error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	says, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText")) // best effort
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Fatalf("%v; faults %v; the page says\n%s", err, p.faults, says)
}

// Until waits until an expression is true in the page. It is asked from outside: the
// page's policy allows no evaluation in it.
func (p *Tab) Until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); err == nil && is {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.Fail(fmt.Errorf("not true: %s", expression))
		}
	}
}

// Clean checks that the page complained of nothing, but for what is expected, and asked
// nobody but a host, "name:port".
func (p *Tab) Clean(host string, expected ...string) {
	p.t.Helper()
	for _, complaint := range p.complaints(host, expected) {
		p.t.Error(complaint)
	}
}

func (p *Tab) complaints(host string, expected []string) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		known := false
		for _, e := range expected {
			known = known || strings.Contains(f, e)
		}
		if !known {
			list = append(list, "the page complains: "+f)
		}
	}
	if len(p.requests) == 0 {
		list = append(list, "no request was seen")
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, "http://"+host+"/") && !strings.HasPrefix(url, "data:") {
			list = append(list, "it asked for "+url)
		}
	}
	return list
}

// Restarted are what a page complains of while its server is away, as Clean expects it.
func Restarted() []string {
	return []string{"ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"}
}

// Script runs a script in a page.
func Script(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](text)
}

// Text is an expression: the text of the first element of a selector is this.
func Text(selector, want string) string {
	return fmt.Sprintf("document.querySelector(%q)?.textContent === %q", selector, want)
}

// Has is an expression: some element of a selector has this in its text.
func Has(selector, want string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%q)].some((n) => n.textContent.includes(%q))", selector, want)
}
