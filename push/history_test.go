package push

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// history makes a History of rows; row makes one row, by device, step and
// state.
func history(rows ...Row) *History { return &History{Rows: rows} }

func row(device string, step int16, s State) Row {
	return Row{ID: "n", Device: device, Step: step, State: s}
}

// "Of a device: DELIVERED beats everything; else the final state of the latest
// step; else open."
func TestDeviceState(t *testing.T) {
	for _, tt := range []struct {
		why  string
		h    *History
		want State
		ok   bool
	}{
		{"no row: nothing is known", history(row("b", 0, StateDelivered)), 0, false},
		{"a retry that was delivered", history(row("a", 0, StateRetrying), row("a", 1, StateDelivered)), StateDelivered, true},
		{"delivered by a copy that was overtaken: a later failure does not take it back",
			history(row("a", 0, StateDelivered), row("a", 1, StateFailed)), StateDelivered, true},
		{"delivered late, after the device was given up", history(row("a", 0, StateDelivered), row("a", 3, StateDeadLettered)), StateDelivered, true},
		{"waiting for its retry", history(row("a", 0, StateRetrying)), StateRetrying, true},
		{"held after a retry", history(row("a", 0, StateRetrying), row("a", 1, StateHeld)), StateHeld, true},
		{"two copies at one step: one failed, one was handed over", history(row("a", 1, StateRetrying), row("a", 1, StateFailed)), StateFailed, true},
		{"redriven after it was dead-lettered and waiting again: open", history(row("a", 3, StateDeadLettered), row("a", 4, StateRetrying)), StateRetrying, true},
		{"an intent without result", history(row("a", 0, StateSending)), StateSending, true},
		{"an intent with its result", history(row("a", 0, StateSending), row("a", 0, StateUnknown)), StateUnknown, true},
		{"two copies at one step with different ends: by precedence", history(row("a", 0, StateExpired), row("a", 0, StateFailed)), StateFailed, true},
		{"the latest step counts, not the stronger word", history(row("a", 0, StateFailed), row("a", 1, StateSuppressed)), StateSuppressed, true},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			if got, ok := h.DeviceState("a"); got != tt.want || ok != tt.ok {
				t.Errorf("%s: DeviceState = %v, %v, want %v, %v", tt.why, got, ok, tt.want, tt.ok)
			}
		})
	}
}

// "Of a notification: rows with device = ” count only while no device row
// exists …; DELIVERED if any device is; else open if any is open; else FAILED >
// EXPIRED > SUPPRESSED > SHED > DEAD_LETTERED > UNKNOWN."
func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		why  string
		h    *History
		want Outcome
	}{
		{"never seen", history(), NoRows},
		{"suppressed before the look-up", history(row("", 0, StateSuppressed)), OutcomeSuppressed},
		{"received by the gateway, nothing more", history(row("", 0, StatePending)), OutcomeOpen},
		{"received, then suppressed", history(row("", 0, StatePending), row("", 0, StateSuppressed)), OutcomeSuppressed},
		{"a device row makes rows without device not count", history(row("", 0, StateSuppressed), row("a", 0, StateFailed)), OutcomeFailed},
		{"held as a whole, then delivered", history(row("", 0, StateHeld), row("a", 1, StateDelivered)), OutcomeDelivered},
		{"one device of two is enough", history(row("a", 0, StateFailed), row("b", 0, StateDelivered)), OutcomeDelivered},
		{"delivered beats a device that is still open", history(row("a", 0, StateRetrying), row("b", 0, StateDelivered)), OutcomeDelivered},
		{"open beats failed: it may still be delivered", history(row("a", 0, StateRetrying), row("b", 0, StateFailed)), OutcomeOpen},
		{"failed > expired", history(row("a", 0, StateExpired), row("b", 0, StateFailed)), OutcomeFailed},
		{"expired > suppressed", history(row("a", 0, StateSuppressed), row("b", 0, StateExpired)), OutcomeExpired},
		{"suppressed > shed", history(row("a", 0, StateShed), row("b", 0, StateSuppressed)), OutcomeSuppressed},
		{"shed > dead-lettered", history(row("a", 0, StateDeadLettered), row("b", 0, StateShed)), OutcomeShed},
		{"dead-lettered > unknown", history(row("a", 0, StateUnknown), row("b", 0, StateDeadLettered)), OutcomeDeadLettered},
		{"delivered > inbox", history(row("a", 0, StateDelivered), row("b", 0, StateInbox)), OutcomeDelivered},
		{"inbox > open", history(row("a", 0, StateRetrying), row("b", 0, StateInbox)), OutcomeInbox},
		{"kept in the inbox after it was held as a whole", history(row("", 0, StateHeld), row("", 1, StateInbox)), OutcomeInbox},
		{"nothing but unknown", history(row("a", 0, StateSending), row("a", 0, StateUnknown)), OutcomeUnknown},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			if got := h.Outcome(); got != tt.want {
				t.Errorf("%s: Outcome = %v, want %v", tt.why, got, tt.want)
			}
		})
	}
}

