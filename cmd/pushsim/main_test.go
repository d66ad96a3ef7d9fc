package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/configs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines collects output and lets a test wait for the first line.
type lines struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	first chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() == 0 {
		defer close(l.first)
	}
	return l.buf.Write(b)
}

func TestServes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "creds")
	out := &lines{first: make(chan struct{})}
	signals := make(chan os.Signal, 1)
	status := make(chan int)
	var stderr bytes.Buffer
	go func() {
		status <- run([]string{"-o", "json", "--app", "shop=com.example.shop", "--write-credentials", dir}, out, &stderr, signals)
	}()
	select {
	case <-out.first:
	case s := <-status:
		t.Fatalf("it ended with %d: %s", s, stderr.String())
	}
	var st started
	out.mu.Lock()
	err := json.Unmarshal(out.buf.Bytes(), &st)
	out.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}

	ca, err := os.ReadFile(st.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Post(st.URL+"/3/device/00", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != `{"reason":"MissingTopic"}` || res.Body.Close() != nil {
		t.Errorf("got %s, %v, want MissingTopic", body, err)
	}
	text, err := os.ReadFile(st.Config)
	if err != nil {
		t.Fatal(err)
	}
	config, err := configs.Parse(text, nil)
	if err != nil {
		t.Fatalf("the worker refuses the configuration: %v", err)
	}
	app := config.Apps[0]
	if app.Name != "shop" || app.APNS.KeyFile != st.Apps[0].KeyFile || app.APNS.URL("sandbox") != st.URL || app.FCM.URL != st.URL || app.FCM.ServiceAccountFile != st.Apps[0].ServiceAccount {
		t.Errorf("got %+v, %+v", app.APNS, app.FCM)
	}
	for _, f := range []string{st.Config, st.Apps[0].KeyFile, st.Apps[0].ServiceAccount} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want a file for its owner only", filepath.Base(f), info, err)
		}
	}

	signals <- os.Interrupt
	if s := <-status; s != exitInterrupted {
		t.Errorf("exit status %d after Ctrl-C, want 130: %s", s, stderr.String())
	}
	last := strings.Split(strings.TrimSpace(out.buf.String()), "\n")
	var end struct {
		Event  string
		Ledger struct{ Received, Refused int }
	}
	if err := json.Unmarshal([]byte(last[len(last)-1]), &end); err != nil || end.Event != "stopped" || end.Ledger.Received != 1 || end.Ledger.Refused != 1 {
		t.Errorf("got %+v, %v, want one refused push", end, err)
	}
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		signal os.Signal
		want   int
	}{
		{"SIGTERM", nil, syscall.SIGTERM, exitDone},
		{"Ctrl-C", nil, os.Interrupt, exitInterrupted},
		{"help", []string{"--help"}, nil, exitDone},
		{"unknown flag", []string{"--no-such"}, nil, exitUsage},
		{"an argument", []string{"shop"}, nil, exitUsage},
		{"bad app", []string{"--app", "../x=y"}, nil, exitUsage},
		{"app twice", []string{"--app", "a=b,a=c"}, nil, exitUsage},
		{"bad share", []string{"--errors", "1.5"}, nil, exitUsage},
		{"bad output", []string{"-o", "xml"}, nil, exitUsage},
		{"negative latency", []string{"--latency", "-1s"}, nil, exitUsage},
		{"bad address", []string{"--listen", "256.0.0.1:1"}, nil, exitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			if tt.signal != nil {
				signals <- tt.signal
			}
			var stdout, stderr bytes.Buffer
			if got := run(tt.args, &stdout, &stderr, signals); got != tt.want {
				t.Errorf("got %d, want %d: %s", got, tt.want, stderr.String())
			}
			if tt.want == exitDone && stdout.Len() == 0 || tt.want != exitDone && tt.want != exitInterrupted && stderr.Len() == 0 {
				t.Error("it said nothing")
			}
		})
	}
}

// The snippet is valid in the worker's configuration; key ids that are all
// digits stay strings.
func TestWorkerConfig(t *testing.T) {
	st := &started{URL: "https://127.0.0.1:1", CA: "/c/ca.pem", Apps: []appFile{{
		Name: "shop", Topic: "com.example.shop", TeamID: "0123456789", KeyID: "ABCDEFGHIJ", KeyFile: "/c/shop.p8",
		Project: "shop-x", ServiceAccount: "/c/shop.json",
	}}}
	want, err := os.ReadFile("testdata/worker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := st.workerConfig(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOutputIsCleaned(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"--app", "shop=\x1b[2J\u202e", "--listen", "nowhere\u009b"}, &out, &errs, nil); code == exitDone {
		t.Fatal("it runs")
	}
	if s := out.String() + errs.String(); s == "" || strings.ContainsAny(s, "\x1b\u202e\u009b") {
		t.Errorf("it prints %q", s)
	}
}
