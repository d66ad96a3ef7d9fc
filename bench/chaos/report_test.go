//go:build unix

package chaos

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/configs"
)

// madeUp is a run of ten seconds with a kill and an outage, in which one
// notification was lost.
func madeUp(t *testing.T) *Result {
	t.Helper()
	s, err := FindScenario("kills")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	lane := invariants.Partition{Topic: "push.main"}
	l := &invariants.Ledgers{Limits: invariants.Limits{Unobserved: []invariants.Invariant{invariants.I8, invariants.I9, invariants.Reasons}}}
	var samples []invariants.Sample
	for i := range 100 {
		samples = append(samples, invariants.Sample{At: at(float64(i) / 10), Partition: lane, Committed: int64(min(2, i/20)), End: 2})
	}
	pair := invariants.Pair{ID: "n1", Device: "d<1>"}
	l.Producer = invariants.Seal([]invariants.Produced{{ID: "n1", Partition: lane, At: at(0)}, {ID: "n2", Partition: lane, Offset: 1, At: at(1)}})
	l.Offsets = invariants.Seal(samples)
	l.Status = invariants.Seal([]invariants.Row{{Pair: pair, State: invariants.Delivered, At: at(1)}})
	l.Sends = invariants.Seal([]invariants.Send{{Pair: pair, At: at(0.5), Provider: APNS, Accepted: true}, {Pair: pair, At: at(4), Provider: APNS, Accepted: true}})
	l.Letters = invariants.Seal[invariants.Letter](nil)
	l.Events = []invariants.Event{
		{Kind: string(Kill), Target: worker(0), Start: at(0.6), End: at(0.6), Repeats: 5, Exposed: map[invariants.Pair]bool{pair: true}},
		{Kind: string(Pause), Target: Redis, Start: at(5), End: at(7), Stalls: true},
	}
	return &Result{Scenario: s, Seed: 99, Mode: configs.EffectivelyOnce, Length: 9 * time.Second, Began: began, Ended: at(9.5), Ledgers: l, Report: invariants.Check(l), Dir: "kept"}
}

// The page is one well-formed document that asks for nothing from elsewhere,
// and says what there is to say.
func TestPage(t *testing.T) {
	r := madeUp(t)
	var b bytes.Buffer
	if err := r.WritePage(&b, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"promises are broken", "effectively_once, seed 99", "v1.2.3", r.Replay(), "n2 (push.main/0/1) has no final outcome",
		"kill of worker 1 at 0.6 s; 1 pushes again, exposed 1, bound 5", "pause of redis at 5.0 s, for 2s", "prefers-color-scheme: dark", "not observed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, elsewhere := range []string{"http://", "https://", "<script", "@import", "url("} {
		if strings.Contains(text, elsewhere) {
			t.Errorf("the page asks for something: %q", elsewhere)
		}
	}
	if n := strings.Count(text, "<svg"); n != 4 {
		t.Errorf("%d charts, want 4", n)
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "<svg")
		if !found {
			break
		}
		body, next, _ := strings.Cut(after, "</svg>")
		if err := wellFormed("<svg" + body + "</svg>"); err != nil {
			t.Errorf("a chart is not well-formed: %v", err)
		}
		if strings.Contains(body, "NaN") || strings.Contains(body, "Inf") {
			t.Error("a chart has a place that is no number")
		}
		rest = next
	}
}

func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestText(t *testing.T) {
	r := madeUp(t)
	var b bytes.Buffer
	if err := r.WriteText(&b, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"seed 99, commit v1.2.3", "2 notifications, 1 lost", "effectively_once", "2 pushes accepted, 1 of them again", "1 x kill of a worker: 1 of 1",
		"BROKEN I1", "again with: make chaos SCENARIO=kills SEED=99 MINUTES=0.15 MODE=effectively_once", "not observed: [I8 I9 reasons]"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	r := madeUp(t)
	var b bytes.Buffer
	if err := r.WriteJSON(&b, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("not one line: %q", b.String())
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"scenario": "kills", "seed": 99.0, "clean": false, "lost": 1.0, "repeated": 1.0, "exposed": 1.0, "kills": 1.0} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}
