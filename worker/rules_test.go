package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/wiring"
)

// allows asks the rules in force about one more notification of a user.
func allows(t *testing.T, r *rules, id string) bool {
	t.Helper()
	limiter := r.limiter()
	if limiter == nil {
		return true
	}
	asked := &limits.Request{Owner: "ada", ID: id, Type: "news", At: time.Now()}
	if err := limiter.DecideWith(t.Context(), []*limits.Request{asked}, nil); err != nil {
		t.Fatal(err)
	}
	return asked.Allowed
}

// Limits change while the worker runs; a configuration that is not valid changes
// nothing, and what needs a restart is named, each once.
func TestLimitsAreReloaded(t *testing.T) {
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	o, err := wiring.Redis(configs.Default())
	if err != nil {
		t.Fatal(err)
	}
	o.Dialer = redis.Dial
	client, err := shards.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	with := func(edit func(*configs.Config)) *configs.Config {
		c := configs.Default()
		if edit != nil {
			edit(c)
		}
		return c
	}
	cap := func(most int) func(*configs.Config) {
		return func(c *configs.Config) {
			c.Limits.Rules = []configs.Rule{{Name: "hour", Per: "user", Max: most, Window: time.Hour}}
		}
	}
	var log bytes.Buffer
	var reads []bool
	reg := prometheus.NewRegistry()
	begun := time.Unix(1_790_000_000, 0)
	r, err := newRules(with(nil), client, nil, func(on bool) { reads = append(reads, on) }, slog.New(slog.NewTextHandler(&log, nil)), reg, begun)
	if err != nil {
		t.Fatal(err)
	}
	for n, tt := range []struct {
		why     string
		config  *configs.Config
		err     error
		allowed []bool // of one new notification after the other
		states  bool   // are read with the users
		good    float64
		since   int // the step whose limits are in force, from 0; -1 = the start
		says    string
	}{
		{"nothing changed", with(nil), nil, []bool{true, true, true}, false, 1, -1, ""},
		{"the first rule", with(cap(2)), nil, []bool{true, true, false}, true, 1, 1, `msg="limits changed" rules=1`},
		{"a file that is broken", nil, errors.New("limits.rules[0].max: must be at least 1"), []bool{false}, true, 0, 1, "limits.rules[0].max"},
		{"still broken: not said again", nil, errors.New("limits.rules[0].max: must be at least 1"), []bool{false}, true, 0, 1, ""},
		{"mended, as it was", with(cap(2)), nil, []bool{false}, true, 1, 1, ""},
		{"a greater limit", with(cap(3)), nil, []bool{true, false}, true, 1, 5, "limits changed"},
		{"another section too", with(func(c *configs.Config) { cap(3)(c); c.Log.Level, c.Send.InFlight = "debug", 7 }), nil, []bool{false}, true, 1, 5, `sections="send, log"`},
		{"the same again: said once", with(func(c *configs.Config) { cap(3)(c); c.Log.Level, c.Send.InFlight = "debug", 7 }), nil, []bool{false}, true, 1, 5, ""},
		{"no rules any more", with(nil), nil, []bool{true}, false, 1, 8, "rules=0"},
		{"a rule that cannot be", with(func(c *configs.Config) {
			c.Limits.Rules = []configs.Rule{{Name: "x", Per: "moon", Max: 1, Window: time.Hour}}
		}), nil, []bool{true}, false, 0, 8, "moon"},
		{"it still cannot be: not said again", with(func(c *configs.Config) {
			c.Limits.Rules = []configs.Rule{{Name: "x", Per: "moon", Max: 1, Window: time.Hour}}
		}), nil, []bool{true}, false, 0, 8, ""},
		{"mended", with(nil), nil, []bool{true}, false, 1, 8, ""},
		{"another place for rules of devices", with(func(c *configs.Config) { c.Limits.Devices.Backend = "cassandra" }), nil, []bool{true}, false, 0, 8, "need a restart"},
		{"and back", with(nil), nil, []bool{true}, false, 1, 8, ""},
		{"broken as before: said again", nil, errors.New("limits.rules[0].max: must be at least 1"), []bool{true}, false, 0, 8, "limits.rules[0].max"},
		{"mended again", with(nil), nil, []bool{true}, false, 1, 8, ""},
		{"and broken in the same way: said again", nil, errors.New("limits.rules[0].max: must be at least 1"), []bool{true}, false, 0, 8, "limits.rules[0].max"},
	} {
		log.Reset()
		for range 2 { // the first look only finds that something has changed
			r.look(func() (*configs.Config, error) { return tt.config, tt.err }, begun.Add(time.Duration(n+1)*time.Minute))
		}
		for i, want := range tt.allowed {
			if got := allows(t, r, fmt.Sprint(n, ".", i)); got != want {
				t.Errorf("%s: notification %d allowed: %t, want %t", tt.why, i, got, want)
			}
		}
		if got := reads[len(reads)-1]; got != tt.states {
			t.Errorf("%s: limiter states are read: %t, want %t", tt.why, got, tt.states)
		}
		since := begun.Add(time.Duration(tt.since+1) * time.Minute)
		if got := testutil.ToFloat64(r.since); got != float64(since.Unix()) {
			t.Errorf("%s: in force since %v, want %v", tt.why, got, since.Unix())
		}
		if got := testutil.ToFloat64(r.good); got != tt.good {
			t.Errorf("%s: successful %v, want %v", tt.why, got, tt.good)
		}
		if got := log.String(); !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: says %q, want %q", tt.why, got, tt.says)
		}
	}
}

