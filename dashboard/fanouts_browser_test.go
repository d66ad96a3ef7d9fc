package dashboard

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
)

// Fan-outs that gateways accept come to the page by their topic, without their texts, and
// are paused and cancelled there by what is typed.
func TestPageOrdersFanouts(t *testing.T) {
	chrome := browsertest.Start(t)
	access, err := NewAccess("", adminKey, false)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access)
	j := newJob(t, time.Now())
	value, err := fanout.EncodeJob(j)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.jobs.Append(t.Context(), []kafka.Record{{Key: j.Message[:], Value: value}, {Value: []byte("none")}, {Key: j.Message[:], Value: value}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.fanouts.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if err := w.fanouts.End(t.Context(), j.Message, 0, &fanout.Counts{Emitted: 1234}); err != nil {
		t.Fatal(err)
	}
	w.read()
	host, _ := w.serve("127.0.0.1:0")
	p := chrome.Open("http://"+host+"/login", chromedp.EmulateViewport(1400, 1000))
	logIn(p, adminKey)
	patient, cancel := context.WithTimeout(t.Context(), browsertest.Patience)
	defer cancel()
	for !w.feed.knows(j.Message) { // its topic is read beside the others
		select {
		case <-time.After(50 * time.Millisecond):
		case <-patient.Done():
			t.Fatal("the fan-out was not read")
		}
	}
	p.Run(chromedp.SendKeys(chromedp.CSS("#fanouts input[name=id]"), "\r"))
	p.Until("document.querySelectorAll('#fanouts-table tbody tr').length === 1 && " + browsertest.Has("#fanouts-table tr", "1 of 16") + " && " + browsertest.Has("#fanouts-table td", "1,234") + " && " + browsertest.Has("#fanouts-table td", hostile))
	p.Until("!document.documentElement.innerHTML.includes('" + fanoutText + "')")
	id := j.Message.String()
	order := func(column, words string) {
		t.Helper()
		p.Run(browsertest.Script("[...document.querySelectorAll('#fanouts-table tbody button')].find((b) => b.textContent === '"+column+"').focus()"), chromedp.KeyEvent("\r"))
		p.Until("!document.querySelector('#fanouts-plan').hidden")
		p.Run(chromedp.SetValue(chromedp.CSS("#fanouts-plan input[name=by]"), "ann"), chromedp.SetValue(chromedp.CSS("#fanouts-plan input[name=confirm]"), words),
			chromedp.SendKeys(chromedp.CSS("#fanouts-plan input[name=confirm]"), "\r"))
	}
	order("pause", "pause it")
	p.Until(browsertest.Has("#fanouts-says", "Nothing was done"))
	for _, o := range []struct {
		word string
		want fanout.State
	}{{"pause", fanout.Paused}, {"resume", fanout.Running}, {"cancel", fanout.Cancelled}} {
		order(o.word, o.word+" "+id[len(id)-6:])
		p.Until(browsertest.Has("#fanouts-says", "Noted: "+o.word) + " && " + browsertest.Has("#fanouts-table td", o.want.String()))
		if got, err := w.fanouts.State(t.Context(), j.Message); got != o.want || err != nil {
			t.Errorf("after %s it is %v, %v", o.word, got, err)
		}
	}
	p.Until("[...document.querySelectorAll('#fanouts-table tbody button')].every((b) => b.textContent === '')")
	p.Clean(host)
}
