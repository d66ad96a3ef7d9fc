//go:build linux

package servers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// asServer is the argument that makes this test binary one of the servers.
const asServer = "serve"

func TestMain(m *testing.M) {
	fleettest.Roles(m, map[string]func(context.Context, []string) error{
		asServer: func(ctx context.Context, args []string) error { return Serve(ctx, args, os.Stderr) },
	})
}

func program() []string { return []string{os.Args[0], asServer} }

// folder is a short one: a Unix socket's path has 108 bytes.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "servers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Each is a process of its own that says where it listens, and is gone when it is closed.
func TestEmbedded(t *testing.T) {
	for name, start := range map[string]func(context.Context, []string, string) (*Embedded, error){"Kafka": StartKafka, "Redis": StartRedis} {
		e, err := start(t.Context(), program(), folder(t))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(e.Address, "127.0.0.1:") || e.PID() == os.Getpid() {
			t.Errorf("%s is at %q in process %d", name, e.Address, e.PID())
		}
		e.Close()
		if err := e.call(t.Context(), "Server.Address", true, new(string)); err == nil {
			t.Errorf("%s answers after its end", name)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", e.PID())); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

// A simulator has accounts for a worker, and says that it has accepted nothing.
func TestSimulator(t *testing.T) {
	dir := folder(t)
	s, err := StartSimulator(t.Context(), program(), SimulatorOptions{Dir: dir, App: "shop", FCMStreams: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.App.Name != "shop" || s.App.APNS == nil || s.App.FCM == nil || !strings.HasPrefix(s.App.FCM.URL, "https://") {
		t.Errorf("app %+v", s.App)
	}
	for _, file := range []string{s.App.APNS.KeyFile, s.App.APNS.CAFile, s.App.FCM.ServiceAccountFile} {
		if _, err := os.Stat(file); err != nil || filepath.Dir(file) != dir {
			t.Errorf("%s: %v", file, err)
		}
	}
	counts, err := s.Accepted(t.Context(), []Pair{{"n1", "d1"}, {"n2", "d1"}})
	total, err2 := s.Total(t.Context())
	if err != nil || err2 != nil || !slices.Equal(counts, []int{0, 0}) || total != 0 {
		t.Errorf("accepted %v, %d in all: %v, %v", counts, total, err, err2)
	}
	if err := s.Note(t.Context(), []string{"d1"}); err != nil {
		t.Error(err)
	}
	if noted, err := s.Noted(t.Context()); err != nil || len(noted) != 0 {
		t.Errorf("noted %v, %v", noted, err)
	}
	if n, err := s.Others(t.Context()); err != nil || n != 0 {
		t.Errorf("%d for other devices, %v", n, err)
	}
	if r, err := s.Rates(t.Context()); err != nil || r.Step != rateStep || slices.Max(append(r.Counts, 0)) != 0 {
		t.Errorf("rates %v, %v", r, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Total(ended); err == nil {
		t.Error("it answered although nobody waits")
	}
}

// Only acceptances count, and only those for the devices in question are written down.
func TestWatch(t *testing.T) {
	s := &simulated{began: time.Now()}
	at := s.began.Add(rateStep + time.Millisecond)
	s.watch(&sim.Arrival{At: at.Add(-rateStep), Reply: sim.APNSAccepted, ID: []byte("n0"), Device: []byte("d2")})
	if err := s.Note([]string{"d1"}, new(bool)); err != nil {
		t.Fatal(err)
	}
	for _, a := range []sim.Arrival{
		{At: at, Reply: sim.APNSAccepted, ID: []byte("n1"), Device: []byte("d1")},
		{At: at, Reply: sim.APNSAccepted, ID: []byte("n2"), Device: []byte("d2")},
		{At: at, Reply: sim.APNSUnregistered, ID: []byte("n3"), Device: []byte("d1")},
		{At: at, Reply: sim.APNSAccepted, What: sim.Undone, Device: []byte("d1")},
		{At: s.began.Add(2 * time.Hour), Reply: sim.APNSAccepted, ID: []byte("n4"), Device: []byte("d2")},
	} {
		s.watch(&a)
	}
	var noted []Noted
	if err := s.Noted(true, &noted); err != nil || len(noted) != 1 || noted[0] != (Noted{Pair{"n1", "d1"}, at}) {
		t.Errorf("noted %v, %v", noted, err)
	}
	if n := s.counts[1].Load(); n != 2 {
		t.Errorf("%d in the second step, want 2", n)
	}
	others := func() (n int) {
		if err := s.Others(true, &n); err != nil {
			t.Error(err)
		}
		return n
	}
	if n := others(); n != 2 {
		t.Errorf("%d for other devices, want n2 and n4", n)
	}
	if err := s.Note([]string{"d2"}, new(bool)); err != nil || others() != 0 {
		t.Errorf("%d for other devices than new ones, %v", others(), err)
	}
}

// A worker's rows are read through its socket.
func TestRows(t *testing.T) {
	memory, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	if err := memory.Write(t.Context(), []push.Row{{ID: "n2", Device: "d", State: push.StateDelivered, At: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	socket := Rows(filepath.Join(folder(t), "rows.sock"))
	if _, err := socket.Read(t.Context(), []string{"n1"}); err == nil {
		t.Error("nobody listens, and rows were read")
	}
	serving, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1) // of the goroutine below, which sends once
	go func() { ended <- serve(serving, string(socket), "Rows", served{rows{memory}}) }()
	var found [][]push.Row
	for { // until it listens
		if found, err = socket.Read(t.Context(), []string{"n1", "n2"}); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
	}
	if len(found) != 2 || len(found[0]) != 0 || len(found[1]) != 1 || found[1][0].Device != "d" {
		t.Errorf("rows %v", found)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What cannot be is refused, and what cannot start says why.
func TestRefused(t *testing.T) {
	for want, args := range map[string][]string{"want what to be": {"kafka"}, `no "cassandra"`: {"cassandra", "x"}, "no such file": {"run", "--config", "/does/not/exist"},
		"reading the configuration": {"registry", "--config", "/does/not/exist"}, "serving Server": {"kafka", "/does/not/exist/s"}} {
		if err := Serve(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	long := filepath.Join(folder(t), strings.Repeat("x", 120)) // no path of a socket
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := StartRedis(t.Context(), program(), long); err == nil || !strings.Contains(err.Error(), "it has ended: serving Server") {
		t.Errorf("got %v", err)
	}
	if _, err := StartKafka(t.Context(), []string{"/does/not/exist"}, folder(t)); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("got %v", err)
	}
}