// "RETRYING or HELD at step s closes all steps up to s for that device", and
// what a redrive may send again. Each row says what would be lost, or sent
// twice, with the other answer.
func TestClosed(t *testing.T) {
	for _, tt := range []struct {
		why      string
		h        *History
		step     int16
		redriven bool
		want     bool
	}{
		{"lost: another device's end says nothing about this one", history(row("b", 0, StateDelivered)), 0, false, false},
		{"twice: delivered, redelivered record", history(row("a", 0, StateDelivered)), 0, false, true},
		{"twice: the retry was delivered, the first record is redelivered", history(row("a", 0, StateRetrying), row("a", 1, StateDelivered)), 0, false, true},
		{"twice: the first copy was delivered late, its retry comes", history(row("a", 0, StateDelivered)), 1, false, true},
		{"twice: handed over and crashed before the commit: the retry owns it", history(row("a", 0, StateRetrying)), 0, false, true},
		{"lost: the retry itself must not be stopped by the row that made it", history(row("a", 0, StateRetrying)), 1, false, false},
		{"twice: a second copy of the first retry, after it handed over again", history(row("a", 0, StateRetrying), row("a", 1, StateRetrying)), 1, false, true},
		{"twice: the first record, after two hand-overs", history(row("a", 1, StateHeld)), 0, false, true},
		{"lost: due after a hold", history(row("a", 0, StateRetrying), row("a", 1, StateHeld)), 2, false, false},
		{"refused for good: its redelivery asks the provider nothing", history(row("a", 0, StateFailed)), 0, false, true},
		{"refused by one copy, the retry of the other comes", history(row("a", 0, StateFailed), row("a", 0, StateRetrying)), 1, false, true},
		{"dead-lettered: a straggler of the retry topic", history(row("a", 3, StateDeadLettered)), 2, false, true},
		{"lost: an intent is no end, and the owner decides what it means", history(row("a", 0, StateSending)), 0, false, false},
		{"lost: received by the gateway is no end", history(row("a", 0, StatePending)), 0, false, false},

		{"lost: a redrive goes past the dead letter it comes from", history(row("a", 3, StateDeadLettered)), 4, true, false},
		{"lost: a redrive tries again what failed before", history(row("a", 0, StateFailed)), 1, true, false},
		{"lost: and what ended unknown", history(row("a", 0, StateUnknown)), 1, true, false},
		{"twice: a redrive of what was delivered after all", history(row("a", 0, StateDelivered), row("a", 3, StateDeadLettered)), 4, true, true},
		{"a redrive does not push what is in the inbox", history(row("a", 2, StateInbox)), 3, true, true},
		{"a redrive does not wake what expired", history(row("a", 2, StateExpired)), 3, true, true},
		{"a redrive does not overrule an opt-out", history(row("a", 2, StateSuppressed)), 3, true, true},
		{"twice: a second redrive of the same dead letter, the first failed for good", history(row("a", 3, StateDeadLettered), row("a", 4, StateFailed)), 4, true, true},
		{"twice: a second redrive, the first waits for its retry", history(row("a", 3, StateDeadLettered), row("a", 4, StateRetrying)), 4, true, true},
		{"lost: the retry of a redriven record", history(row("a", 3, StateDeadLettered), row("a", 4, StateRetrying)), 5, true, false},
		{"lost: hand-overs before the redrive own nothing any more", history(row("a", 0, StateRetrying), row("a", 1, StateRetrying), row("a", 2, StateDeadLettered)), 3, true, false},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			if got := h.Closed("a", tt.step, tt.redriven); got != tt.want {
				t.Errorf("%s: Closed(step %d, redriven %v) = %v, want %v", tt.why, tt.step, tt.redriven, got, tt.want)
			}
		})
	}
}

// Only a redelivered intent without a result ends UNKNOWN.
func TestIntents(t *testing.T) {
	for _, tt := range []struct {
		why  string
		h    *History
		step int16
		want bool
	}{
		{"nobody knows whether it was sent", history(row("a", 0, StateSending)), 0, true},
		{"the same of a retry", history(row("a", 0, StateSending), row("a", 0, StateRetrying), row("a", 1, StateSending)), 1, true},
		{"it has its result", history(row("a", 0, StateSending), row("a", 0, StateDelivered)), 0, false},
		{"it was handed over", history(row("a", 0, StateSending), row("a", 0, StateRetrying)), 0, false},
		{"it was handed over, and its retry is just being sent", history(row("a", 0, StateSending), row("a", 0, StateRetrying), row("a", 1, StateSending)), 0, false},
		{"never intended", history(row("a", 0, StateRetrying)), 0, false},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			if got := len(h.Intents(tt.step)) > 0; got != tt.want {
				t.Errorf("%s: Intents(%d) has it: %v, want %v", tt.why, tt.step, got, tt.want)
			}
		})
	}
}