// The configuration is read again each rulesRound until the worker ends.
func TestTheConfigurationIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := newRules(configs.Default(), nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*rulesRound+time.Second)
		defer cancel()
		read := 0
		r.follow(ctx, rulesRound, func() (*configs.Config, error) {
			read++
			return configs.Default(), nil
		})
		if read != 3 {
			t.Errorf("read %d times in three rounds", read)
		}
	})
}

// After a file that is not valid or was refused nothing is well before another one is in
// force: the next may be refused too, and an alert on it would begin anew. Nor is anything
// said of a file that is not settled.
func TestAReloadIsWellWhenAFileIsInForce(t *testing.T) {
	about := func(lane string) *configs.Config { // refused: the lane does not run
		c := configs.Default()
		c.Lanes = append(c.Lanes, configs.Lane{Name: lane})
		c.Limits.Rules = []configs.Rule{{Name: "r", Per: "user", Max: 1, Window: time.Hour, Lanes: []string{lane}}}
		return c
	}
	limited := configs.Default()
	limited.Limits.Rules = []configs.Rule{{Name: "r", Per: "user", Max: 1, Window: time.Hour}}
	one, two, invalid := about("one"), about("two"), errors.New("not valid")
	var log bytes.Buffer
	r, err := newRules(configs.Default(), nil, nil, func(bool) {}, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, look := range []struct {
		why    string
		config *configs.Config
		err    error
		good   float64
		says   string // empty = nothing
	}{
		{"the one of the start", configs.Default(), nil, 1, ""},
		{"another one: it may be half written", one, nil, 1, ""},
		{"it is refused", one, nil, 0, "there is no lane"},
		{"another one, not yet refused", two, nil, 0, ""},
		{"it is", two, nil, 0, "there is no lane"},
		{"one that could be in force", limited, nil, 0, ""},
		{"and is", limited, nil, 1, "limits changed"},
		{"not valid", nil, invalid, 0, "not valid"},
		{"another one before the mistake is mended", two, nil, 0, ""},
		{"mended", limited, nil, 1, ""},
		{"not valid again", nil, invalid, 0, "not valid"},
		{"mended, and changed", configs.Default(), nil, 0, ""},
		{"in force", configs.Default(), nil, 1, "limits changed"},
	} {
		log.Reset()
		r.look(func() (*configs.Config, error) { return look.config, look.err }, time.Now())
		if got := testutil.ToFloat64(r.good); got != look.good {
			t.Errorf("%s: successful is %v, want %v", look.why, got, look.good)
		}
		if got := log.String(); !strings.Contains(got, look.says) || (got == "") != (look.says == "") {
			t.Errorf("%s: says %q, want %q", look.why, got, look.says)
		}
	}
}

// A rule about what only the new file has keeps the change out of force, and the log says
// that a restart is needed, with the key: its lane does not run here, and it would match
// nothing.
func TestARuleAboutWhatDoesNotRunIsNotInForce(t *testing.T) {
	var log bytes.Buffer
	r, err := newRules(configs.Default(), nil, nil, func(bool) {}, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := configs.Default()
	c.Lanes = append(c.Lanes, configs.Lane{Name: "new"})
	c.Limits.Rules = []configs.Rule{{Name: "all", Per: "user", Max: 9, Window: time.Hour}, {Name: "r", Per: "user", Max: 1, Window: time.Hour, Lanes: []string{"new"}}}
	look := func(force bool, good float64, says string) {
		t.Helper()
		log.Reset()
		for range 3 {
			r.look(func() (*configs.Config, error) { return c, nil }, time.Now())
		}
		if got := r.limiter() != nil; got != force || testutil.ToFloat64(r.good) != good || strings.Count(log.String(), says) != 1 {
			t.Errorf("in force: %t, successful %v, says %s", got, testutil.ToFloat64(r.good), log.String())
		}
	}
	look(false, 0, `this worker needs a restart first: limits.rules[1].lanes[0]`)

	mended := *c
	mended.Limits.Rules = c.Limits.Rules[:1]
	c = &mended // its other rule is in force, although the lane still waits for a restart
	look(true, 1, "sections=lanes")
}

// Every lane of a running worker asks by the rules that are in force by then.
func TestLanesFollowTheRules(t *testing.T) {
	c, o, _ := servers(t)
	var limited []*stages.Limits // of each half of each lane
	var prefer []func() stages.Rules
	o.Wrap = func(po pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		for _, s := range po.Stages {
			switch s := s.(type) {
			case *stages.Limits:
				limited = append(limited, s)
			case *stages.Preferences:
				prefer = append(prefer, s.Rules)
			}
		}
		prefer = append(prefer, po.Recheck.(*stages.Recheck).Rules)
		return po
	}
	read := make(chan struct{}) // closed when the worker looks for the second time; its end waits until it has looked
	looks := 0
	o.ReloadEvery = 10 * time.Millisecond
	o.Reload = func() (*configs.Config, error) {
		if looks++; looks == 2 {
			close(read)
		}
		changed := *c
		changed.Limits.Rules = []configs.Rule{{Name: "hour", Per: "user", Max: 1, Window: time.Hour}}
		changed.Preferences.OptInTypes, changed.Preferences.DefaultZone = []string{"survey"}, "Asia/Tokyo"
		return &changed, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	select {
	case <-read:
	case err := <-ended:
		t.Fatalf("it ends by itself: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(limited) != 2*len(c.Lanes) {
		t.Errorf("%d stages ask for limits, want two for each of %d lanes", len(limited), len(c.Lanes))
	}
	for _, l := range limited {
		if l.Limiter() == nil {
			t.Error("a lane has the rules of the start")
		}
		if zone := l.Zone(&push.User{}).String(); zone != "Asia/Tokyo" {
			t.Errorf("a lane's windows go by %s", zone)
		}
	}
	if len(prefer) != 4*len(c.Lanes) {
		t.Errorf("%d ask for preferences, want two stages and two checks of what has waited for each of %d lanes", len(prefer), len(c.Lanes))
	}
	for _, current := range prefer {
		if p := current(); !p.Consent.OptIn["survey"] || p.Quiet.Zone(&push.User{}).String() != "Asia/Tokyo" {
			t.Errorf("a lane has the preferences of the start: %+v", p)
		}
	}
}

// The limits of senders come and go with the rules, and one that cannot be changes nothing.
func TestLimitsOfSendersAreReloaded(t *testing.T) {
	hourly := configs.SenderRule{Name: "hour", Algorithm: "token_bucket", Max: 10, Window: time.Hour}
	with := func(list ...configs.SenderRule) *configs.Config {
		c := configs.Default()
		c.Limits.Senders = list
		return c
	}
	r, err := newRules(with(), nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why   string
		c     *configs.Config
		there bool
	}{
		{"none", with(), false}, {"one", with(hourly), true},
		{"one that cannot be", with(configs.SenderRule{Name: "day", Algorithm: "guess", Max: 1, Window: time.Hour}), true}, {"none again", with(), false},
	} {
		for range 2 {
			r.look(func() (*configs.Config, error) { return tt.c, nil }, time.Now())
		}
		if got := r.senders() != nil; got != tt.there {
			t.Errorf("%s: limits of senders are in force: %t", tt.why, got)
		}
	}
}

// A file that is read while it is being written changes nothing.
func TestHalfAFileIsNotInForce(t *testing.T) {
	rule := func(most int) configs.Rule {
		return configs.Rule{Name: "hour", Per: "user", Max: most, Window: time.Hour}
	}
	with := func(list ...configs.Rule) *configs.Config {
		c := configs.Default()
		c.Limits.Rules = list
		return c
	}
	r, err := newRules(with(rule(100)), nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for n, tt := range []struct {
		c     *configs.Config // nil = it is not valid
		force int
	}{
		{with(rule(1)), 100}, // max: 1, of a file that goes on with 50
		{with(rule(150)), 100},
		{nil, 100},
		{with(rule(150)), 100}, // what was before the broken one does not count
		{with(rule(150)), 150},
		{with(), 150},
		{with(rule(150)), 150},
	} {
		r.look(func() (*configs.Config, error) {
			if tt.c == nil {
				return nil, errors.New("broken")
			}
			return tt.c, nil
		}, time.Now())
		if got := r.inForce.Limits.Rules[0].Max; got != tt.force {
			t.Errorf("look %d: a limit of %d is in force, want %d", n, got, tt.force)
		}
	}
}

// A lane that the file has lost runs until the restart, by the preferences in force.
func TestALaneThatTheFileHasLostHasPreferences(t *testing.T) {
	started, c := configs.Default(), configs.Default()
	r, err := newRules(started, nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.Lanes, c.Preferences.OptInTypes = c.Lanes[1:], []string{"survey"}
	for range 2 {
		r.look(func() (*configs.Config, error) { return c, nil }, time.Now())
	}
	for _, l := range started.Lanes {
		if !r.preferences(l.Name).Consent.OptIn["survey"] {
			t.Errorf("lane %s asks for no opt-in", l.Name)
		}
	}
}

// An app that the file has lost still runs: a rule that states cannot tell from it is not
// put in force.
func TestARuleIsHeldAgainstAnAppThatTheFileHasLost(t *testing.T) {
	rule := limits.Rule{Name: "r", Per: limits.PerUser, Max: 1, Window: time.Hour, Apps: []string{"shop"}}
	twin := "" // has the hash of shop
	for i := 0; twin == ""; i++ {
		other := fmt.Sprint("app", i)
		if _, err := limits.New(nil, []limits.Rule{rule}, limits.Among([]string{"shop", other}, nil), limits.WriteVersion2()); err != nil {
			twin = other
		}
	}
	with := func(apps ...string) *configs.Config {
		c := configs.Default()
		for _, name := range apps {
			c.Apps = append(c.Apps, configs.App{Name: name})
		}
		c.Limits.StateVersion = 2
		return c
	}
	r, err := newRules(with("shop", twin), nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := with("shop")
	c.Limits.Rules = []configs.Rule{{Name: "r", Per: "user", Max: 1, Window: time.Hour, Apps: []string{"shop"}}}
	for range 2 {
		r.look(func() (*configs.Config, error) { return c, nil }, time.Now())
	}
	if r.limiter() != nil || testutil.ToFloat64(r.good) != 0 {
		t.Errorf("in force beside %s: %t, successful %v", twin, r.limiter() != nil, testutil.ToFloat64(r.good))
	}
}
