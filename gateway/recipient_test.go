package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// why asks why a user got a message, or not.
func (w *world) why(id, user, key string) *reply {
	w.t.Helper()
	return w.do(request{method: "GET", path: "/v1/messages/" + url.PathEscape(id) + "/recipients/" + url.PathEscape(user), key: key})
}

// said is an answer about a recipient in short: status, reason and final, and the states of
// its steps.
func said(a *reply) string {
	steps, _ := a.json["steps"].([]any)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %v:", a.string("status"), a.string("reason"), a.json["final"])
	for _, s := range steps {
		step := s.(map[string]any)
		fmt.Fprintf(&b, " %s=%s", step["step"], step["state"])
		if reason, is := step["reason"]; is {
			fmt.Fprintf(&b, "(%s)", reason)
		}
	}
	return b.String()
}

// Of a message to a user: its states, step by step, or that it is somebody else's.
func TestWhyOfASingleMessage(t *testing.T) {
	w := newWorld(t)
	id, receipt := w.accepted()
	if got := said(w.why(receipt, "u42", keyOrders)); got != "PENDING  false: message=accepted receiver=user" {
		t.Errorf("not worked on: %s", got)
	}
	if got := said(w.why(receipt, "u43", keyOrders)); got != "NOT_SENT not_receiver true: message=accepted receiver=other" {
		t.Errorf("another user's: %s", got)
	}
	retry, end := w.row(id, "a", 0, push.StateRetrying, "timeout"), w.row(id, "a", 1, push.StateDelivered, "")
	retry.At = end.At.Add(-time.Minute)
	w.rows[id] = []push.Row{end, retry}
	a := w.why(receipt, "u42", keyOrders)
	if got := said(a); got != "DELIVERED  true: message=accepted receiver=user state=RETRYING(timeout) state=DELIVERED" || a.string("notification") != id || !strings.Contains(a.text, "no answer arrived in time") {
		t.Errorf("delivered: %s\n%s", got, a.text)
	}
	w.rows[id] = []push.Row{w.row(id, "", 0, push.StateSuppressed, "limited:per-day")}
	if a := w.why(receipt, "u42", keyOrders); said(a) != "FAILED limited:per-day true: message=accepted receiver=user state=SUPPRESSED(limited:per-day)" ||
		a.string("meaning") != "it was not meant to be sent: it would have exceeded a limit of the user: per-day" {
		t.Errorf("limited: %s", a.text)
	}

	// A bare id is for admins, and of one user's rows alone.
	if a := w.why(id, "u42", keyOrders); a.code() != "no_receipt" {
		t.Errorf("a bare id: %s", a.text)
	}
	if got := said(w.why(id, "u42", keySupport)); got != "FAILED limited:per-day true: receiver=user state=SUPPRESSED(limited:per-day)" {
		t.Errorf("a bare id, for an admin: %s", got)
	}
	if got := said(w.why(id, "u43", keySupport)); got != "NOT_SENT not_receiver true: receiver=other" {
		t.Errorf("a bare id of another user, for an admin: %s", got)
	}
	if a := w.why("nothing-of-this-id", "u42", keySupport); a.code() != "no_receipt" {
		t.Errorf("no such id: %s", a.text)
	}
	for why, key := range map[string]string{"without the right": keyLogins, "of another sender": keyReader} {
		if a := w.why(receipt, "u42", key); a.status != http.StatusForbidden && a.code() != "no_receipt" {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
	if a := w.why(receipt, strings.Repeat("u", 129), keyOrders); a.code() != "invalid_field" {
		t.Errorf("a user's id that is too long: %s", a.text)
	}
	w.rowsErr = errAway
	if a := w.why(receipt, "u42", keyOrders); a.code() != "status_away" {
		t.Errorf("the store is away: %s", a.text)
	}
}

// begun lets fan-outs begin with the message that was produced last.
func (r *reports) begun(t *testing.T, j *fanout.Job) {
	t.Helper()
	if _, err := r.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
}

// Of a message to a topic: the subscription as it was, the part of the audience, and the
// states of the user's own notification.
func TestWhyOfAMessageToATopic(t *testing.T) {
	w, notes := fanoutWorld(t)
	topic, err := w.topics.Memory.Topic(t.Context(), "snow")
	if err != nil {
		t.Fatal(err)
	}
	a := w.toSnow(`{"title": "Snow"}`)
	receipt := a.string("receipt")
	j, _ := w.lastJob()
	change := func(user string, mode subscriptions.Mode, at time.Duration) {
		t.Helper()
		c := []subscriptions.Change{{User: user, Mode: mode, At: j.Accepted.Add(at)}}
		if r := w.topics.Memory.Apply(t.Context(), &topic, c); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	const before, after = -time.Hour, time.Minute
	change("there", subscriptions.Push, before)
	change("gone", subscriptions.Push, before)
	change("gone", subscriptions.Left, before/2)
	change("going", subscriptions.Push, before)
	change("going", subscriptions.Left, after)
	change("late", subscriptions.Push, after)
	change("back", subscriptions.Push, before)
	change("back", subscriptions.Left, after)
	change("back", subscriptions.Push, 2*after)
	change("brief", subscriptions.Push, after)
	change("brief", subscriptions.Left, 2*after)

	ask := func(user string) string { t.Helper(); return said(w.why(receipt, user, keyOrders)) }
	if got := ask("there"); got != "PENDING  false: message=accepted" {
		t.Errorf("not begun: %s", got)
	}
	notes.begun(t, j)
	expect := func(when string, want map[string]string) {
		t.Helper()
		for user, want := range want {
			if got := ask(user); got != want {
				t.Errorf("%s, %s:\n%s, want\n%s", when, user, got, want)
			}
		}
	}
	expect("running", map[string]string{
		"there":   "PENDING  false: message=running subscription=push chunk=waiting",
		"never":   "NOT_SENT not_subscribed true: message=running subscription=left(not_subscribed) chunk=waiting",
		"gone":    "NOT_SENT left true: message=running subscription=left(left) chunk=waiting",
		"going":   "UNKNOWN left false: message=running subscription=left(left) chunk=waiting",
		"late":    "NOT_SENT later true: message=running subscription=push(later) chunk=waiting",
		"back":    "UNKNOWN later false: message=running subscription=push(later) chunk=waiting",
		"brief":   "UNKNOWN later false: message=running subscription=left(later) chunk=waiting",
		"a\u00e9": "NOT_SENT not_subscribed true: message=running subscription=left(not_subscribed) chunk=waiting",
	})
	order := func(s fanout.State, at time.Duration) {
		t.Helper()
		if err := notes.Memory.Order(t.Context(), j.Message, s, j.Accepted.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	order(fanout.Paused, after)
	expect("paused", map[string]string{"there": "PENDING paused false: message=paused subscription=push chunk=paused"})
	order(fanout.Running, 2*after)

	// The user's part is done: by now the notification is in the lane, and then it has states.
	for part := range j.To.Parts {
		if err := notes.End(t.Context(), j.Message, part, &fanout.Counts{Emitted: 1}); err != nil {
			t.Fatal(err)
		}
	}
	expect("ended", map[string]string{
		"there": "PENDING  false: message=ended subscription=push chunk=done",
		"going": "UNKNOWN left false: message=ended subscription=left(left) chunk=done",
		"never": "NOT_SENT not_subscribed true: message=ended subscription=left(not_subscribed) chunk=done",
	})
	id := fanout.ID(j.Message, "there")
	own := push.Row{ID: id, State: push.StateSuppressed, Reason: "opted_out_all", At: j.Accepted.Add(time.Second), UserHash: push.UserHash("there")}
	other := own
	other.UserHash = push.UserHash("somebody else")
	w.rows[id] = []push.Row{other}
	expect("with rows of another user", map[string]string{"there": "PENDING  false: message=ended subscription=push chunk=done"})
	w.rows[id] = []push.Row{other, own}
	if a := w.why(receipt, "there", keyOrders); said(a) != "FAILED opted_out_all true: message=ended subscription=push chunk=done state=SUPPRESSED(opted_out_all)" ||
		a.string("notification") != id || !strings.Contains(a.string("meaning"), "wants no notifications") {
		t.Errorf("with a state: %s", a.text)
	}

	// By the id that its notifications have as campaign too, for its own sender; nobody else sees it.
	campaign := j.Message.String()
	if got := said(w.why(campaign, "there", keyOrders)); !strings.HasPrefix(got, "FAILED opted_out_all true: message=ended") {
		t.Errorf("by its campaign: %s", got)
	}
	if got := said(w.why(campaign, "there", keySupport)); !strings.HasPrefix(got, "FAILED opted_out_all") {
		t.Errorf("for an admin: %s", got)
	}
	for why, id := range map[string]string{"by its campaign": campaign, "by the receipt": receipt, "no such": uuid.NewString()} {
		if a := w.why(id, "there", keyReader); a.code() != "no_receipt" {
			t.Errorf("of an app that is not its key's, %s: %s", why, a.text)
		}
	}
	order(fanout.Cancelled, 3*after)
	expect("cancelled", map[string]string{"never": "NOT_SENT not_subscribed true: message=cancelled subscription=left(not_subscribed) chunk=done"})

	w.topics.set(func() { w.topics.err = errAway })
	if a := w.why(receipt, "there", keyOrders); a.code() != "topics_away" {
		t.Errorf("topics are away: %s", a.text)
	}
	notes.set(errAway)
	for _, id := range []string{receipt, campaign} {
		if a := w.why(id, "there", keyOrders); a.code() != "status_away" {
			t.Errorf("notes are away: %s", a.text)
		}
	}
}

// A user who pulls is not pushed. A message that had expired for some says so, and one of
// which nobody can know any more is gone.
func TestWhyNobodyKnows(t *testing.T) {
	w, notes := fanoutWorld(t)
	if a := w.makeTopic("both", `{"app": "shop", "service_type": "transactional", "modes": ["push", "pull"]}`); a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	topic, err := w.topics.Memory.Topic(t.Context(), "both")
	if err != nil {
		t.Fatal(err)
	}
	a := w.do(request{method: "POST", path: "/v1/topics/both/messages", key: keyOrders, body: `{"title": "Snow"}`})
	receipt := a.string("receipt")
	j, _ := w.lastJob()
	for user, mode := range map[string]subscriptions.Mode{"puller": subscriptions.Pull, "there": subscriptions.Push} {
		if r := w.topics.Memory.Apply(t.Context(), &topic, []subscriptions.Change{{User: user, Mode: mode, At: j.Accepted.Add(-time.Hour)}}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	notes.begun(t, j)
	if got := said(w.why(receipt, "puller", keyOrders)); got != "UNKNOWN pull false: message=running subscription=pull(pull) chunk=waiting" {
		t.Errorf("who may push yet when the page is read: %s", got)
	}
	c := fanout.Counts{}
	c.Skipped[fanout.SkipExpired] = 3
	for _, user := range []string{"puller", "there"} {
		if err := notes.End(t.Context(), j.Message, j.To.PartOf(user), &c); err != nil {
			t.Fatal(err)
		}
	}
	if got := said(w.why(receipt, "puller", keyOrders)); got != "NOT_SENT pull true: message=running subscription=pull(pull) chunk=done" {
		t.Errorf("who pulls: %s", got)
	}
	if got := said(w.why(receipt, "there", keyOrders)); got != "UNKNOWN expired false: message=running subscription=push chunk=done" {
		t.Errorf("expired for some: %s", got)
	}
	w.gateway.o.Times.Kept = time.Nanosecond
	if a := w.why(receipt, "there", keyOrders); a.code() != "gone" {
		t.Errorf("older than what is kept: %s", a.text)
	}
	w.gateway.o.Fanouts = nil
	if a := w.why(receipt, "there", keyOrders); a.code() != "not_configured" {
		t.Errorf("without fan-outs: %s", a.text)
	}
}

// While Kafka does not answer, what the status store knows is told, as in receipts.
func TestWhyWithoutKafka(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Times.Status = 100 * time.Millisecond })
	id, receipt := w.accepted()
	w.rows[id] = []push.Row{w.row(id, "a", 1, push.StateDelivered, "")}
	w.forget()
	w.set(func() { w.hang = true })
	if a := w.why(receipt, "u42", keyOrders); a.string("status") != "DELIVERED" {
		t.Errorf("Kafka does not answer: %d %s", a.status, a.text)
	}
}

// A part that a cancellation stopped has ended, and not by being worked on to its end.
func TestWhyOfAStoppedPart(t *testing.T) {
	w, notes := fanoutWorld(t)
	receipt := w.toSnow(`{"title": "Snow"}`).string("receipt")
	j, _ := w.lastJob()
	notes.begun(t, j)
	if err := notes.Memory.Order(t.Context(), j.Message, fanout.Cancelled, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := notes.End(t.Context(), j.Message, j.To.PartOf("never"), &fanout.Counts{Stopped: true}); err != nil {
		t.Fatal(err)
	}
	if a := w.why(receipt, "never", keyOrders); !strings.Contains(a.text, "or until the message was cancelled") {
		t.Errorf("%s", a.text)
	}
}
