package users_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// feedback is a report about a device, whose times are seconds after Epoch; 0 = not said.
func feedback(user string, tok int, deadSince, at int) string {
	v := map[string]any{"user_id": user, "device": userstest.Hash(tok), "platform": "fcm", "app": "shop", "reason": "UNREGISTERED"}
	if deadSince > 0 {
		v["dead_since_ms"] = userstest.Epoch.Add(time.Duration(deadSince) * time.Second).UnixMilli()
	}
	if at > 0 {
		v["at_ms"] = userstest.Epoch.Add(time.Duration(at) * time.Second).UnixMilli()
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// feed runs a Feedback over these reports until they are committed.
func (w *world) feed(o users.FeedbackOptions, reports ...string) {
	w.T.Helper()
	source := userstest.NewReports()
	f, err := users.NewFeedback(w.Redis, source, w.Topic, o, w.Metrics, quiet)
	w.Must(err)
	ctx, cancel := context.WithCancel(w.Ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx)
	}()
	source.Add(reports...)
	if n := <-source.Committed; n != len(reports) {
		w.T.Errorf("%d reports committed, want %d", n, len(reports))
	}
	cancel()
	<-done
}

// Each case has a user and devices of its own in one world, as building all
// shards is what costs.
func TestFeedbackRules(t *testing.T) {
	cases := []struct {
		name    string
		report  func(user string, tok int) string
		removed bool
	}{
		{"dead since after the registration", func(u string, tok int) string { return feedback(u, tok, 110, 120) }, true},
		{"dead since the very moment", func(u string, tok int) string { return feedback(u, tok, 100, 120) }, true},
		{"dead before it was registered again", func(u string, tok int) string { return feedback(u, tok, 99, 120) }, false},
		{"no timestamp", func(u string, tok int) string { return feedback(u, tok, 0, 0) }, true},
		{"no timestamp, sent after the registration", func(u string, tok int) string { return feedback(u, tok, 0, 120) }, true},
		{"no timestamp, sent before it was registered again", func(u string, tok int) string { return feedback(u, tok, 0, 90) }, false},
		{"a bare device, found by its token", func(u string, tok int) string { return feedback("", tok, 110, 120) }, true},
		{"a bare device, named by its hash", func(u string, tok int) string { return feedback(userstest.Hash(tok), tok, 110, 120) }, true},
		{"a bare device nobody has", func(u string, tok int) string { return feedback("", 999, 110, 120) }, false},
		{"another user's report finds the owner all the same", func(u string, tok int) string { return feedback("eve", tok, 110, 120) }, true},
		{"unreadable", func(u string, tok int) string { return "{" }, false},
		{"a time that is none", func(u string, tok int) string {
			return `{"user_id":"` + u + `","device":"` + userstest.Hash(tok) + `","dead_since_ms":"yesterday"}`
		}, false},
		{"without a device", func(u string, tok int) string { return `{"user_id":"` + u + `"}` }, false},
	}
	eachRedis(t, func(w *world) {
		var names []string
		for i := range cases {
			names = append(names, fmt.Sprintf("user-%d", i))
			w.Register(names[i], 2*i, 100)
			w.Register(names[i], 2*i+1, 100)
		}
		w.Run(userstest.RegistryOptions())
		w.Settle()
		for i, tt := range cases {
			w.feed(users.DefaultFeedbackOptions(), tt.report(names[i], 2*i))
		}
		w.Settle()
		for i, tt := range cases {
			var first, second bool
			if u := w.Fetch(names[i])[names[i]]; u != nil {
				for _, d := range u.Devices {
					first, second = first || d.Hash == userstest.Hash(2*i), second || d.Hash == userstest.Hash(2*i+1)
				}
			}
			if removed := !first; removed != tt.removed {
				t.Errorf("%s: removed = %v, want %v", tt.name, removed, tt.removed)
			}
			if !second {
				t.Errorf("%s: the other device is gone too", tt.name)
			}
		}
	})
}

// Each report is counted as what became of it.
func TestFeedbackCountsItsReports(t *testing.T) {
	virtual(t, func(w *world) {
		w.Register("ada", 1, 100)
		w.Register("ada", 2, 100)
		w.Run(userstest.RegistryOptions())
		w.Settle()
		reg := prometheus.NewRegistry()
		w.Metrics = users.NewMetrics(reg)
		w.feed(users.DefaultFeedbackOptions(),
			feedback("ada", 1, 110, 120),  // removed
			feedback("ada", 2, 90, 120),   // newer
			feedback("", 3, 110, 120),     // nobody's
			feedback("", 4, 110, 120),     // nobody's either
			feedback("eve", 5, 110, 120),  // not hers
			"{", "[]", `{"device":"tok"}`, // unreadable
		)
		want := `# HELP push_feedback_records_total Dead-token reports read, by what became of them: removed, newer (registered again since), unknown (no such device), unreadable.
# TYPE push_feedback_records_total counter
push_feedback_records_total{result="newer"} 1
push_feedback_records_total{result="removed"} 1
push_feedback_records_total{result="unknown"} 3
push_feedback_records_total{result="unreadable"} 3
`
		w.Must(testutil.GatherAndCompare(reg, strings.NewReader(want), "push_feedback_records_total"))
	})
}

func TestFeedbackWaitsForTheGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w *world) {
			const devices, perMinute = 25, 10
			var reports []string
			for i := range devices {
				w.Register("ada", i, 1)
				reports = append(reports, feedback("ada", i, 2, 3))
			}
			slow := userstest.RegistryOptions()
			slow.CheckInterval, slow.BeatInterval = 10*time.Second, 10*time.Second
			slow.Devices.App = devices
			w.Run(slow)
			w.agree()
			o := users.DefaultFeedbackOptions()
			o.PerMinute = perMinute
			reg := prometheus.NewRegistry()
			w.Metrics = users.NewMetrics(reg)
			began := time.Now()
			var feeding sync.WaitGroup
			feeding.Go(func() { w.feed(o, reports...) })
			for _, want := range []float64{devices - perMinute, devices - 2*perMinute} {
				time.Sleep(40 * time.Second)
				if waiting := w.figure(reg, "push_feedback_waiting"); waiting != want {
					t.Errorf("after %v %v removals wait, want %v", time.Since(began), waiting, want)
				}
			}
			feeding.Wait()
			if waiting := w.figure(reg, "push_feedback_waiting"); waiting != 0 {
				t.Errorf("all are removed, and %v wait", waiting)
			}
			if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute {
				t.Errorf("25 removals at 10 a minute took %v", took)
			}
			w.agree()
			if got := w.Fetch("ada"); len(got) != 0 {
				t.Errorf("left over: %s", userstest.Show(got))
			}
		})
	})
}

// A report about a shard that is not built is not judged, and not lost.
func TestFeedbackWaitsForTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w *world) {
			w.Register("ada", 1, 1)
			go func() {
				time.Sleep(10 * time.Second)
				w.Run(userstest.RegistryOptions())
			}()
			w.feed(users.DefaultFeedbackOptions(), feedback("ada", 1, 2, 3))
			w.agree()
			if got := w.owners(1); len(got) != 0 {
				t.Errorf("still owned by %q", got)
			}
		})
	})
}
