package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// keyOf is the key of this name.
func keyOf(name string) string { return name + strings.Repeat("-key", 8) }

// teamKeys makes the file of keys of a team, by names and their rights as JSON.
func teamKeys(t *testing.T, file string, rights map[string]string, apps ...string) {
	t.Helper()
	var keys []string
	for name, of := range rights {
		sum := sha256.Sum256([]byte(keyOf(name)))
		its := apps
		if name == "narrow" {
			its = apps[:1]
		}
		list, err := json.Marshal(its)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, fmt.Sprintf(`{"name": %q, "sha256": %q, "sender": "team", "apps": %s, "rights": %s}`, name, hex.EncodeToString(sum[:]), list, of))
	}
	if err := os.WriteFile(file, []byte(`{"keys": [`+strings.Join(keys, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
}

var teamRights = map[string]string{"eye": `["dashboard"]`, "hand": `["dashboard", "admin"]`, "narrow": `["dashboard", "admin"]`, "app": `["send", "read", "users", "admin"]`}

// board is a dashboard of a team that is served.
type board struct {
	t   *testing.T
	url string
}

// serveBoard serves one. stop ends it as a signal does, and waits for its exit.
func serveBoard(t *testing.T, c *configs.Config, rows reach.Rows) (b *board, stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	at, ended := make(chan string, 1), make(chan error, 1) // each gets one; never closed
	go func() {
		ended <- failed(serveDashboard(ctx, dashboardOptions{Config: c, LogTo: io.Discard, Rows: rows, Listening: func(a net.Addr) { at <- a.String() }}))
	}()
	select {
	case address := <-at:
		return &board{t, "http://" + address}, func() {
			end()
			if err := <-ended; err != nil {
				t.Errorf("after a signal: %v", err)
			}
		}
	case err := <-ended:
		end()
		t.Fatalf("it is not served: %v", err)
	}
	return nil, nil
}

// ask sends a request with a key; empty = without.
func (b *board) ask(method, path, key, body string) (int, string) {
	b.t.Helper()
	return b.send(method, path, body, func(r *http.Request) {
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+keyOf(key))
		}
	})
}

