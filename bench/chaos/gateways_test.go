//go:build unix

package chaos

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/fanout"
)

// Both scenarios that come by HTTP, at once and on one set of servers: calls through gateways
// that die and hang, and messages to a topic whose processes of fan-outs do.
func TestThroughGateways(t *testing.T) {
	localtest.Require(t)
	s, err := FindScenario("gateway")
	if err != nil {
		t.Fatal(err)
	}
	s.Rate, s.through = 40, &through{gateways: gateways, calls: true, messages: 2, processes: fanoutProcesses, subscribers: 2000, shorter: 2000}
	s.plan = func(r *rand.Rand, length time.Duration) []Action {
		return append(aroundGateways(r, length), slices.DeleteFunc(withinFanouts(r, length), func(a Action) bool {
			return !ofGateways(a.Target) && a.Fault != Visit // what the others need is in the first
		})...)
	}
	r := cleanOf(t, s, configs.AtLeastOnce, 3, 25*time.Second)
	unheard := 0
	for _, e := range r.Ledgers.Events {
		unheard += e.Unheard
	}
	c := r.Report.Calls
	if unheard == 0 || c.Away == 0 || c.Refused == 0 || c.Unheard == 0 {
		t.Errorf("%d records were in the lane whose gateway died before it could say so; %+v: something was not met", unheard, c)
	}
	if c.Fanouts != s.through.messages || c.Emitted < 2*2000*9/10 || c.Apart == 0 {
		t.Errorf("%+v: that is not what was to be sent to all", c)
	}
}

// However short they are, each kind of fault comes in both, and in full what the issue names.
func TestPlansThroughGateways(t *testing.T) {
	kinds := func(name string, seed uint64, full bool) map[string]int {
		s, err := FindScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		length := s.Short
		if full {
			length = s.Full
		}
		count := map[string]int{}
		for _, a := range Plan(s, seed, length) {
			count[string(a.Fault)+" of "+kindOf(a.Target)]++
		}
		return count
	}
	for seed := range uint64(20) {
		for _, full := range []bool{false, true} {
			got := kinds("gateway", seed, full)
			for _, want := range []string{"kill before the answer of a gateway", "kill of a gateway", "pause of a gateway", "stop of a gateway", "wipe of redis"} {
				if got[want] == 0 && (full || want[:4] == "kill") {
					t.Errorf("gateway, seed %d, full %v: no %s in %v", seed, full, want, got)
				}
			}
			got = kinds("fanout", seed, full)
			if got["kill of a process of fan-outs"] == 0 || got["grown of kafka"] != 1 || full && (got["visit of fan-outs"] == 0 || got["wipe of redis"] == 0 || got["stop of a process of fan-outs"] == 0) {
				t.Errorf("fanout, seed %d, full %v: %v", seed, full, got)
			}
		}
	}
}

// What is answered, or not, is taken for just that.
func TestAnswers(t *testing.T) {
	accepted := `{"id":"a","receipt":"r","status":"PENDING"}`
	for _, tt := range []struct {
		why    string
		status int
		text   string
		err    error
		calls  int
		want   []answer
	}{
		{"accepted", 202, accepted, nil, 1, []answer{{ID: "a", Receipt: "r", status: 202}}},
		{"no JSON", 202, `{"id":`, nil, 1, []answer{{}}},
		{"a problem", 503, `{"code":"unconfirmed","id":"a"}`, nil, 1, []answer{{Code: "unconfirmed", status: 503}}},
		{"nobody's page", 502, `<html>`, nil, 1, []answer{{status: 502}}},
		{"none", 0, "", errors.New("reset"), 2, []answer{{}, {}}},
		{"a batch is refused", 429, `{"code":"busy"}`, nil, 2, []answer{{Code: "busy", status: 429}, {Code: "busy", status: 429}}},
		{"a batch", 207, `{"results":[` + accepted + `,{"id":"b","problem":{"status":422,"code":"no"}}]}`, nil, 2, []answer{{ID: "a", Receipt: "r", status: 202}, {Code: "no", status: 422}}},
		{"too few lines", 202, `{"results":[` + accepted + `]}`, nil, 2, []answer{{}, {}}},
	} {
		got := answersOf(tt.status, []byte(tt.text), tt.err, tt.calls)
		for i := range got {
			got[i].Problem = nil
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.why, got, tt.want)
		}
	}
}

// The same seed makes the same requests, with messages of all kinds; what is invalid says so.
func TestRequestsReplay(t *testing.T) {
	o := crowd.Default("shop", 4000)
	(&through{}).people(&o, true)
	people, err := crowd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	requests := func() (list []*request) {
		c := newCallers(&world{people: people}, 7)
		draw, g := rand.New(rand.NewPCG(7, 1)), people.Records()
		for n := 0; n < 2000; {
			r, err := c.request(draw, g, n)
			if err != nil {
				t.Fatal(err)
			}
			list, n = append(list, r), n+len(r.calls)
		}
		return list
	}
	a, b := requests(), requests()
	batches, keys, more, wrong := 0, 0, 0, map[string]int{}
	for i, r := range a {
		if r.path != b[i].path || len(r.calls) != len(b[i].calls) || r.more != b[i].more || len(r.headers) != len(b[i].headers) {
			t.Fatalf("request %d is another one: %+v and %+v", i, r, b[i])
		}
		if len(r.calls) > 1 {
			batches++
		}
		for _, call := range r.calls {
			wrong[call.Invalid]++
		}
		if len(r.headers) > 0 && r.headers[0] == "Idempotency-Key" {
			keys++
			if r.calls[0].ID != "" || r.calls[0].Invalid != "" {
				t.Errorf("%+v has a key and an id, or is to be refused", r.calls[0])
			}
		}
		if r.more {
			more++
		}
	}
	if batches == 0 || keys == 0 || more < len(a)/8 || len(wrong) != 1+len(invalid) {
		t.Errorf("of %d requests %d are batches, %d have keys, %d come once more; %v", len(a), batches, keys, more, wrong)
	}
}

// The parts of a topic's audience are those of the product, and none is forgotten.
func TestLargestChunk(t *testing.T) {
	people, err := crowd.New(crowd.Default("shop", 10_000))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]int{}
	for i := range people.Users {
		sizes[fanout.SliceOf(people.User(i).ID)/(fanout.Slices/chunks)]++
	}
	largest := 0
	for _, n := range sizes {
		largest = max(largest, n)
	}
	if got := largestChunk(people); got != largest || len(sizes) != chunks {
		t.Errorf("%d of %v", got, sizes)
	}
}

// What becomes of a message to a topic is what becomes of one that nobody has limited or
// opted out of by its type.
func TestFateOfSubscribers(t *testing.T) {
	people, err := crowd.New(crowd.Default("shop", 10_000))
	if err != nil {
		t.Fatal(err)
	}
	fates := map[crowd.Fate]int{}
	for i := range people.Users {
		fate := fateOf(people, i)
		fates[fate]++
		u := people.User(i)
		if byType := len(u.Preferences.Types) > 0; byType && fate != crowd.Reaches || u.Kind == crowd.Greedy && fate != crowd.Reaches || u.Preferences.OptOutAll && fate != crowd.IsSuppressed {
			t.Errorf("%s, %s: %s", u.ID, u.Kind, fate)
		}
	}
	if len(fates) != 4 {
		t.Errorf("%v", fates)
	}
}
