package check_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/check"
	"github.com/pushfleet/pushfleet/providers/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an app with good credentials at a simulator.
type world struct {
	*sim.Server
	shop, stranger *sim.Credentials
}

func start(t *testing.T, o sim.Options) *world {
	t.Helper()
	w := new(world)
	var err error
	if w.shop, err = sim.NewCredentials("shop", "com.example.shop"); err != nil {
		t.Fatal(err)
	}
	if w.stranger, err = sim.NewCredentials("stranger", "com.example.stranger"); err != nil {
		t.Fatal(err)
	}
	app := w.shop.App()
	app.KeyEnvironment = "production"
	denied := w.stranger.App()
	denied.AccountDenied = true
	o.Apps = []sim.App{app, denied}
	if w.Server, err = sim.New(o); err != nil {
		t.Fatal(err)
	}
	if err := w.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // the test is over
	return w
}

func signed(t *testing.T, team, key string, p8 []byte, at time.Time) []byte {
	t.Helper()
	s, err := apns.NewTokenSource(team, key, p8)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Authorization(at)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) apns(t *testing.T) check.APNS {
	return check.APNS{URL: w.URL(), Topic: w.shop.Topic, TLS: w.ClientTLS(),
		Authorization: signed(t, w.shop.TeamID, w.shop.KeyID, w.shop.P8, time.Now())}
}

func (w *world) fcm(t *testing.T) check.FCM {
	return check.FCM{URL: w.URL(), Project: w.shop.Project, TLS: w.ClientTLS(), ServiceAccount: account(t, w.shop, w.TokenURI())}
}

func account(t *testing.T, c *sim.Credentials, uri string) []byte {
	t.Helper()
	file, err := c.ServiceAccount(uri)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// ends fails unless the steps end at one of that name, with that outcome, and say why.
func ends(t *testing.T, s check.Steps, step string, ok bool, words string) {
	t.Helper()
	if len(s) == 0 {
		t.Fatal("no step was tried")
	}
	last := s[len(s)-1]
	if last.Name != step || last.OK != ok || s.OK() != ok || !strings.Contains(last.Detail+" "+last.Advice, words) {
		t.Errorf("got the end %+v, want %q, ok %v, with %q", last, step, ok, words)
	}
	if ok != (last.Advice == "") {
		t.Errorf("got advice %q of a step that is ok: %v", last.Advice, ok)
	}
	for _, s := range s[:len(s)-1] {
		if !s.OK || s.Advice != "" {
			t.Errorf("went on behind %+v", s)
		}
	}
}

func TestAPNSEndsAtTheStepThatIsWrong(t *testing.T) {
	w := start(t, sim.Options{})
	for name, tt := range map[string]struct {
		change func(*check.APNS)
		step   string
		ok     bool
		words  string
	}{
		"all is well": {func(*check.APNS) {}, "topic", true, "com.example.shop"},
		"another's key": {func(a *check.APNS) {
			a.Authorization = signed(t, w.shop.TeamID, w.shop.KeyID, w.stranger.P8, time.Now())
		}, "credentials", false, "InvalidProviderToken"},
		"another's team": {func(a *check.APNS) {
			a.Authorization = signed(t, w.stranger.TeamID, w.shop.KeyID, w.shop.P8, time.Now())
		}, "credentials", false, "team_id"},
		"a clock that is two hours late": {func(a *check.APNS) {
			a.Authorization = signed(t, w.shop.TeamID, w.shop.KeyID, w.shop.P8, time.Now().Add(-2*time.Hour))
		}, "credentials", false, "clock"},
		"another's topic":        {func(a *check.APNS) { a.Topic = w.stranger.Topic }, "topic", false, "TopicDisallowed"},
		"no topic of any":        {func(a *check.APNS) { a.Topic = "com.example.nobody" }, "topic", false, "bundle id"},
		"no TLS in the URL":      {func(a *check.APNS) { a.URL = "http://127.0.0.1" }, "address", false, "https"},
		"no URL":                 {func(a *check.APNS) { a.URL = "https://%zz" }, "address", false, "https"},
		"no such name":           {func(a *check.APNS) { a.URL = "https://apns.invalid" }, "name resolution", false, "DNS"},
		"nobody listens":         {func(a *check.APNS) { a.URL = "https://" + closedPort(t) }, "connection", false, "firewall"},
		"a CA that is not known": {func(a *check.APNS) { a.TLS = nil }, "TLS", false, "ca_file"},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.apns(t)
			tt.change(&a)
			ends(t, a.Run(t.Context()), tt.step, tt.ok, tt.words)
		})
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestFCMEndsAtTheStepThatIsWrong(t *testing.T) {
	w := start(t, sim.Options{})
	for name, tt := range map[string]struct {
		change func(*check.FCM)
		step   string
		ok     bool
		words  string
	}{
		"all is well":       {func(*check.FCM) {}, "project", true, w.shop.Project},
		"no project of any": {func(f *check.FCM) { f.Project = "nobody-12345" }, "project", false, "fcm.project"},
		"an account without the permission": {func(f *check.FCM) { f.ServiceAccount = account(t, w.stranger, w.TokenURI()) },
			"project", false, "PERMISSION_DENIED"},
		"an account that nobody knows": {func(f *check.FCM) {
			c, err := sim.NewCredentials("nobody", "x")
			if err != nil {
				t.Fatal(err)
			}
			f.ServiceAccount = account(t, c, w.TokenURI())
		}, "credentials", false, "account"},
		"no account": {func(f *check.FCM) { f.ServiceAccount = []byte(`{"private_key":"SECRET"`) }, "credentials", false, "service account"},
		"a key that is none": {func(f *check.FCM) {
			f.ServiceAccount = []byte(`{"type":"service_account","client_email":"a@b","private_key":"SECRET","token_uri":"` + w.TokenURI() + `"}`)
		}, "credentials", false, "private_key"},
		"no way to the token":    {func(f *check.FCM) { f.ServiceAccount = account(t, w.shop, "https://"+closedPort(t)) }, "access token", false, "connection refused"},
		"nobody listens":         {func(f *check.FCM) { f.URL = "https://" + closedPort(t) }, "connection", false, "firewall"},
		"a CA that is not known": {func(f *check.FCM) { f.TLS = nil }, "TLS", false, "ca-certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			f := w.fcm(t)
			tt.change(&f)
			s := f.Run(t.Context())
			ends(t, s, tt.step, tt.ok, tt.words)
			for _, s := range s {
				if strings.Contains(s.Detail+s.Advice, "SECRET") {
					t.Errorf("the step %s repeats the file", s.Name)
				}
			}
		})
	}
}

