//go:build linux

package beside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// asServer is the argument that makes this test binary one of the servers.
const asServer = "serve"

func TestMain(m *testing.M) {
	fleettest.Roles(m, map[string]func(context.Context, []string) error{
		asServer: func(ctx context.Context, args []string) error { return servers.Serve(ctx, args, os.Stderr) },
	})
}

// TestRealRun: everything is sent and arrives, whether the message to many is in the lane of the others or not.
func TestRealRun(t *testing.T) {
	localtest.Require(t)
	programs, err := fleet.Build(t.Context(), t.TempDir(), false, "pushgateway", "pushworker")
	if err != nil {
		t.Fatal(err)
	}
	for _, sameLane := range []bool{false, true} {
		t.Run(fmt.Sprintf("same lane %t", sameLane), func(t *testing.T) {
			o := Standard()
			o.Subscribers, o.SameLane, o.WarmUp, o.Idle, o.Partitions = 3000, sameLane, 0, 2, 2
			o.Gateway, o.Worker, o.Serve, o.Progress = programs.Gateway, programs.Worker, []string{os.Args[0], asServer}, t.Logf
			// Ended by this and not by the test's own time-out, it tells what was missing.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			r, err := Run(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			r.check(t, &o)
		})
	}
}

// check holds what every run has against its options.
func (r *Result) check(t *testing.T, o *Options) {
	t.Helper()
	if err := r.Err(); err != nil || r.Sent < r.Idle.Samples+r.Beside.Samples {
		t.Errorf("%v: %+v", err, r)
	}
	for name, m := range map[string]*Messages{"idle": &r.Idle, "beside": &r.Beside} {
		if m.Samples == 0 || m.P50 == nil || *m.P99 < *m.P50 || *m.Max < *m.P99 || m.Seconds <= 0 || m.CPU[WorkerProcess] <= 0 || m.CPU[CassandraServer] <= 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if r.Emitted != o.Subscribers || r.Pushed != o.Subscribers || !r.PushedAll || r.EmittedSeconds == nil || r.Rate <= 0 || r.P50Ratio == nil || r.P99Ratio == nil || r.SameLane != o.SameLane {
		t.Errorf("the message to many: %+v", r)
	}
}

func TestOptions(t *testing.T) {
	good := Standard()
	good.Gateway, good.Worker, good.Serve = "x", "y", []string{"z"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"0 subscribers": func(o *Options) { o.Subscribers = 0 }, "10000001 subscribers": func(o *Options) { o.Subscribers = 10_000_001 },
		"0 messages": func(o *Options) { o.Rate = 0 }, "1001 messages": func(o *Options) { o.Rate = 1001 },
		"-1 s of warm-up": func(o *Options) { o.WarmUp = -1 }, "0 s on an idle": func(o *Options) { o.Idle = 0 }, "NaN s on an idle": func(o *Options) { o.Idle = math.NaN() },
		"-1 s beside": func(o *Options) { o.Seconds = -1 }, "lag time of -1s": func(o *Options) { o.LagTime = -time.Second }, "-1 records": func(o *Options) { o.FanoutRate = -1 }, "after 11s": func(o *Options) { o.Latency = 11 * time.Second },
		"0 workers": func(o *Options) { o.Workers = 0 }, "0 partitions": func(o *Options) { o.Partitions = 0 }, "the programs": func(o *Options) { o.Worker = "" },
	} {
		o := good
		spoil(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The configuration is one that workers, gateways and fan-outs take, and the senders' keys are some that a gateway knows.
func TestConfiguration(t *testing.T) {
	app := configs.App{Name: fleet.App, FCM: &configs.FCM{Project: "example-shop", ServiceAccountFile: "not-opened", URL: "https://fcm.googleapis.com"}}
	w := &world{dir: t.TempDir(), sim: &servers.Simulator{App: app}}
	defer w.close()
	o := Standard()
	o.LagTime, o.FanoutRate = 7*time.Second, 4000
	if err := errors.Join(fleet.WriteCallers(w.dir, shop, crew), w.openFleet(&o, local.Addresses{Kafka: "127.0.0.1:1", Redis: "127.0.0.1:1", Cassandra: "127.0.0.1:1"})); err != nil {
		t.Fatal(err)
	}
	if err := w.Config.CheckGateway(); err != nil {
		t.Error(err)
	}
	if _, err := gateway.OpenCallers(w.Config.Gateway.KeysFile); err != nil {
		t.Error(err)
	}
	if w.Config.Lane(messageLane) == nil || w.Config.Lane(fanoutLane) == nil || w.Config.Gateway.Fanout.LagTime != o.LagTime || w.Config.Gateway.Fanout.Rate != o.FanoutRate {
		t.Errorf("lanes %+v, fan-outs %+v", w.Config.Lanes, w.Config.Gateway.Fanout)
	}
	if d := configs.Default(); w.Config.Send.InFlight != d.Send.InFlight || w.Config.Gateway.Confirm != d.Gateway.Confirm {
		t.Errorf("it is not run with the defaults: %+v, %+v", w.Config.Send, w.Config.Gateway)
	}
}

// Each message is one that a worker takes as it is, for the next of the receivers; what a gateway refuses is counted, and
// the first answer kept.
func TestMessages(t *testing.T) {
	people, err := crowd.New(crowd.Options{Seed: 1, App: fleet.App, Users: receivers, Devices: 1})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var users []string // guarded by mu
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m push.Message
		var body json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		id := fmt.Sprintf(`{"id":"id-%d",`, len(users))
		if defect := decode.Message(append([]byte(id), body[1:]...), &m); defect != nil {
			t.Errorf("%s: %v", body, defect)
		}
		if users = append(users, m.UserID); len(users) == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, `{"id":%q}`, m.ID)
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	m := &messages{caller: shop, url: server.URL, people: people}
	due := time.UnixMilli(1_790_000_000_000)
	for i := range 4 {
		m.send(receivers-1+i, due.Add(time.Duration(i)*time.Second))
	}
	sent, refused, first := m.soFar()
	if len(sent) != 3 || sent[1] != (latency.Sent{ID: "id-1", User: 0, At: due.Add(time.Second)}) || refused != 1 || first == nil || !strings.Contains(first.Error(), "503") {
		t.Errorf("%+v, %d refused: %v", sent, refused, first)
	}
	if want := []string{people.User(receivers - 1).ID, people.User(0).ID, people.User(1).ID, people.User(2).ID}; !slices.Equal(users, want) {
		t.Errorf("to %v, want %v", users, want)
	}
	if n := len(devicesOf(people)); n != receivers {
		t.Errorf("%d devices of receivers", n)
	}
}

// Messages count in the time in which they were due, and all that is missing is an error that names one.
func TestFigures(t *testing.T) {
	from := time.UnixMilli(1_790_000_000_000)
	at := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	idle := &span{at(10), at(20), &usage.Spent{Took: 10 * time.Second, CPU: map[string]time.Duration{WorkerProcess: 5 * time.Second}, Others: 0.25}}
	beside := &span{at(20), at(60), &usage.Spent{Took: 40 * time.Second, CPU: map[string]time.Duration{WorkerProcess: 30 * time.Second}}}
	all := []latency.Wait{{At: at(9), Took: time.Hour}, {At: at(10), Took: 10 * time.Millisecond}, {At: at(19), Took: 20 * time.Millisecond}, {At: at(20), Took: 30 * time.Millisecond}, {At: at(60), Took: time.Hour}}
	r := &Result{Sent: 6, Undelivered: 1}
	r.messages(all, []latency.Sent{{ID: "lost"}}, nil, idle, beside)
	if i := r.Idle; i.Samples != 2 || *i.P50 != 10 || *i.P99 != 20 || *i.Max != 20 || i.CPU[WorkerProcess] != 0.5 || i.Others != 0.25 || i.Seconds != 10 {
		t.Errorf("idle %+v", i)
	}
	if b := r.Beside; b.Samples != 1 || *b.P50 != 30 || b.CPU[WorkerProcess] != 0.75 || *r.P50Ratio != 3 || *r.P99Ratio != 1.5 {
		t.Errorf("beside %+v, %v, %v", b, *r.P50Ratio, *r.P99Ratio)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "of 6 that were accepted 1 have not arrived. The first: lost") {
		t.Errorf("got %v", err)
	}
	r.fanout(&fanout{o: &Options{Subscribers: 100}, began: at(20), ended: at(30), emitted: 100, pushed: 80}, beside)
	if r.PushedAll || r.Rate != 2 || *r.EmittedSeconds != 10 {
		t.Errorf("80 of 100 are pushed: %+v", r)
	}
	if none := ratio(nil, r.Idle.P50); none != nil || (&Result{Sent: 3}).Err() != nil {
		t.Errorf("of nothing: %v", none)
	}
}
