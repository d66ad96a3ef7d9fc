package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// stage is a run as the account finds it. Tests spoil it afterwards.
type stage struct {
	people  *crowd.Crowd
	records []produced
	rows    map[string][]push.Row // by id
	pushes  []sim.Entry
	letters []letter
}

// Each implements pushLedger.
func (s *stage) Each(f func(sim.Entry) bool) {
	for _, e := range s.pushes {
		if !f(e) {
			return
		}
	}
}

// newStage makes a run in which every record has its intended outcome.
func newStage(t *testing.T) *stage {
	t.Helper()
	options := crowd.Default(demoApp, 3000)
	options.Cap = 12 // greedy users get more than that
	people, err := crowd.New(options)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{people: people, rows: map[string][]push.Row{}}
	records, got := people.Records(), map[int]int{}
	for n := range 3000 {
		r := records.Next(time.Now())
		p := produced{id: r.ID, user: r.User, fate: r.Fate}
		row := func(id, device string, state push.State, reason string) {
			s.rows[id] = append(s.rows[id], push.Row{ID: id, Device: device, State: state, Reason: reason})
		}
		targets := people.Targets(r.User)
		switch fate := r.Fate; {
		case fate == crowd.IsCopy:
		case fate == crowd.DeadLetters:
			p.mark = markOf(r.Key, r.Value)
			origin := kafka.Record{Key: r.Key, Value: r.Value, Headers: map[string]string{"pf-origin": fmt.Sprintf("push.transactional/%d/%d", n%4, n)}}
			l := letterOf(&origin)
			s.letters = append(s.letters, l)
			row(l.id, "", push.StateDeadLettered, "bad_json")
		case fate == crowd.Reaches, fate == crowd.DeadEnds, fate == crowd.MayBeLimited && got[r.User] < options.Cap:
			got[r.User]++
			for _, d := range targets.Live {
				row(r.ID, d, push.StateDelivered, "")
				s.pushes = append(s.pushes, sim.Entry{ID: r.ID, Device: d, Accepted: 1})
			}
			for _, d := range targets.Dead {
				row(r.ID, d, push.StateFailed, "Unregistered")
				s.pushes = append(s.pushes, sim.Entry{ID: r.ID, Device: d, Refused: 1})
			}
		default:
			why := map[crowd.Fate]string{crowd.IsSuppressed: "opted_out:all", crowd.MayBeLimited: "limited:type-per-day", crowd.HasNoDevice: "no_device"}
			state := push.StateSuppressed
			if fate == crowd.Expires {
				state = push.StateExpired
			}
			row(r.ID, "", state, why[fate])
		}
		s.records = append(s.records, p)
	}
	return s
}