// What a provider that is in trouble answers says nothing of the credentials.
func TestAProviderInTroubleIsNotTheAppsFault(t *testing.T) {
	w := start(t, sim.Options{})
	for name, tt := range map[string]struct {
		faults          sim.Faults
		apnsEnd, fcmEnd string
		ok              bool
	}{
		"down":       {sim.Faults{Unavailable: 1}, "answer", "answer", false},
		"broken":     {sim.Faults{Internal: 1}, "answer", "answer", false},
		"over quota": {sim.Faults{TooMany: 1}, "topic", "project", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []sim.Provider{sim.APNS, sim.FCM} {
				if err := w.SetFaults(p, tt.faults); err != nil {
					t.Fatal(err)
				}
			}
			ends(t, w.apns(t).Run(t.Context()), tt.apnsEnd, tt.ok, "")
			ends(t, w.fcm(t).Run(t.Context()), tt.fcmEnd, tt.ok, "")
		})
	}
}

// Apple says that it knows no such device only to who may push to it.
func TestApplesAnswerToWhoMayPush(t *testing.T) {
	w := start(t, sim.Options{})
	w.Devices().Bad(sim.APNS, strings.Repeat("0", 64))
	ends(t, w.apns(t).Run(t.Context()), "topic", true, "may be pushed to")
}

func TestASandboxRefusesAKeyOfProduction(t *testing.T) {
	w := start(t, sim.Options{Sandbox: true})
	ends(t, w.apns(t).Run(t.Context()), "credentials", false, "environment")
}

// What answers by TLS, and is not the provider.
func TestAServerThatIsAnother(t *testing.T) {
	w := start(t, sim.Options{})
	for name, tt := range map[string]struct {
		protocols []string
		host      string
		step      string
		words     string
	}{
		"HTTP/1.1 only":         {[]string{"http/1.1"}, "127.0.0.1", "TLS", "does not speak HTTP/2"},
		"no protocol is chosen": {nil, "127.0.0.1", "HTTP/2", "proxy"},
		"another's certificate": {[]string{"h2"}, "localhost", "TLS", "another server's"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{NextProtos: tt.protocols, MinVersion: tls.VersionTLS12}
			s.StartTLS()
			defer s.Close()
			s.TLS.NextProtos = tt.protocols // httptest adds its own
			a := w.apns(t)
			_, port, err := net.SplitHostPort(s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			a.URL, a.TLS = "https://"+net.JoinHostPort(tt.host, port), s.Client().Transport.(*http.Transport).TLSClientConfig
			ends(t, a.Run(t.Context()), tt.step, false, tt.words)
		})
	}
}

// A server that takes the connection and is silent ends with the context.
func TestSilenceEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := start(t, sim.Options{})
	a := w.apns(t)
	a.URL = "https://" + l.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ends(t, a.Run(ctx), "TLS", false, "no answer in time")
}
