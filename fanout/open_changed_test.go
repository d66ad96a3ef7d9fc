package fanout

import "testing"

// Between two chunks of a message open_chunks of the configuration is changed, by a restart:
// each part comes all the same, and nobody is left out.
func TestOpenChunksChangeMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		why           string
		before, after int
	}{{"more", 2, 8}, {"fewer", 8, 2}, {"no multiple", 3, 5}} {
		w := newWorld(manyUsers(200), func(l *Limits) { l.Open = tt.after })
		j := aJob(t, func(j *Job) { j.To.Parts = 32 })
		x := &Expander{Producer: w.ledger, Notes: w.notes, Open: tt.before, Metrics: w.Metrics, Log: w.Log}
		value, err := EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Do(t.Context(), &Work{Topic: JobsTopic, Value: value}); err != nil {
			t.Fatal(err)
		}
		if err := w.doAll(t, j); err != nil {
			t.Fatal(err)
		}
		p, err := w.notes.Look(t.Context(), j.Message)
		if err != nil || len(p.Ended) != 32 {
			t.Errorf("%s: %d of 32 parts have ended, %v, and nothing is left to do", tt.why, len(p.Ended), err)
		}
	}
}

// The same, where the message is repeated in between.
func TestOpenChunksChangeBeforeARepeat(t *testing.T) {
	w := newWorld(manyUsers(200), func(l *Limits) { l.Open = 2 })
	j := aJob(t, func(j *Job) { j.To.Parts = 32 })
	value, err := EncodeJob(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, open := range []int{2, 7} {
		x := &Expander{Producer: w.ledger, Notes: w.notes, Open: open, Metrics: w.Metrics, Log: w.Log}
		if err := x.Do(t.Context(), &Work{Topic: JobsTopic, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	w.limits.Open = 7
	if err := w.doAll(t, j); err != nil {
		t.Fatal(err)
	}
	if p, err := w.notes.Look(t.Context(), j.Message); err != nil || len(p.Ended) != 32 {
		t.Errorf("%d of 32 parts have ended, %v", len(p.Ended), err)
	}
}

// doAll does all chunks, and those that they bring.
func (w *world) doAll(t *testing.T, j *Job) error {
	t.Helper()
	for i := 0; i < len(w.ledger.in(ChunksTopic(j.Lane))); i++ {
		c, err := DecodeChunk(w.ledger.in(ChunksTopic(j.Lane))[i])
		if err == nil {
			err = w.do(t.Context(), c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