// "Rows without a device count only while no device row exists, and a final one
// closes the whole."
func TestClosedWhole(t *testing.T) {
	for _, tt := range []struct {
		why      string
		h        *History
		step     int16
		redriven bool
		want     bool
	}{
		{"lost: never seen", history(), 0, false, false},
		{"suppressed: its redelivery is a copy", history(row("", 0, StateSuppressed)), 0, false, true},
		{"lost: some devices have an end, others may not", history(row("a", 0, StateDelivered)), 0, false, false},
		{"lost: suppressed by an owner that found no device, while another sent to some", history(row("", 0, StateSuppressed), row("a", 0, StateDelivered)), 0, false, false},
		{"lost: received by the gateway", history(row("", 0, StatePending)), 0, false, false},
		{"twice: deferred as a whole, redelivered before the commit", history(row("", 0, StateHeld)), 0, false, true},
		{"lost: deferred, and due", history(row("", 0, StateHeld)), 1, false, false},
		// The held record (step 1) has been sent to a and is being sent to b,
		// which has no row yet, when the first record is redelivered. The first
		// record must not be sent to b as well.
		{"twice: deferred as a whole, the held record is half done, the first is redelivered", history(row("", 0, StateHeld), row("a", 1, StateDelivered)), 0, false, true},
		{"lost: the held record is redelivered half done", history(row("", 0, StateHeld), row("a", 1, StateDelivered)), 1, false, false},
		{"lost: a redrive of an unreadable record", history(row("", 0, StateDeadLettered)), 1, true, false},
		{"a redrive of an opted-out one", history(row("", 0, StateSuppressed)), 1, true, true},
		{"unreadable: redelivered", history(row("", 0, StateDeadLettered)), 0, false, true},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			if got := h.ClosedWhole(tt.step, tt.redriven); got != tt.want {
				t.Errorf("%s: ClosedWhole(step %d, redriven %v) = %v, want %v", tt.why, tt.step, tt.redriven, got, tt.want)
			}
		})
	}
}

// "Same id with another user_hash: DEAD_LETTERED(id_reused) under the record's
// place."
func TestOwnRows(t *testing.T) {
	rows := []Row{{ID: "n", UserHash: 7}}
	if own, others := OwnRows(rows, 7); len(own) != 1 || others {
		t.Error("a redelivery to the same user is taken for a reused id")
	}
	if own, others := OwnRows(rows, 8); len(own) != 0 || !others {
		t.Error("the same id for another user is not noticed: it would end as a duplicate, and never be sent")
	}
	if _, others := OwnRows(nil, 8); others {
		t.Error("an id that was never seen belongs to another user")
	}
}

// A device that has not been delivered, and that no other record owns, stays
// open for exactly one record: that of the step after its last hand-over. So
// along any chain of hand-overs nothing is lost, and only one record sends.
func TestHandOverChainHasOneOwner(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		h, last := history(), int16(-1)
		for step := range int16(rng.IntN(6)) {
			h.Rows = append(h.Rows, row("a", step, []State{StateRetrying, StateHeld}[rng.IntN(2)]))
			last = step
		}
		for step := range int16(8) {
			if got, want := h.Closed("a", step, false), step <= last; got != want {
				t.Fatalf("after hand-overs at 0 to %d: Closed(step %d) = %v, want %v", last, step, got, want)
			}
		}
		h.Rows = append(h.Rows, row("a", last+1, StateDelivered))
		for step := range int16(8) {
			for _, redriven := range []bool{false, true} {
				if !h.Closed("a", step, redriven) {
					t.Fatalf("delivered at step %d: open for a record at step %d, redriven %v", last+1, step, redriven)
				}
			}
		}
	}
}

// Every outcome and state that can be stored has a name.
func TestNamesOfStatesAndOutcomes(t *testing.T) {
	for s := range stateNames {
		if s.Final() != (outcomeOf(s) != OutcomeOpen) {
			t.Errorf("%v: final is %v, and its outcome is %v", s, s.Final(), outcomeOf(s))
		}
	}
	if got := fmt.Sprint(State(99), Outcome(NoRows), OutcomeUnknown); got != "state(99) NONE UNKNOWN" {
		t.Errorf("names = %q", got)
	}
}

