package sim_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sideshow/apns2"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/providers/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startAdmin(t *testing.T, o sim.Options) (*sim.Server, *sim.Credentials, func(method, path, body string) (int, string)) {
	s, c := start(t, o)
	if err := s.StartAdmin("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return s, c, func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, s.AdminURL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
}

func TestAdmin(t *testing.T) {
	s, c, ask := startAdmin(t, sim.Options{})
	client := appleClient(t, s, c)
	push := func(id string) int {
		t.Helper()
		res, err := client.Push(&apns2.Notification{
			DeviceToken: appleToken, Topic: c.Topic, PushType: apns2.PushTypeAlert,
			Payload: fmt.Appendf(nil, `{"aps":{"alert":"x"},"pf_id":%q}`, id),
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	order := func(path, body string, want int) {
		t.Helper()
		if got, text := ask("POST", path, body); got != want {
			t.Errorf("POST %s %s: got %d %s, want %d", path, body, got, text, want)
		}
	}

	push("n1")
	push("n1")
	order("/tokens", `{"provider":"apns","token":"`+appleToken+`","reply":"unregistered","since":"2026-01-01T00:00:00Z"}`, 204)
	if got := push("n2"); got != 410 {
		t.Errorf("marked dead, got %d", got)
	}
	order("/tokens", `{"provider":"apns","token":"`+appleToken+`","reply":"accepted"}`, 204)
	order("/faults", `{"provider":"apns","unavailable":1,"latency":"1ms"}`, 204)
	if got := push("n2"); got != 503 {
		t.Errorf("all unavailable, got %d", got)
	}
	if f := s.Faults(sim.APNS); f.Unavailable != 1 || f.Latency != time.Millisecond {
		t.Errorf("got %+v", f)
	}

	var totals sim.Totals
	if _, text := ask("GET", "/ledger", ""); json.Unmarshal([]byte(text), &totals) != nil ||
		totals.Received != 4 || totals.Accepted != 2 || totals.Duplicates != 1 || totals.Entries != 2 ||
		totals.Providers["apns"].Replies["Unregistered"] != 1 {
		t.Errorf("got %s", text)
	}
	var entries []struct {
		ID, Device, Last  string
		Accepted, Refused int
	}
	if _, text := ask("GET", "/ledger?id=n2", ""); json.Unmarshal([]byte(text), &entries) != nil || len(entries) != 1 ||
		entries[0].Refused != 2 || entries[0].Last != "ServiceUnavailable" || entries[0].Device != sim.DeviceHash(sim.APNS, appleToken) {
		t.Errorf("got %s", text)
	}
	_, text := ask("GET", "/ledger/entries", "")
	lines := bufio.NewScanner(strings.NewReader(text))
	n := 0
	for lines.Scan() {
		n++
		if !json.Valid(lines.Bytes()) || strings.Contains(lines.Text(), appleToken) {
			t.Errorf("line %s", lines.Text())
		}
	}
	if n != 2 {
		t.Errorf("got %d lines, want 2", n)
	}
	order("/ledger/reset", "", 204)
	if got := s.Ledger().Totals().Received; got != 0 {
		t.Errorf("after the reset: %d", got)
	}
	if _, text := ask("GET", "/ca.pem", ""); text != string(s.CAPEM()) {
		t.Errorf("got %s", text)
	}

	for _, bad := range [][2]string{
		{"/tokens", ``}, {"/tokens", `{"provider":"sms","token":"x","reply":"Unregistered"}`},
		{"/tokens", `{"provider":"apns","token":"x","reply":"UNREGISTERED:apns"}`}, {"/tokens", `{"provider":"fcm","reply":"UNREGISTERED"}`},
		{"/tokens", `{"provider":"fcm","token":"x","colour":"red"}`}, {"/faults", `{"provider":"apns","internal":2}`},
		{"/faults", `{"provider":"none"}`}, {"/faults", `{"provider":"apns","latency":"soon"}`},
	} {
		order(bad[0], bad[1], 400)
	}
}

func TestCountingModeKeepsNoIDs(t *testing.T) {
	_, _, ask := startAdmin(t, sim.Options{CountOnly: true})
	if got, text := ask("GET", "/ledger?id=n1", ""); got != http.StatusConflict {
		t.Errorf("got %d %s, want it to say that it cannot", got, text)
	}
}

// Real connections, many at once, with latency and faults: what the clients
// saw is what the ledger says.
func TestConcurrentClients(t *testing.T) {
	s, c := start(t, sim.Options{Seed: 1, Faults: sim.RouteSet{APNS: sim.Faults{Unavailable: 0.1, Jitter: 2 * time.Millisecond}}})
	const clients, workers, each = 3, 8, 25
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]uint64{}
	for k := range clients {
		client := appleClient(t, s, c)
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					res, err := client.Push(&apns2.Notification{
						DeviceToken: appleToken, Topic: c.Topic, PushType: apns2.PushTypeAlert,
						Payload: fmt.Appendf(nil, `{"aps":{"alert":"x"},"pf_id":"n%d"}`, (k*workers+w)*each+i),
					})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[res.StatusCode]++
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	got := s.Ledger().Totals()
	if got.Received != clients*workers*each || got.Accepted != seen[200] || got.Refused != seen[503] || got.Duplicates != 0 || got.Entries != got.Received {
		t.Errorf("ledger %+v, clients %v", got, seen)
	}
}

// Close does not wait for the latency of what is in flight, and leaves nothing
// running (TestMain looks for goroutines).
func TestCloseWithRequestsInFlight(t *testing.T) {
	s, c := start(t, sim.Options{Faults: sim.RouteSet{APNS: sim.Faults{Latency: time.Hour}}})
	client := appleClient(t, s, c)
	failed := make(chan error)
	go func() {
		_, err := client.Push(&apns2.Notification{DeviceToken: appleToken, Topic: c.Topic, Payload: `{"aps":{"alert":"x"},"pf_id":"n1"}`})
		failed <- err
	}()
	for s.Ledger().Totals().Received == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the push was answered after Close")
	}
	if got := s.Ledger().Accepted("n1", sim.DeviceHash(sim.APNS, appleToken)); got != 1 {
		t.Errorf("got %d, want 1: it was accepted, only the answer got lost", got)
	}
	if err := s.Start("127.0.0.1:0"); err == nil {
		t.Error("started again after Close")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for why, o := range map[string]sim.Options{
		"faults":     {Faults: sim.RouteSet{FCM: sim.Faults{Internal: 2}}},
		"malformed":  {Malformed: sim.FCMInternal},
		"token life": {AccessTokenLife: time.Millisecond},
		"streams":    {MaxConcurrentStreams: -1},
	} {
		if _, err := sim.New(o); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
}