func (b *board) send(method, path, body string, change func(*http.Request)) (int, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	change(r)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// login logs in with a key, and returns the session's cookie; nil = it was refused, as told.
func (b *board) login(key string) (session *http.Cookie, told string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+"/login", strings.NewReader(url.Values{"key": {keyOf(key)}}.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if cookies := answer.Cookies(); len(cookies) > 0 {
		return cookies[0], ""
	}
	return nil, answer.Header.Get("Location") + string(text)
}

// look begins to look on in a session.
func (b *board) look(session *http.Cookie) io.ReadCloser {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", b.url+"/events", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.AddCookie(session)
	r.Header.Set("Accept-Encoding", "identity") // a stream that is packed has no proper end
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.t.Fatalf("no stream: %+v, %v", answer, err)
	}
	return answer.Body
}

// with asks for the snapshot in a session.
func (b *board) with(session *http.Cookie) int {
	b.t.Helper()
	code, _ := b.send("GET", "/snapshot.json", "", func(r *http.Request) { r.AddCookie(session) })
	return code
}

// teamFleet is a fleet of two apps with a team's keys.
func teamFleet(t *testing.T) *configs.Config {
	t.Helper()
	c := fleet(t)
	c.Apps = append(c.Apps, configs.App{Name: "bank"})
	c.Gateway.Dashboard.Listen, c.Gateway.ReloadKeys = "127.0.0.1:0", 100*time.Millisecond
	teamKeys(t, c.Gateway.KeysFile, teamRights, "shop", "bank")
	return c
}

// Who may not see the fleet has no secret either, by which sessions are signed: with an empty
// one anybody could sign some.
func TestOnlyHoldersHaveSecrets(t *testing.T) {
	keys, err := openFleetKeys(teamFleet(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, admin := range map[string]bool{"eye": false, "hand": true} {
		if h, is := keys.Named(name); !is || h.Name != name || h.Admin != admin || len(h.Secret) == 0 {
			t.Errorf("%s: %v, admin %v, a secret of %d bytes", name, is, h.Admin, len(h.Secret))
		}
	}
	for _, name := range []string{"narrow", "app", "nobody", ""} {
		if _, is := keys.Named(name); is {
			t.Errorf("%q may see the fleet", name)
		}
	}
}

// deadLetter leaves one in each lane.
func deadLetter(t *testing.T, c *configs.Config) {
	t.Helper()
	options, err := wiring.Kafka(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Lanes {
		p, err := kafka.NewProducer(options, kafka.ProducerOptions{Topic: l.Topic, Tiers: wiring.Tiers(c), DeferTiers: wiring.DeferTiers(c)})
		if err != nil {
			t.Fatal(err)
		}
		it := &pipeline.Item{Partition: push.Partition{Topic: l.Topic}, FirstSeen: push.At(time.Now()), Key: []byte("u1"), Value: []byte(`{"id":"dead-` + l.Name + `","app":"shop","user_id":"u1","title":"hidden-words"}`)}
		it.UserID = "u1"
		err = p.Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToDLQ, Item: it, Reason: push.RetriesUsed}})
		p.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A key with the right sees the fleet, one that is admin's, too, acts there, and no other
// does either, however much it may elsewhere. What was done has the name of the key.
func TestDashboardOfATeam(t *testing.T) {
	surroundings := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, surroundings) }) // behind those of the servers
	c := teamFleet(t)
	deadLetter(t, c)
	rows, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Write(t.Context(), []push.Row{{ID: "n-1", Device: "d", State: push.StateFailed, Platform: push.FCM, Reason: "UNREGISTERED", At: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	b, stop := serveBoard(t, c, rows)
	defer stop()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	act := `{"act": "redrive", "lane": "critical"}`
	for _, tt := range []struct {
		method, path, key, body string
		want                    int
		says                    string
	}{
		{"GET", "/healthz", "", "", http.StatusOK, "ok"},
		{"GET", "/snapshot.json", "", "", http.StatusUnauthorized, "a key is needed"},
		{"GET", "/snapshot.json", "nobody", "", http.StatusUnauthorized, "a key is needed"},
		{"GET", "/snapshot.json", "app", "", http.StatusForbidden, `the key app has not the right \"dashboard\"`},
		{"GET", "/lookup?id=n-1", "app", "", http.StatusForbidden, "the key app"},
		{"GET", "/snapshot.json", "narrow", "", http.StatusForbidden, "the key narrow is not for all apps, and a dashboard shows all: bank missing"},
		{"POST", "/letters", "narrow", act, http.StatusForbidden, "bank missing"},
		{"GET", "/snapshot.json", "eye", "", http.StatusOK, `"lanes":`},
		{"GET", "/lookup?id=n-1", "eye", "", http.StatusOK, "no longer on the device"},
		{"GET", "/lookup?user=u1&app=none", "eye", "", http.StatusBadRequest, "app: there is no app"},
		{"GET", "/letters?lane=critical", "eye", "", http.StatusOK, `"id":"dead-critical"`},
		{"GET", "/letters?lane=critical", "eye", "", http.StatusOK, `"acts":"admin"`},
		{"GET", "/letters?lane=critical", "hand", "", http.StatusOK, `"acts":"you"`},
		{"GET", "/fanouts", "eye", "", http.StatusNotFound, "no fan-outs"},
		{"POST", "/letters", "eye", `{"act": "redrive", "do": true, "by": "ann", "until": "2026-11-21T08:00:00Z"}`, http.StatusForbidden, "admin key"},
	} {
		code, text := b.ask(tt.method, tt.path, tt.key, tt.body)
		if code != tt.want || !strings.Contains(text, tt.says) || strings.Contains(text, "hidden-words") {
			t.Errorf("%s %s by %q: %d %s, want %d and %q", tt.method, tt.path, tt.key, code, text, tt.want, tt.says)
		}
	}

	b.redrive("hand", "critical")
	options, err := wiring.Kafka(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := kafka.NewDLQ(options, c.Lanes[0].Topic)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	marks, err := q.Audit().Read(t.Context())
	if err != nil || len(marks) != 1 {
		t.Errorf("the audit topic has %+v, %v", marks, err)
	}
	for _, m := range marks {
		if m.What != kafka.Redriven || m.By != "ann (dashboard, key hand)" {
			t.Errorf("the audit topic has %+v", m)
		}
	}
}

// redrive redrives the one dead letter of a lane by a key.
func (b *board) redrive(key, lane string) {
	b.t.Helper()
	code, text := b.ask("POST", "/letters", key, `{"act": "redrive", "lane": "`+lane+`"}`)
	var dry struct {
		N                    int
		Until, Seen, Confirm string
	}
	if err := json.Unmarshal([]byte(text), &dry); err != nil || code != http.StatusOK || dry.N != 1 {
		b.t.Fatalf("a dry run: %d %s", code, text)
	}
	act, err := json.Marshal(map[string]any{"act": "redrive", "lane": lane, "do": true, "by": "ann", "until": dry.Until, "seen": dry.Seen, "confirm": dry.Confirm})
	if err != nil {
		b.t.Fatal(err)
	}
	if code, text = b.ask("POST", "/letters", key, string(act)); code != http.StatusOK || !strings.Contains(text, `"n":1`) {
		b.t.Fatalf("a redrive: %d %s", code, text)
	}
}

// A session outlives a restart, and ends when its key loses the right, changes or goes: the
// file of keys is read again. A file that cannot be used changes nothing.
func TestSessionsOfADashboardEndWithTheirKeys(t *testing.T) {
	c := teamFleet(t)
	b, stop := serveBoard(t, c, nil)
	for key, want := range map[string]string{"nobody": "/login?wrong=1", "app": "the key app has not", "narrow": "bank missing"} {
		if session, told := b.login(key); session != nil || !strings.Contains(told, want) {
			t.Errorf("a login by %s: %v %s", key, session, told)
		}
	}
	eye, _ := b.login("eye")
	hand, _ := b.login("hand")
	if eye == nil || hand == nil || b.with(eye) != http.StatusOK || b.with(hand) != http.StatusOK {
		t.Fatal("no session")
	}
	forged := *eye
	forged.Value = strings.Replace(eye.Value, ".eye", ".hand", 1)
	if forged.Value == eye.Value || b.with(&forged) != http.StatusUnauthorized {
		t.Error("a session of one key is one of another")
	}
	stop()
	b, stop = serveBoard(t, c, nil)
	defer stop()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if b.with(eye) != http.StatusOK {
		t.Error("a session ends with a restart")
	}
	looking := b.look(eye)
	defer looking.Close()
	if err := os.WriteFile(c.Gateway.KeysFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	teamKeys(t, c.Gateway.KeysFile, map[string]string{"eye": `["read"]`, "hand": `["dashboard"]`}, "shop", "bank")
	for tries := 0; b.with(eye) == http.StatusOK; tries++ {
		if tries == patience {
			t.Fatal("who has lost the right still sees the fleet")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := io.Copy(io.Discard, looking); err != nil {
		t.Errorf("who looked is not sent away: %v", err)
	}
	if _, text := b.send("GET", "/letters?lane=critical", "", func(r *http.Request) { r.AddCookie(hand) }); !strings.Contains(text, `"acts":"admin"`) {
		t.Errorf("who is no admin any more: %s", text)
	}
}

// What is wrong is told before anything is served, by its key in the configuration.
func TestDashboardIsConfigured(t *testing.T) {
	good, dir := files(t, "")
	exposed, _ := files(t, ", dashboard: {listen: '0.0.0.0:8095'}")
	twice, _ := files(t, ", dashboard: {listen: '127.0.0.1:8088'}")
	unsigned, of := files(t, "")
	if err := os.Remove(filepath.Join(of, "receipts.key")); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	team, with := files(t, "")
	teamKeys(t, filepath.Join(with, "keys.json"), map[string]string{"eye": `["dashboard"]`, "hand": `["dashboard", "admin"]`, "app": `["send"]`}, "shop")
	for _, tt := range []struct {
		why  string
		args []string
		code int
		want string
	}{
		{"no key has the right", []string{"dashboard", "-c", good}, exitUsage, `no key opens the dashboard: give one the right "dashboard" and all apps`},
		{"in plain text", []string{"dashboard", "-c", exposed}, exitUsage, "gateway.dashboard.listen: 0.0.0.0:8095 is not a loopback address"},
		{"a port of callers", []string{"dashboard", "-c", twice}, exitUsage, "gateway.dashboard.listen: must not use the port of gateway.listen"},
		{"nothing signs sessions", []string{"dashboard", "-c", unsigned}, exitUsage, "gateway.receipts_file"},
		{"nothing is there", []string{"dashboard", "-c", empty}, exitUsage, "gateway.keys_file"},
		{"no apps", []string{"dashboard"}, exitUsage, "apps: must have at least one app"},
		{"no file", []string{"dashboard", "-c", "none.yaml"}, exitUsage, "none.yaml"},
		{"help", []string{"dashboard", "--help"}, exitDone, `"rights": ["dashboard", "admin"]`},
		{"checked", []string{"config", "check", team}, exitDone, "\ndashboard: 2 keys see the fleet, 1 of them act, at 127.0.0.1:8095\n"},
	} {
		var out bytes.Buffer
		if code := execute(tt.args, strings.NewReader(""), &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit %d, says\n%s\nwant exit %d and %q", tt.why, code, &out, tt.code, tt.want)
		}
	}
}
