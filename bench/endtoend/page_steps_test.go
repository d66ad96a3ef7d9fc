//go:build unix

package endtoend

import (
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// question is about a notification, with what the page must answer.
type question struct {
	id      string
	outcome push.Outcome
	reason  string
}

// showsWhatWasSent has the fleet send a bit of everything. It returns what to ask about it.
func (b *board) showsWhatWasSent() (questions []question) {
	b.t.Helper()
	plain := b.users[crowd.Plain]
	for i := range 300 {
		b.deliver(plain[i%len(plain)], "order")
	}
	b.copies = slices.Clone(b.batch[:10])
	for i := range 7 {
		b.deliver(plain[i], scriptName)
	}
	ask := func(id string, o push.Outcome, reason string) { questions = append(questions, question{id, o, reason}) }
	suppressed := push.StateSuppressed.String()
	for range 4 {
		ask(b.add(b.users[crowd.OptedOut][0], "order", kind{state: suppressed, reason: string(push.OptedOutAll)}), push.OutcomeSuppressed, string(push.OptedOutAll))
	}
	for _, u := range b.users[crowd.NoDevice][:3] {
		ask(b.add(u, "order", kind{state: suppressed, reason: string(push.NoDevice)}), push.OutcomeSuppressed, string(push.NoDevice))
	}
	for range capMax {
		b.deliver(plain[0], cappedType)
	}
	for range 5 {
		ask(b.add(plain[0], cappedType, kind{state: suppressed, reason: limited}), push.OutcomeSuppressed, limited)
	}
	for range 6 {
		past := func(m map[string]any) { m["expires_at"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) }
		ask(b.add(plain[1], "order", kind{state: push.StateExpired.String(), reason: string(push.PastExpiry)}, past), push.OutcomeExpired, string(push.PastExpiry))
	}
	for _, u := range b.users[crowd.DeadToken] {
		of := u.Devices[0].Platform
		reason := map[push.Platform]string{push.APNS: "Unregistered", push.FCM: "UNREGISTERED"}[of]
		ask(b.add(u, "order", kind{state: push.StateFailed.String(), provider: of.String(), reason: reason}), push.OutcomeFailed, reason)
	}
	nobodys := func(m map[string]any) { m["app"] = scriptName }
	for range 2 {
		ask(b.add(plain[2], scriptName, kind{state: push.StateDeadLettered.String(), reason: string(push.UnknownApp)}, nobodys), push.OutcomeDeadLettered, string(push.UnknownApp))
	}
	b.produce()
	b.showsAll()
	b.page.Until(browsertest.Has("[data-facet=app] button", scriptName) + " && " + browsertest.Has("[data-facet=type] button", scriptName) + " && document.querySelectorAll('img').length === 0")
	return questions
}

const limited = string(push.Limited) + ":" + capRule

// saysWhyItDidNotArrive asks the page about notifications, and about users.
func (b *board) saysWhyItDidNotArrive(questions []question) {
	b.t.Helper()
	for _, q := range questions {
		b.answers(q.id, q.outcome.String(), explain.Reason(q.reason, ""))
	}
	p := b.page
	about := func(u crowd.User, typ string) {
		b.t.Helper()
		p.Fill("#user input[name=user]", u.ID)
		if typ != "" {
			p.Fill("#user input[name=type]", typ)
		}
		p.Enter("#user input[name=user]")
		p.Until(browsertest.Text("#answer-body p", "user "+u.ID))
	}
	about(b.users[crowd.OptedOut][0], "")
	p.Until(browsertest.Has("[data-steps] li.bad", "opted out of everything"))
	about(b.users[crowd.NoDevice][0], "")
	p.Until(browsertest.Has("[data-steps] li.bad", explain.Reason(string(push.NoDevice), "")))

	asked := time.Now()
	about(b.users[crowd.Plain][0], cappedType)
	spent := fmt.Sprintf("limit %s: %d of %[2]d used, begins anew", capRule, capMax)
	p.Until(browsertest.Has("[data-steps] li.bad", spent) + " && " + browsertest.Has("[data-steps] li.bad", "SUPPRESSED: "+limited))
	says := p.Value(fmt.Sprintf("[...document.querySelectorAll('[data-steps] li')].find((n) => n.textContent.includes(%q)).textContent.match(/\\(([^)]*)\\)$/)[1]", spent))
	free, err := time.Parse(time.RFC3339Nano, says)
	if day := asked.Add(24 * time.Hour); err != nil || free.After(day) || free.Before(day.Add(-time.Hour)) {
		b.t.Errorf("a limit of a day that was met just now is free again at %q (%v)", says, err)
	}
}

// answers asks the page about a notification until it answers with an outcome and words.
func (b *board) answers(id, outcome, words string) {
	b.t.Helper()
	const asking = "document.querySelector('#answer-body').textContent === 'asking …'"
	says := browsertest.Has("#answer-body p", "notification "+id) + " && " + browsertest.Text("[data-outcome]", outcome) + " && " + browsertest.Has("#answer-body", words)
	for ctx := waiting(b.t); ; {
		b.page.Fill("#find input", id)
		b.page.Enter("#find input")
		b.page.Until("!(" + asking + ")")
		if b.page.Value("String("+says+")") == "true" {
			return
		}
		if ctx.Err() != nil {
			b.page.Fail(fmt.Errorf("no answer for %s says %s and %q", id, outcome, words))
		}
	}
}

// notes has the page note since which snapshot it shows an expression. Where it shows it no
// more, such as a worker that was late and not gone, nothing is noted.
func (b *board) notes(expression string) {
	b.t.Helper()
	b.page.Run(browsertest.Script(fmt.Sprintf(`(() => {
		window.noting?.disconnect();
		window.noted = '';
		window.noting = new MutationObserver(() => {
			if (!(%s)) window.noted = '';
			else window.noted ||= document.body.dataset.at;
		});
		window.noting.observe(document.body, {attributes: true, childList: true, characterData: true, subtree: true});
	})()`, expression)))
}

// noted waits until it has noted one, and returns its time.
func (b *board) noted() time.Time { return b.moment("window.noted") }

// moment waits until an expression is a time, and returns it.
func (b *board) moment(expression string) time.Time {
	b.t.Helper()
	text := ""
	for text == "" { // it may be gone again, once it was there
		b.page.Until(expression)
		text = b.page.Value("(" + expression + ") ?? ''")
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	check(b.t, err)
	return at
}

// showsAPause has FCM ask for a pause, and judges by the time of the page's snapshot when it
// was there. On a busy machine a worker may tell of it late, so it is tried again then; a
// page that is slow by itself is so each time.
func (b *board) showsAPause() {
	b.t.Helper()
	const within, times = 2 * time.Second, 5
	var took []time.Duration
	for len(took) < times && (took == nil || took[len(took)-1] > within) {
		took = append(took, b.pause())
	}
	b.t.Logf("a pause was on the page after %v", took)
	if took[len(took)-1] > within {
		b.t.Errorf("it was never there within %v", within)
	}
}

// pause has FCM ask for one pause, and returns how long it took to be shown. What is to be
// sent meanwhile waits, and is delivered afterwards.
func (b *board) pause() time.Duration {
	b.t.Helper()
	lamp := fmt.Sprintf("document.querySelector('#routes [data-route=%q]')?.dataset.lamp", "fcm/"+fleet.App)
	b.notes(lamp + " === 'paused'")
	b.refused.Store(nil)
	check(b.t, b.Sim.SetFaults(sim.FCM, sim.Faults{Unavailable: 1, RetryAfter: asked}))
	byFCM := slices.IndexFunc(b.users[crowd.Plain], func(u crowd.User) bool { return u.Devices[0].Platform == push.FCM })
	id := b.deliver(b.users[crowd.Plain][byFCM], "order")
	b.produce()
	shown := b.noted()
	b.answers(id, push.OutcomeOpen.String(), explain.Reason("UNAVAILABLE", ""))
	check(b.t, b.Sim.SetFaults(sim.FCM, sim.Faults{}))
	b.page.Until(lamp + " !== 'paused'")
	b.showsAll()
	b.answers(id, push.OutcomeDelivered.String(), "1 of 1 devices")
	return shown.Sub(*b.refused.Load())
}

// losesNothingByAKill kills a worker while both send.
func (b *board) losesNothingByAKill() {
	b.t.Helper()
	const some, within = 100, 10 * time.Second
	b.answerAfter(300 * time.Millisecond)
	plain := b.users[crowd.Plain]
	for i := range 800 {
		b.deliver(plain[i%len(plain)], "news")
	}
	b.batch = append(b.batch, b.copies...)
	b.want[kind{state: "DUPLICATE", app: fleet.App, typ: "order"}] += len(b.copies)
	before := b.Sim.Ledger().Totals().Accepted
	const gone = "[...document.querySelectorAll('#gone li')].find((n) => n.textContent.startsWith('worker-b is gone without a word'))"
	b.notes(gone)
	b.produce()
	check(b.t, b.AwaitAccepted(waiting(b.t), before+some))
	check(b.t, b.workers["worker-b"].Kill())
	shown := b.noted()
	heard := b.moment(gone + "?.dataset.heard")
	b.t.Logf("the killed worker was gone %v after its last word", shown.Sub(heard))
	if shown.Sub(heard) > within {
		b.t.Errorf("a killed worker was on the page for %v after its last word, want %v at most", shown.Sub(heard), within)
	}
	b.answerAfter(0)
	b.page.Until("document.querySelectorAll('#workers tbody tr').length === 1 && " + b.row("worker-a", "partitions", "4 of 4"))
	b.showsAll()
}

// goesOnAfterARestart kills the page's server: the page goes on by itself, and a server that
// has read all anew says the same.
func (b *board) goesOnAfterARestart() {
	b.t.Helper()
	check(b.t, b.dashboard.Kill())
	b.page.Until("document.querySelector('#status').className === 'lost'")
	b.serve(b.host)
	b.page.Until(browsertest.Text("#status", "live"))
	b.showsAll()
	for _, u := range b.users[crowd.Plain][:5] {
		b.deliver(u, "order")
	}
	b.produce()
	b.showsAll()
	b.page.Until("document.querySelectorAll('img').length === 0")
}
