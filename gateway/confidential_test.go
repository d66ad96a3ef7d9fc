package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway/seal"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/subscriptions"
)

const (
	sealsFirst = "pKQ2rjX0Hn4m1yTgV8s6bZc3dW5eFa7L"
	sealsNext  = "Zx9vB2nM5kQ8wE1rT4yU7iO0pA3sD6fG"
	// secrets is in each member of diagnosis that is for its readers alone.
	secrets   = "Zebra"
	diagnosis = `{"title": "Zebra-1", "body": "Zebra-2", "image": "https://x.example/Zebra-3", "video": "https://x.example/Zebra-4", "category": "Zebra-5", "thread_id": "Zebra-6",
		"locale": "en", "data": {"Zebra-7": "Zebra-8"}, "type": "news", "collapse_key": "one", "badge": 2, "sound": "bell", "expires_at": "2999-01-01T00:00:00Z", "priority": "low"}`
)

func sealKeys(t *testing.T, lines ...string) *Confidential {
	t.Helper()
	keys, err := seal.Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return &Confidential{Keys: keys, Title: "There is news"}
}

// confidentialWorld has the topic results, which is confidential; what is logged goes to log.
func confidentialWorld(t *testing.T, log *bytes.Buffer, change ...func(*Options)) *world {
	t.Helper()
	w := newWorld(t, append([]func(*Options){func(o *Options) {
		o.Confidential, o.Log = sealKeys(t, sealsFirst), slog.New(slog.NewTextHandler(log, nil))
	}}, change...)...)
	if a := w.makeTopic("results", `{"app": "shop", "service_type": "transactional", "metadata": {"priority": "high", "security": "confidential"}, "modes": ["push", "pull"]}`); a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	return w
}

func (w *world) toResults(body string, header ...string) *reply {
	w.t.Helper()
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return w.do(request{method: "POST", path: "/v1/topics/results/messages", key: keyOrders, body: body, header: h})
}

// arrives keeps the job that was produced last, as an expander does.
func (w *world) arrives() *fanout.Job {
	w.t.Helper()
	j, _ := w.lastJob()
	e := inbox.Entry{Position: inbox.Position{At: j.Accepted, ID: j.Message.String()}, Type: "news", Lane: j.Lane, Sender: j.Sender, Priority: j.Priority, Content: j.Sealed, Expires: j.Until}
	if err := w.inbox.PutTopic(w.t.Context(), inbox.Topic{Name: "results", App: "shop"}, &e); err != nil {
		w.t.Fatal(err)
	}
	return j
}

// Nothing of a message's text is in what is written for it, but sealed; what workers go by is.
func TestAConfidentialMessageSaysNothing(t *testing.T) {
	for _, body := range []string{diagnosis, strings.Replace(diagnosis, `"type"`, `"clicks": true, "type"`, 1)} {
		var log bytes.Buffer
		w := confidentialWorld(t, &log)
		a := w.toResults(body)
		if a.status != http.StatusAccepted {
			t.Fatal(a.text)
		}
		j, r := w.lastJob()
		if bytes.Contains(r.Value, []byte(secrets)) || strings.Contains(a.text+log.String(), secrets) {
			t.Errorf("the text is in\n%s\n%s", r.Value, log.String())
		}
		var rest map[string]any
		if err := json.Unmarshal(append([]byte{'{'}, j.Rest...), &rest); err != nil {
			t.Fatal(err)
		}
		delete(rest, "campaign")
		got, _ := json.Marshal(rest)
		const want = `{"apns":{"payload":{"aps":{"mutable-content":1}}},"app":"shop","badge":2,"collapse_key":"one","data":{"pf_confidential":"1"},"sender_id":"orders","sound":"bell","title":"There is news","type":"news"}`
		if string(got) != want || j.Clicks != strings.Contains(body, "clicks") || j.Until.IsZero() || j.Priority.String() != "low" {
			t.Errorf("pushed\n%s\nwant\n%s", got, want)
		}
		text, err := sealKeys(t, sealsNext, sealsFirst).Keys.Open(j.Sealed, "shop", "results", j.Message.String())
		if err != nil || strings.Count(string(text), secrets) != 8 || !strings.Contains(string(text), `"locale":"en"`) {
			t.Errorf("sealed is %s, %v", text, err)
		}
	}
}