// account takes the account of the stage.
func (s *stage) account(t *testing.T, interrupted bool) *demoResult {
	t.Helper()
	store, err := status.NewMemory(wiring.Layouts(configs.Default()))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		if err := store.Write(t.Context(), s.rows[id]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := account(t.Context(), &evidence{people: s.people, records: s.records, status: store, ledger: s, letters: s.letters, interrupted: interrupted})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// first is the first record with a fate whose user has this many living devices
// (0 = any number). It has no copy, unless that is its fate.
func (s *stage) first(t *testing.T, fate crowd.Fate, living int) *produced {
	t.Helper()
	for i := range s.records {
		p := &s.records[i]
		if p.fate == fate && (living == 0 || len(s.people.Targets(p.user).Live) == living) && (fate == crowd.IsCopy || !s.copied(p.id)) {
			return p
		}
	}
	t.Fatalf("no record that %v", fate)
	return nil
}

// unpush removes a push and its row.
func (s *stage) unpush(id, device string) {
	s.pushes = slices.DeleteFunc(s.pushes, func(e sim.Entry) bool { return e.ID == id && e.Device == device })
	s.rows[id] = slices.DeleteFunc(s.rows[id], func(r push.Row) bool { return r.Device == device })
}

// The account can fail: it finds, counts and reports each way in which producer,
// providers, status store and DLQ can disagree.
func TestTheAccountSees(t *testing.T) {
	for _, tt := range []struct {
		why   string
		spoil func(t *testing.T, s *stage)
		count func(*demoResult) int // the count that must be 1 instead of 0; nil = none
		says  string
	}{
		{"nothing wrong", func(*testing.T, *stage) {}, nil, ""},
		{"a third device never pushed", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.Reaches, 3)
			s.unpush(p.id, s.people.Targets(p.user).Live[2])
		}, func(r *demoResult) int { return r.NotPushed }, "of the user's 3 devices"},
		{"a row without a push", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.Reaches, 2)
			rows := s.rows[p.id]
			s.unpush(p.id, s.people.Targets(p.user).Live[1])
			s.rows[p.id] = append(s.rows[p.id][:0:0], rows[0], push.Row{ID: p.id, Device: s.people.Targets(p.user).Live[1], State: push.StateDelivered})
		}, func(r *demoResult) int { return r.NotPushed }, "but no provider accepted it"},
		{"a push without a row", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.Reaches, 2)
			s.rows[p.id] = s.rows[p.id][:1]
		}, nil, "but has no DELIVERED row"},
		{"sent twice", func(t *testing.T, s *stage) { s.pushes[0].Accepted = 2 }, func(r *demoResult) int { return r.SentTwice }, ""},
		{"lost", func(t *testing.T, s *stage) {
			delete(s.rows, s.first(t, crowd.IsSuppressed, 0).id)
		}, func(r *demoResult) int { return r.Lost }, ""},
		{"another user's device", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.Reaches, 1)
			s.rows[p.id] = append(s.rows[p.id], push.Row{ID: p.id, Device: "stranger", State: push.StateDelivered})
			s.pushes = append(s.pushes, sim.Entry{ID: p.id, Device: "stranger", Accepted: 1})
		}, nil, "none of its user's"},
		{"a push to a user who opted out", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.IsSuppressed, 0)
			d := s.people.Targets(p.user).Live[0]
			s.rows[p.id] = []push.Row{{ID: p.id, Device: d, State: push.StateDelivered}}
			s.pushes = append(s.pushes, sim.Entry{ID: p.id, Device: d, Accepted: 1})
		}, nil, "which suppressed, ended DELIVERED"},
		{"suppressed for another reason", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.HasNoDevice, 0)
			s.rows[p.id][0].Reason = "limited:hour"
		}, nil, "which no device, ended SUPPRESSED limited:hour"},
		{"limited too early", func(t *testing.T, s *stage) {
			p := s.first(t, crowd.MayBeLimited, 0)
			s.pushes = slices.DeleteFunc(s.pushes, func(e sim.Entry) bool { return e.ID == p.id })
			s.rows[p.id] = []push.Row{{ID: p.id, State: push.StateSuppressed, Reason: "limited:hour"}}
		}, nil, "want 12"},
		{"unusable and not in the DLQ", func(t *testing.T, s *stage) {
			delete(s.rows, s.letters[0].id)
			s.letters = s.letters[1:]
		}, func(r *demoResult) int { return r.Lost }, ""},
		{"in the DLQ without a row", func(t *testing.T, s *stage) { delete(s.rows, s.letters[0].id) },
			func(r *demoResult) int { return r.Lost }, "is in the DLQ, but its status is NONE"},
		{"twice in the DLQ", func(t *testing.T, s *stage) { s.letters = append(s.letters, s.letters[0]) }, nil, "or a second copy"},
		{"pushed but never produced", func(t *testing.T, s *stage) {
			s.pushes = append(s.pushes, sim.Entry{ID: "ghost", Device: "d", Accepted: 1})
		},
			nil, "ghost was pushed"},
		{"rows of a notification that was never produced", func(t *testing.T, s *stage) {
			s.rows["ghost"] = []push.Row{{ID: "ghost", State: push.StateExpired}}
		}, nil, "the status store has rows of"},
	} {
		s := newStage(t)
		tt.spoil(t, s)
		r := s.account(t, false)
		if clean := tt.count == nil && tt.says == ""; r.clean() != clean {
			t.Errorf("%s: clean is %v, with %d lost, %d sent twice, %d not pushed, %v", tt.why, r.clean(), r.Lost, r.SentTwice, r.NotPushed, r.differences)
		}
		if tt.count != nil && tt.count(r) != 1 {
			t.Errorf("%s: counted %d times, want once", tt.why, tt.count(r))
		}
		if got := strings.Join(r.differences, "; "); !strings.Contains(got, tt.says) {
			t.Errorf("%s: says %q, want %q", tt.why, got, tt.says)
		}
		var table bytes.Buffer
		if err := r.print(&table); err != nil {
			t.Fatal(err)
		}
		if praised := strings.Contains(table.String(), "Every record is accounted for"); praised != r.clean() {
			t.Errorf("%s: the table says %s", tt.why, &table)
		}
	}
}

// copied reports whether an id was produced again.
func (s *stage) copied(id string) bool {
	return slices.ContainsFunc(s.records, func(p produced) bool { return p.fate == crowd.IsCopy && p.id == id })
}

// A copy shares the outcome of the first one: without an outcome, both are
// missing.
func TestACopySharesTheOutcome(t *testing.T) {
	s := newStage(t)
	id := s.first(t, crowd.IsCopy, 0).id
	copies := 0
	for i := range s.records {
		if s.records[i].id == id {
			copies++
		}
	}
	for _, e := range slices.Clone(s.pushes) {
		if e.ID == id {
			s.unpush(id, e.Device)
		}
	}
	delete(s.rows, id)
	if r := s.account(t, false); r.Lost != copies {
		t.Errorf("%d records of one id without an outcome: %d are lost", copies, r.Lost)
	}
	if r := s.account(t, true); r.Unfinished != copies || !r.clean() {
		t.Errorf("interrupted: %d unfinished, want %d; %v", r.Unfinished, copies, r.differences)
	}
}
