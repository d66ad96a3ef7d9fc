package dashboard

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
)

// Dead letters are on the page without their texts, and are redriven and dismissed there by
// who has the admin key and types what is to be done; the audit topic knows who it was.
func TestPageRedrives(t *testing.T) {
	chrome := browsertest.Start(t)
	access, err := NewAccess("", adminKey, false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	const secret = "Your code is 4711"
	for _, id := range []string{"n-1", "n-2", "n-3"} {
		w.deadLetter(id, "shop", secret)
	}
	w.deadLetter("n-4", hostile, secret)
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := chrome.Open("http://"+host+"/", chromedp.EmulateViewport(1400, 1000))
	p.Until(browsertest.Text("#status", "live"))
	list := func(want string) {
		t.Helper()
		p.Run(chromedp.SendKeys(chromedp.CSS("#letters input[name=lane]"), "\r")) // by the keyboard
		p.Until(browsertest.Has("#letters-says", want))
	}
	list("4 open. To redrive or dismiss, log in with the admin key.")
	p.Until(browsertest.Has("#letters-table td", hostile) + " && document.querySelectorAll('img').length === 0")
	p.Until("!document.documentElement.innerHTML.includes('4711')")

	// A dry run is for everybody; doing it is not.
	p.Run(chromedp.SetValue(chromedp.CSS("#letters input[name=app]"), "shop"), chromedp.Click(chromedp.CSS("#letters-redrive")))
	p.Until(browsertest.Has("#letters-says", "A dry run: 3 would be redriven") + " && " + browsertest.Text("#letters-words", "redrive 3"))
	act := func(words string) {
		t.Helper()
		p.Run(chromedp.SetValue(chromedp.CSS("#letters-plan input[name=by]"), "ann"), chromedp.SetValue(chromedp.CSS("#letters-plan input[name=confirm]"), words),
			chromedp.SendKeys(chromedp.CSS("#letters-plan input[name=confirm]"), "\r"))
	}
	act("redrive 3")
	p.Until(browsertest.Has("#letters-says", "the admin key is needed"))

	p.Run(chromedp.Click(chromedp.CSS("#login")))
	logIn(p, adminKey)
	list("You may redrive and dismiss.")
	p.Run(chromedp.SetValue(chromedp.CSS("#letters input[name=app]"), "shop"), chromedp.Click(chromedp.CSS("#letters-redrive")))
	p.Until(browsertest.Text("#letters-words", "redrive 3") + " && !document.querySelector('#letters-plan').hidden")
	act("redrive 33")
	p.Until(browsertest.Has("#letters-says", "Nothing was done: type redrive 3"))
	if got := w.marks(); len(got) != 0 {
		t.Fatalf("it was done: %v", got)
	}
	act("redrive 3")
	p.Until(browsertest.Has("#letters-says", "3 were redriven"))
	w.waits(retryTopic, 3)
	p.Run(browsertest.Script("document.querySelector('#letters input[name=app]').value = ''"))
	list("1 open.")

	p.Run(chromedp.Click(chromedp.CSS("#letters-dismiss")))
	p.Until(browsertest.Text("#letters-words", "dismiss 1") + " && !document.querySelector('#letters-plan').hidden")
	act("dismiss 1")
	p.Until(browsertest.Has("#letters-says", "1 were dismissed"))
	list("0 open.")
	marks := w.marks()
	for id, want := range map[string]string{"n-1": kafka.Redriven, "n-2": kafka.Redriven, "n-3": kafka.Redriven, "n-4": kafka.Dismissed} {
		if m := marks[id]; m.What != want || m.By != "ann (dashboard)" {
			t.Errorf("%s is marked %+v, want %s", id, m, want)
		}
	}
	p.Clean(host, "403")
}

// logIn gives a key to the page that asks for it.
func logIn(p *browsertest.Tab, key string) {
	p.Fill("input[name=key]", key)
	p.Click("#login button")
	p.Until(browsertest.Text("#status", "live"))
}

// What was counted is done only while the words stand there that it was counted for: who
// changes them meanwhile, or afterwards, has nothing to confirm.
func TestPageForgetsWhatWasCountedForOtherWords(t *testing.T) {
	chrome := browsertest.Start(t)
	access, err := NewAccess("", adminKey, false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	for _, app := range []string{"shop", "bank"} {
		w.deadLetter("n-"+app, app, "")
	}
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := chrome.Open("http://"+host+"/login", chromedp.EmulateViewport(1400, 1000))
	logIn(p, adminKey)
	p.Run(chromedp.SendKeys(chromedp.CSS("#letters input[name=lane]"), "\r"))
	p.Until(browsertest.Has("#letters-says", "2 open."))

	// counted counts for an app, and calls meanwhile before the answer comes.
	counted := func(app string, meanwhile func()) {
		t.Helper()
		release := w.counts.holdUp()
		p.Run(chromedp.SetValue(chromedp.CSS("#letters input[name=app]"), app), chromedp.Click(chromedp.CSS("#letters-redrive")))
		select {
		case <-w.counts.began:
		case <-time.After(browsertest.Patience):
			t.Fatal("nothing is counted")
		}
		p.Until(browsertest.Text("#letters-says", "counting …"))
		meanwhile()
		release()
	}
	typing := func(words string) func() {
		return func() { p.Run(chromedp.SendKeys(chromedp.CSS("#letters input[name=app]"), words)) }
	}
	hidden := "document.querySelector('#letters-plan').hidden"
	for name, change := range map[string]func(){
		"typed":               typing("x"),
		"filled by a program": func() { p.Run(chromedp.SetValue(chromedp.CSS("#letters input[name=app]"), "bank")) },
	} {
		counted("shop", change)
		p.Until(browsertest.Has("#letters-says", "count again"))
		if is, err := chromedp.Run(p.Context(), chromedp.Evaluate[bool](hidden)); err != nil || !is {
			t.Errorf("words that are %s while others are counted can be confirmed (%v)", name, err)
		}
	}

	counted("shop", func() {})
	p.Until(browsertest.Text("#letters-words", "redrive 1") + " && !" + hidden)
	typing("x")()
	p.Until(hidden)

	// The same words count, and what is typed is done to those alone.
	counted("shop", func() {})
	p.Until("!" + hidden)
	p.Run(chromedp.SetValue(chromedp.CSS("#letters-plan input[name=by]"), "ann"), chromedp.SetValue(chromedp.CSS("#letters-plan input[name=confirm]"), "redrive 1"),
		chromedp.SendKeys(chromedp.CSS("#letters-plan input[name=confirm]"), "\r"))
	p.Until(browsertest.Has("#letters-says", "1 were redriven"))
	if marks := w.marks(); len(marks) != 1 || marks["n-shop"].What != kafka.Redriven {
		t.Errorf("marks %+v", marks)
	}
	p.Clean(host)
}

// marks are the marks of dead letters by the ids of their notifications.
func (w *world) marks() map[string]dlq.Mark {
	w.t.Helper()
	list, _, err := w.letters.List(w.t.Context(), dlq.ListOptions{Filter: dlq.Filter{Marked: true}})
	if err != nil {
		w.t.Fatal(err)
	}
	marks := map[string]dlq.Mark{}
	for _, l := range list {
		if l.Mark != nil {
			marks[l.ID] = *l.Mark
		}
	}
	return marks
}

// waits checks how many records a topic has.
func (w *world) waits(topic string, want int64) {
	w.t.Helper()
	f, err := kafka.NewFollower(kafka.Options{Brokers: w.kafka.Addrs()}, topic, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	ends, err := f.EndOffsets(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	n := int64(0)
	for _, end := range ends {
		n += end
	}
	if n != want {
		w.t.Errorf("%s has %d records, want %d", topic, n, want)
	}
}