// A client of the user reads the text, whether the user is pushed or pulls; a key, and who is
// no subscriber, does not, nor does anybody without the key of the text.
func TestWhoReadsWhatIsConfidential(t *testing.T) {
	var log bytes.Buffer
	w := confidentialWorld(t, &log)
	topic, err := w.topics.Topic(t.Context(), "results")
	if err != nil {
		t.Fatal(err)
	}
	open := w.subject("news") // who is pushed does not find these
	for user, mode := range map[string]subscriptions.Mode{"u42": subscriptions.Push, "u43": subscriptions.Pull, "gone": subscriptions.Push} {
		w.joins(&topic, user, mode, time.Hour)
		w.joins(open, user, subscriptions.Push, time.Hour)
	}
	w.joins(&topic, "gone", subscriptions.Left, time.Minute)
	w.says(open, "open", 0)
	if a := w.toResults(diagnosis); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	j := w.arrives()
	read := func(user, key string) *reply {
		return w.do(request{method: "GET", path: "/v1/users/" + user + "/inbox?app=shop", key: key})
	}
	for _, user := range []string{"u42", "u43"} {
		a := read(user, w.userToken(user))
		a.shows(t, "Zebra-1")
		if !slices.Equal(a.items("confidential"), []string{"true"}) || !slices.Equal(a.items("sealed"), []string{"<nil>"}) || a.items("id")[0] != fanout.ID(j.Message, user) || strings.Count(a.text, secrets) != 8 {
			t.Error(a.text)
		}
		a = read(user, keyLogins)
		a.shows(t, "There is news")
		if !slices.Equal(a.items("confidential"), []string{"true"}) || !slices.Equal(a.items("sealed"), []string{"true"}) || strings.Contains(a.text, secrets) {
			t.Error(a.text)
		}
	}
	for _, user := range []string{"gone", "nobody"} {
		if a := read(user, w.userToken(user)); len(a.titles()) != 0 {
			t.Errorf("%s reads %s", user, a.text)
		}
	}
	if a := w.do(request{method: "GET", path: "/v1/users/u42/inbox/unread?app=shop", key: keyLogins}); a.json["unread"] != 1.0 {
		t.Error(a.text)
	}
	for why, keys := range map[string]*Confidential{"exchanged for another key": sealKeys(t, sealsNext), "no keys any more": nil} {
		w.gateway.o.Confidential = keys
		a := read("u42", w.userToken("u42"))
		if a.status != http.StatusOK || len(a.items("id")) != 1 || a.items("sealed")[0] != "true" || strings.Contains(a.text, secrets) {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
	if strings.Contains(log.String(), secrets) || !strings.Contains(log.String(), "sealed by a key that is not among those given") {
		t.Errorf("logged %s", log.String())
	}
}

// A text that was put under another message, or changed, is not shown, and the page is.
func TestATextInAnotherPlace(t *testing.T) {
	var log bytes.Buffer
	w := confidentialWorld(t, &log)
	topic, _ := w.topics.Topic(t.Context(), "results")
	w.joins(&topic, "u42", subscriptions.Pull, time.Hour)
	if a := w.toResults(diagnosis); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	j := w.arrives()
	w.says(&topic, "x", 0, func(e *inbox.Entry) { e.Content = j.Sealed })
	w.says(&topic, "x", 0, func(e *inbox.Entry) { e.Content = append([]byte(`{"sealed":"`), j.Sealed[12:]...) })
	a := w.look(w.userToken("u42"), "")
	if a.status != http.StatusOK || len(a.titles()) != 3 || strings.Count(a.text, secrets) != 8 {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestConfidentialMessagesAreRefused(t *testing.T) {
	var log bytes.Buffer
	w := confidentialWorld(t, &log)
	for _, tt := range []struct{ why, body, pointer string }{
		{"nothing to read", `{"data": {"a": "b"}}`, "/body"},
		{"a blank", `{"title": "", "body": " "}`, "/body"},
		{"the fleet's own member", `{"title": "x", "data": {"pf_confidential": "1"}}`, "/data/pf_confidential"},
		{"a picture alone", `{"image": "https://x.example/y"}`, "/body"},
		{"what is Apple's", `{"title": "x", "apns": {"payload": {"aps": {"sound": "x"}}}}`, "/apns"},
		{"Apple's headers", `{"title": "x", "apns": {"headers": {"apns-priority": "5"}}}`, "/apns"},
		{"what is Google's", `{"title": "x", "fcm": {"data": {"a": "b"}}}`, "/fcm"},
		{"not an alert", `{"title": "x", "push_type": "liveactivity"}`, "/push_type"},
	} {
		if a := w.toResults(tt.body); a.status != http.StatusUnprocessableEntity || a.code() != codeInvalidField || a.pointer() != tt.pointer {
			t.Errorf("%s: %d %s", tt.why, a.status, a.text)
		}
	}
	if len(w.produced) != 0 {
		t.Errorf("%d records were produced", len(w.produced))
	}
	if a := w.toResults(`{"body": "x"}`); a.status != http.StatusAccepted {
		t.Errorf("a body without a title: %d %s", a.status, a.text)
	}
	w.gateway.o.Inbox = nil
	if a := w.toResults(diagnosis); a.status != http.StatusNotImplemented {
		t.Errorf("without inboxes: %d %s", a.status, a.text)
	}
}

// What tells of a text elsewhere is nobody's to send: workers would keep no entry of it.
func TestTheNoticeIsReserved(t *testing.T) {
	w := newWorld(t)
	a := w.post(`{"app": "shop", "user_id": "u42", "service_type": "transactional", "title": "Your code", "data": {"pf_confidential": "1"}}`)
	if a.status != http.StatusUnprocessableEntity || a.code() != codeInvalidField || a.pointer() != "/data/pf_confidential" || len(w.produced) != 0 {
		t.Errorf("%d %s", a.status, a.text)
	}
	if a := w.post(`{"app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x", "data": {"about": "pf_confidential"}}`); a.status != http.StatusAccepted {
		t.Errorf("the word as a value: %d %s", a.status, a.text)
	}
}

// A repeat is known, also after the key was exchanged, and another text is another message;
// what is kept for that depends on the key, and on the message.
func TestRepeatsOfConfidentialMessages(t *testing.T) {
	var log bytes.Buffer
	kept := newKept()
	w := confidentialWorld(t, &log, kept.know)
	id, _ := newID(clock())
	with := func(text string) string { return `{"id": "` + id + `", "title": "` + text + `"}` }
	if a := w.toResults(with("code 4711")); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	w.gateway.o.Confidential = sealKeys(t, sealsNext, sealsFirst)
	if a := w.toResults(with("code 4711")); a.status != http.StatusAccepted || a.json["replayed"] != true {
		t.Errorf("a repeat: %d %s", a.status, a.text)
	}
	if a := w.toResults(with("code 4712")); a.code() != codeIDTaken {
		t.Errorf("another text: %d %s", a.status, a.text)
	}
	topic, _ := w.topics.Topic(t.Context(), "results")
	whole, problem := subscribersOf(&topic).complete([]byte(with("code 4711")))
	if problem != nil {
		t.Fatal(problem)
	}
	plain := binary.BigEndian.AppendUint64(nil, sumOf(whole))
	kept.set(func() {
		for _, value := range kept.texts {
			if strings.HasPrefix(value, string(plain)) {
				t.Error("the sum of the text is kept")
			}
		}
		if len(kept.texts) != 1 {
			t.Errorf("%d are kept", len(kept.texts))
		}
	})
}

// A topic may name who sends to it.
func TestPublishers(t *testing.T) {
	w := newWorld(t)
	body := func(security, publishers string) string {
		return `{"app": "shop", "service_type": "transactional", "metadata": {"security": "` + security + `", "publishers": ` + publishers + `}}`
	}
	if a := w.makeTopic("closed", body("restricted", `["support", "logins"]`)); a.status != http.StatusCreated || !strings.Contains(a.text, `"publishers":["logins","support"]`) {
		t.Fatal(a.text)
	}
	if a := w.makeTopic("closed", body("restricted", `["logins", "support"]`)); a.status != http.StatusOK {
		t.Errorf("the same in another order: %d %s", a.status, a.text)
	}
	if a := w.makeTopic("closed", body("restricted", `["logins"]`)); a.code() != codeTopicTaken {
		t.Errorf("another list: %d %s", a.status, a.text)
	}
	for key, status := range map[string]int{keyOrders: http.StatusForbidden, keySupport: http.StatusAccepted} {
		if a := w.do(request{method: "POST", path: "/v1/topics/closed/messages", key: key, body: `{"title": "x"}`}); a.status != status {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	for why, publishers := range map[string]string{"twice": `["a", "a"]`, "no sender": `[""]`, "no name": `["a b"]`, "too many": `["a` + strings.Join(strings.Split(strings.Repeat("x", 101), ""), `","a`) + `"]`} {
		if a := w.makeTopic("bad", body("restricted", publishers)); a.code() != codeInvalidField || a.pointer() != "/metadata/publishers" {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
	if a := w.makeTopic("bad", body("open", `["orders"]`)); a.code() != codeInvalidField || a.pointer() != "/metadata/publishers" {
		t.Errorf("an open one: %d %s", a.status, a.text)
	}
}

// What is pushed alone may expire as well, and is kept as long.
func TestConfidentialMessageThatIsPushedAloneExpires(t *testing.T) {
	var log bytes.Buffer
	w := confidentialWorld(t, &log)
	if a := w.makeTopic("pushed", `{"app": "shop", "service_type": "transactional", "metadata": {"security": "confidential"}, "modes": ["push"]}`); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.text)
	}
	until := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	a := w.do(request{method: "POST", path: "/v1/topics/pushed/messages", key: keyOrders, body: `{"title": "x", "expires_at": "` + until.Format(time.RFC3339) + `"}`})
	if j, _ := w.lastJob(); a.status != http.StatusAccepted || !j.Until.Equal(until) {
		t.Errorf("%d %s: until %v, want %v", a.status, a.text, j.Until, until)
	}
}

// A page of texts that cannot be shown, asked for again and again, is counted and said once.
func TestTextsThatCannotBeShownAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	w := confidentialWorld(t, &log)
	w.gateway.o.Metrics = NewMetrics(prometheus.NewRegistry())
	topic, err := w.topics.Topic(t.Context(), "results")
	if err != nil {
		t.Fatal(err)
	}
	w.joins(&topic, "u42", subscriptions.Push, time.Hour)
	for range 5 {
		w.toResults(`{"title": "x"}`)
		w.arrives()
	}
	w.gateway.o.Confidential = sealKeys(t, sealsNext)
	token := w.userToken("u42")
	for range 3 {
		if a := w.do(request{method: "GET", path: "/v1/users/u42/inbox?app=shop", key: token}); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	if n := strings.Count(log.String(), "cannot be shown"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	if n := testutil.ToFloat64(w.gateway.o.Metrics.reveals.WithLabelValues("no_key")); n != 15 {
		t.Errorf("%v are counted, want 15", n)
	}
}

// The name that is reserved may be written with escapes; raw members without content are none.
func TestReservedNamesAndEmptyMembers(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{`pf_confidential`, `pf_\u0063onfidential`, `pf\u005fconfidential`} {
		if a := w.post(`{"app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x", "data": {"a": "\\", "` + name + `": "1"}}`); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	if a := w.post(`{"app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x", "data": {"a": "\\"}}`); a.status != http.StatusAccepted {
		t.Errorf("escapes alone: %d %s", a.status, a.text)
	}
	var log bytes.Buffer
	c := confidentialWorld(t, &log)
	for raw, status := range map[string]int{`"apns": {}`: 202, `"fcm": {}`: 202, `"fcm": { }`: 202, `"fcm": {"android": {}}`: 422} {
		if a := c.toResults(`{"title": "x", ` + raw + `}`); a.status != status {
			t.Errorf("%s: %d %s, want %d", raw, a.status, a.text, status)
		}
	}
}
