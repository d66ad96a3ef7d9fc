//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/configs"
)

// Replay is the command that repeats a run's faults.
func (r *Result) Replay() string {
	command := fmt.Sprintf("make chaos SCENARIO=%s SEED=%d MINUTES=%s", r.Scenario.Name, r.Seed, trim(r.Length.Minutes()))
	if r.Mode != configs.AtLeastOnce {
		command += " MODE=" + r.Mode
	}
	return command
}

func trim(f float64) string { return fmt.Sprintf("%.4g", f) }

// kinds counts the events by kind and target, in order of first occurrence.
func (r *Result) kinds() (names []string, count, repeated, bound map[string]int) {
	count, repeated, bound = map[string]int{}, map[string]int{}, map[string]int{}
	for i := range r.Ledgers.Events {
		e := &r.Ledgers.Events[i]
		target := kindOf(e.Target)
		name := e.Kind + " of " + target
		if count[name] == 0 {
			names = append(names, name)
		}
		count[name]++
		repeated[name] += r.Report.Events[i].Repeated
		if e.Exposed != nil {
			bound[name] += len(e.Exposed)
		} else {
			bound[name] += e.Repeats
		}
	}
	return names, count, repeated, bound
}

// kindOf is what a target is one of.
func kindOf(target string) string {
	switch {
	case strings.HasPrefix(target, appTarget):
		return "an app"
	case strings.HasPrefix(target, gatewayTarget):
		return "a gateway"
	case strings.HasPrefix(target, fanoutTarget):
		return "a process of fan-outs"
	case slices.Contains([]string{Kafka, Redis, Cassandra, APNS, FCM, Fanouts}, target):
		return target
	}
	return ofWorker
}

const ofWorker = "a worker"

