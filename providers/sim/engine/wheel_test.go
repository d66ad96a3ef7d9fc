package engine

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The wheel gives everything back once, in time and in order, also after it
// stood still and when it goes around.
func TestWheel(t *testing.T) {
	var w wheel
	now := time.Unix(1_800_000_000, 0)
	put := func(b byte, after time.Duration) {
		t.Helper()
		slot := w.slot(now, after)
		if slot == nil {
			t.Fatalf("%v does not fit", after)
		}
		slot.frames = append(slot.frames, b)
		slot.owed = append(slot.owed, owed{stream: uint32(b)})
	}
	check := func(move time.Duration, want string, wantWait time.Duration) {
		t.Helper()
		now = now.Add(move)
		var out batch
		n, wait := w.due(now, &out)
		if string(out.frames) != want || n != len(want) || len(out.owed) != n || wait != wantWait {
			t.Errorf("got %q (%d answers), next in %v; want %q, next in %v", out.frames, n, wait, want, wantWait)
		}
	}
	const ms = time.Millisecond
	check(0, "", 0)
	put('c', 50*ms)
	put('a', 10*ms)
	put('b', 10*ms)
	check(9*ms, "", ms)
	check(ms, "ab", 40*ms)
	check(time.Second, "c", 0)
	check(time.Hour, "", 0)
	put('d', 4*time.Second)
	put('e', ms/2)
	check(ms, "e", 4*time.Second-ms)
	check(4*time.Second, "d", 0)
	if w.slot(now, 5*time.Second) != nil {
		t.Error("it took what is due after more than a round")
	}
}

// What is due within a tick goes out together, when the last of it is due:
// nothing is early, and nothing a millisecond late.
func TestWheelPrecision(t *testing.T) {
	var w wheel
	start := time.Unix(1_800_000_000, 0)
	random := rand.New(rand.NewPCG(1, 2))
	due := map[uint32]time.Duration{}
	var since time.Duration
	var wake time.Duration
	for id := uint32(1); id < 20_000; id++ {
		since += time.Duration(random.IntN(100)) * time.Microsecond
		for wake > 0 && wake <= since {
			var out batch
			n, wait := w.due(start.Add(wake), &out)
			for _, o := range out.owed {
				if late := wake - due[o.stream]; late < 0 || late >= 2*wheelTick {
					t.Fatalf("stream %d went out %v after its time", o.stream, late)
				}
				delete(due, o.stream)
			}
			if n != len(out.owed) || wait < 0 || wait == 0 && len(due) > 0 {
				t.Fatalf("%d answers of %d, the next in %v; %d are missing", n, len(out.owed), wait, len(due))
			}
			wake += wait
			if wait == 0 {
				wake = 0
			}
		}
		latency := time.Duration(random.IntN(80_000)) * time.Microsecond
		s := w.slot(start.Add(since), latency)
		s.owed = append(s.owed, owed{stream: id})
		due[id] = since + latency
		// As the writer does when it is told that there is something new.
		var out batch
		_, wait := w.due(start.Add(since), &out)
		for _, o := range out.owed {
			if late := since - due[o.stream]; late < 0 || late >= 2*wheelTick {
				t.Fatalf("stream %d went out %v after its time", o.stream, late)
			}
			delete(due, o.stream)
		}
		if wake = 0; wait > 0 {
			wake = since + wait
		}
	}
	if len(w.free) > 1000 {
		t.Errorf("%d batches are kept", len(w.free))
	}
}