// inAnyOrder calls check with the rows in several orders, because a store may
// return them in any, and with times from clocks that differ by minutes.
// Neither may change the result.
func inAnyOrder(t *testing.T, h *History, check func(*History)) {
	t.Helper()
	check(h)
	for range 4 {
		shuffled := &History{Rows: append([]Row(nil), h.Rows...)}
		rand.Shuffle(len(shuffled.Rows), func(i, j int) {
			shuffled.Rows[i], shuffled.Rows[j] = shuffled.Rows[j], shuffled.Rows[i]
		})
		for i := range shuffled.Rows {
			shuffled.Rows[i].At = time.Unix(1_790_000_000, 0).Add(time.Duration(rand.Int64N(int64(20 * time.Minute))))
		}
		check(shuffled)
		check(NewHistory(shuffled.Rows))
	}
}

// BenchmarkHistoryOfManyDevices asks what a record asks that is read again: of each of a
// user's devices whether it is closed.
func BenchmarkHistoryOfManyDevices(b *testing.B) {
	for _, n := range []int{1, 10, 1_000, 20_000} {
		rows, devices := make([]Row, n), make([]string, n)
		for i := range rows {
			devices[i] = fmt.Sprintf("%016x", rand.Uint64())
			rows[i] = row(devices[i], 0, StateDelivered)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				h := NewHistory(slices.Clone(rows))
				for _, d := range devices {
					if !h.Closed(d, 0, false) {
						b.Fatal("open")
					}
				}
			}
		})
	}
}

// If one step was handed over to two records, at most one of them is told that
// the device belongs to the other, whichever rows exist when they ask.
func TestHandedElsewhere(t *testing.T) {
	for _, tt := range []struct {
		h           *History
		retry, held bool // the answer to a record that was handed over as RETRYING or as HELD
	}{
		{history(), false, false},
		{history(row("d", 1, StateRetrying)), false, true},
		{history(row("d", 1, StateHeld)), true, false},
		{history(row("d", 1, StateHeld), row("d", 1, StateRetrying)), false, false},
		{history(row("d", 0, StateHeld), row("d", 2, StateHeld)), false, false},
		{history(row("other", 1, StateHeld), row("d", 1, StateSending)), false, false},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			if retry, held := h.HandedElsewhere("d", 2, StateRetrying), h.HandedElsewhere("d", 2, StateHeld); retry != tt.retry || held != tt.held {
				t.Errorf("%v: elsewhere for the retry %v, for the held one %v; want %v, %v", h.Rows, retry, held, tt.retry, tt.held)
			}
			if h.HandedElsewhere("d", 2, 0) {
				t.Errorf("%v: a record of which nobody knows how it was handed over is told that it is surplus", h.Rows)
			}
		})
	}
}

// The record that made a claim repeats the final state below it; no other
// record does.
func TestOvertaken(t *testing.T) {
	for _, tt := range []struct {
		why    string
		h      *History
		want   Verdict
		reason Reason
		ok     bool
	}{
		{"no row", history(), Undecided, "", false},
		{"open, and never ended", history(row("a", 0, StateRetrying)), Undecided, "", false},
		{"ended, and nothing above it", history(row("a", 0, StateRetrying), row("a", 1, StateFailed)), Undecided, "", false},
		{"ended below the claim", history(row("a", 0, StateFailed), row("a", 1, StateHeld)), Failed, "", true},
		{"and this record was handed over itself", history(row("a", 0, StateFailed), row("a", 1, StateHeld), row("a", 2, StateHeld)), Undecided, "", false},
		{"another device's", history(row("b", 0, StateFailed), row("a", 1, StateHeld)), Undecided, "", false},
		{"delivered is never overtaken", history(row("a", 0, StateDelivered), row("a", 1, StateHeld)), Undecided, "", false},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			v, reason, ok := h.Overtaken("a", 2)
			if v != tt.want || reason != tt.reason || ok != tt.ok {
				t.Errorf("%s: %v: %v %q %v, want %v %q %v", tt.why, h.Rows, v, reason, ok, tt.want, tt.reason, tt.ok)
			}
		})
	}
	said := history(Row{ID: "n", Device: "a", State: StateFailed, Reason: "BadDeviceToken"}, row("a", 1, StateHeld))
	if _, reason, _ := said.Overtaken("a", 2); reason != "BadDeviceToken" {
		t.Errorf("the reason is %q", reason)
	}
}

// A device whose intent is read twice is named once.
func TestIntentsNameADeviceOnce(t *testing.T) {
	h := history(row("b", 0, StateSending), row("a", 0, StateSending), row("b", 0, StateSending))
	inAnyOrder(t, h, func(h *History) {
		devices := slices.Sorted(slices.Values(h.Intents(0)))
		if !slices.Equal(devices, []string{"a", "b"}) {
			t.Errorf("%v: %q", h.Rows, devices)
		}
	})
}