// WriteText writes the summary that a person reads first. version is the
// commit that was tested.
func (r *Result) WriteText(w io.Writer, version string) error {
	rep := r.Report
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("scenario %s, %s, seed %d, commit %s, %v of records and %v until all was committed", r.Scenario.Name, r.Mode, r.Seed, version,
		r.Length.Round(time.Second), r.Ended.Sub(r.Began.Add(r.Length)).Round(100*time.Millisecond))
	p("%8d records, %d notifications, %d lost", rep.Records, rep.Notifications, rep.Lost)
	for _, o := range slices.Sorted(maps.Keys(rep.Outcomes)) {
		p("%8d %s", rep.Outcomes[o], o)
	}
	p("%8d pushes accepted, %d of them again (%.4f %%)", rep.Pushes, rep.Repeated, 100*float64(rep.Repeated)/float64(max(1, rep.Pushes)))
	for _, k := range slices.Sorted(maps.Keys(rep.Letters)) {
		p("%8d records in %s topics", rep.Letters[k], k)
	}
	if k := rep.Calls; k.Attempts > 0 {
		p("%8d messages through gateways in %d attempts: %d answered 202, %d refused, %d with 429, %d with 503, %d not at all; the slowest after %v", k.Calls, k.Attempts,
			k.Accepted, k.Refused, k.Busy, k.Away, k.Unheard, round(rep.Worst.Answer))
	}
	if k := rep.Calls; k.Fanouts > 0 {
		p("%8d fan-outs to %d subscribers in all: %d notifications, %d of their records again, %d subscribers came or went meanwhile", k.Fanouts, k.Audience, k.Emitted, k.Again, k.Apart)
	}
	p("faults, and what they made be sent again of what they may:")
	names, count, repeated, bound := r.kinds()
	for _, name := range names {
		p("%8d x %s: %d of %d", count[name], name, repeated[name], bound[name])
	}
	p("worst: delivery %v, standstill %v (and %v with an excuse; %v by the word of its worker alone), back after %v, between samples %v, until rows were read %v", round(rep.Worst.Delivery),
		round(rep.Worst.Standstill), round(rep.Worst.Excused), round(rep.Worst.Declared), round(rep.Worst.Back), round(rep.Worst.Sample), round(rep.Worst.Look))
	p("worst of one worker: %d pushes accepted without a row, %d MiB of memory, %v to end when told to", rep.Worst.Exposed, rep.Worst.Memory>>20, round(rep.Worst.Stop))
	for _, g := range rep.Memory {
		p("memory of %s: %+d MiB of %d allowed, with a backlog of %d", g.Process, g.Bytes>>20, g.Allowed>>20, g.Backlog>>20)
	}
	if n := r.kills(); n > 0 && rep.Lost == 0 {
		p("0 lost in %d kills: at most %.2g %% a kill (95 %%, rule of three)", n, 300/float64(n))
	}
	if rep.Stale > 0 {
		p("%d samples of a broker that had just come back told offsets of long before", rep.Stale)
	}
	if len(rep.Unobserved) > 0 {
		p("not observed: %v", rep.Unobserved)
	}
	for _, i := range invariants.All() {
		if n := rep.Violations[i]; n > 0 {
			p("BROKEN %s (%s), %d times; the first:", i, i.Meaning(), n)
			for _, text := range rep.Findings[i] {
				p("    %s", text)
			}
		}
	}
	if rep.Clean() {
		p("clean: every promise was kept")
	} else {
		p("again with: %s", r.Replay())
		p("logs and ledgers: %s", r.Dir)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// kills is how many processes of workers were killed.
func (r *Result) kills() (n int) {
	for _, e := range r.Ledgers.Events {
		if (e.Kind == string(Kill) || e.Kind == string(KillAll)) && kindOf(e.Target) == ofWorker {
			n++
		}
	}
	return n
}

// Summary is a run in numbers, for scripts: its keys are kept stable.
type Summary struct {
	Scenario      string         `json:"scenario"`
	Mode          string         `json:"mode"`
	Seed          uint64         `json:"seed"`
	Commit        string         `json:"commit"`
	Clean         bool           `json:"clean"`
	Seconds       float64        `json:"seconds"`      // of records
	HealSeconds   float64        `json:"heal_seconds"` // until the last was committed
	Records       int            `json:"records"`
	Notifications int            `json:"notifications"`
	Lost          int            `json:"lost"`
	Outcomes      map[string]int `json:"outcomes"`
	Pushes        int            `json:"pushes"`
	Repeated      int            `json:"repeated"`
	Exposed       int            `json:"exposed"` // what the faults may make be sent again, by what was seen of each
	Faults        map[string]int `json:"faults"`
	Kills         int            `json:"kills"`
	Worst         struct {
		Delivery   float64 `json:"delivery_s"`
		Standstill float64 `json:"standstill_s"`
		Excused    float64 `json:"excused_s"`
		Back       float64 `json:"back_s"`
		Sample     float64 `json:"sample_s"`
		Look       float64 `json:"look_s"`
	} `json:"worst"`
	Broken map[string]int `json:"broken"`
	Replay string         `json:"replay"`
}

// Summary is the run in numbers.
func (r *Result) Summary(version string) Summary {
	rep := r.Report
	s := Summary{Scenario: r.Scenario.Name, Mode: r.Mode, Seed: r.Seed, Commit: version, Clean: rep.Clean(), Seconds: r.Length.Seconds(),
		HealSeconds: r.Ended.Sub(r.Began.Add(r.Length)).Seconds(), Records: rep.Records, Notifications: rep.Notifications, Lost: rep.Lost,
		Outcomes: map[string]int{}, Pushes: rep.Pushes, Repeated: rep.Repeated, Kills: r.kills(), Broken: map[string]int{}, Replay: r.Replay()}
	for o, n := range rep.Outcomes {
		s.Outcomes[o.String()] = n
	}
	for i, n := range rep.Violations {
		s.Broken[string(i)] = n
	}
	var bound map[string]int
	_, s.Faults, _, bound = r.kinds()
	for _, n := range bound {
		s.Exposed += n
	}
	s.Worst.Delivery, s.Worst.Standstill, s.Worst.Excused = rep.Worst.Delivery.Seconds(), rep.Worst.Standstill.Seconds(), rep.Worst.Excused.Seconds()
	s.Worst.Back, s.Worst.Sample, s.Worst.Look = rep.Worst.Back.Seconds(), rep.Worst.Sample.Seconds(), rep.Worst.Look.Seconds()
	return s
}

// WriteJSON writes the summary as one line.
func (r *Result) WriteJSON(w io.Writer, version string) error {
	return json.NewEncoder(w).Encode(r.Summary(version))
}
