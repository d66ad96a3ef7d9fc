package fanout

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// ofApp has a job go to all users of its app.
func ofApp(j *Job) { j.To = To{Kind: OfApp, Name: j.App, Parts: j.To.Parts} }

// A job for users of an app is of a version that earlier releases leave alone, as they would
// take the app for a topic; and one for a topic stays what they read.
func TestJobsOfAnApp(t *testing.T) {
	for _, change := range [][]func(*Job){{ofApp}, {ofApp, withTokens}, {ofApp, func(j *Job) { j.Until = j.Expires.Add(time.Hour) }},
		{ofApp, withTokens, func(j *Job) { j.Until = j.Expires.Add(time.Hour) }}} {
		j := aJob(t, change...)
		value, err := EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodeJob(value)
		if err != nil || read.To != j.To || read.Clicks != j.Clicks || !read.Until.Equal(j.Until) || string(read.Rest) != string(j.Rest) {
			t.Errorf("%+v, %v", read, err)
		}
		if value[0] != otherVersion {
			t.Errorf("version %d", value[0])
		}
		if c, err := DecodeChunk((&Chunk{Job: j, Part: 1}).encode()); err != nil || c.To != j.To || c.Clicks != j.Clicks {
			t.Errorf("%+v, %v", c, err)
		}
		for version := byte(jobVersion); version < otherVersion; version++ {
			value[0] = version
			if _, err := DecodeJob(value); err == nil || errors.Is(err, ErrVersion) {
				t.Errorf("as version %d: %v", version, err)
			}
		}
	}
	topic := aJob(t, withTokens, func(j *Job) { j.Until = j.Expires.Add(time.Hour) }).append(nil)
	if topic[0] != clickVersion {
		t.Errorf("a job for a topic has version %d", topic[0])
	}
	for name, change := range map[string]func(*Job){
		"another app": func(j *Job) { j.To.Name = "bank" }, "a layout": func(j *Job) { j.To.Layout = 1 }, "buckets": func(j *Job) { j.To.Buckets = 64 }, "no name": func(j *Job) { j.To.Name = "" },
	} {
		j := aJob(t, ofApp)
		change(j)
		if _, err := EncodeJob(j); err == nil {
			t.Errorf("%s: encoded", name)
		}
		if _, err := DecodeJob(j.append(nil)); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

// A job for users in a segment is of that version, too, and has no layout either.
func TestJobsOfASegment(t *testing.T) {
	j := aJob(t, func(j *Job) { j.To = To{Kind: OfSegment, Name: "lifecycle/new", Parts: j.To.Parts} })
	value, err := EncodeJob(j)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := DecodeJob(value); err != nil || read.To != j.To || value[0] != otherVersion || read.To.String() != "segment/lifecycle/new" {
		t.Errorf("%+v, %v", read, err)
	}
	for _, change := range []func(*Job){func(j *Job) { j.To.Layout = 1 }, func(j *Job) { j.To.Buckets = 64 }, func(j *Job) { j.To.Name = "" }} {
		wrong := *j
		change(&wrong)
		if _, err := EncodeJob(&wrong); err == nil {
			t.Errorf("%+v: encoded", wrong.To)
		}
	}
}

// A topic that is called as an app is, and its users, are two audiences.
func TestNamesOfAudiences(t *testing.T) {
	topic, app := To{Kind: OfTopic, Name: "shop"}, To{Kind: OfApp, Name: "shop"}
	if topic.String() != "shop" || app.String() != "app/shop" {
		t.Errorf("%s, %s", &topic, &app)
	}
	if MessageOf(aMessage, "shop", "shop", topic.String()) == MessageOf(aMessage, "shop", "shop", app.String()) {
		t.Error("the same message")
	}
}

// A process that does not know who is in an audience leaves its chunks to others, as far as
// it came, and nobody waits behind them.
func TestWhoKnowsNoAudienceLeavesItToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := newWorld(manyUsers(25)), aliveJob(t, ofApp, func(j *Job) { j.To.Parts = 1 })
		if _, err := w.notes.Begin(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		w.crowd.onRead = func(read int) {
			if read == 2 {
				w.crowd.err = fmt.Errorf("kind %q: %w", j.To.Kind, ErrNoAudience)
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		held := w.held(t, j)
		if got := w.ledger.in(j.Topic); len(got) != 10 || held.Done.Emitted != 10 || held.To != j.To {
			t.Fatalf("%d records, held %+v", len(got), held.Done)
		}
		w.crowd.err, w.crowd.onRead = nil, nil
		if err := w.do(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 25 || len(w.ledger.in(j.Topic)) != 25 {
			t.Errorf("%d receivers", len(by))
		}
	})
}

// Where nobody knows an audience, or signs its tokens, its chunks wait no longer than the
// message lives: then nobody gets it, and all its parts end.
func TestWhatNobodyCanSendEndsWithItsMessage(t *testing.T) {
	for name, prepare := range map[string]func(w *world) []func(*Job){
		"an audience that nobody knows": func(w *world) []func(*Job) {
			w.crowd.err = fmt.Errorf("a segment that is gone: %w", ErrNoAudience)
			return []func(*Job){ofApp}
		},
		"tokens that nobody signs": func(*world) []func(*Job) { return []func(*Job){withTokens} },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(manyUsers(25))
			j := aliveJob(t, append(prepare(w), func(j *Job) { j.Open, j.To.Parts = 1, 4 })...)
			if _, err := w.notes.Begin(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(j.Expires) - time.Millisecond)
			if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
				t.Fatal(err)
			}
			next := w.held(t, j)
			time.Sleep(time.Millisecond)
			for range j.To.Parts {
				if err := w.do(t.Context(), next); err != nil {
					t.Fatal(err)
				}
				if values := w.ledger.in(ChunksTopic(j.Lane)); len(values) > 0 {
					var err error
					if next, err = DecodeChunk(values[len(values)-1]); err != nil {
						t.Fatal(err)
					}
				}
			}
			p, err := w.notes.Look(t.Context(), j.Message)
			if err != nil || !p.Over() || p.Emitted != 0 || len(w.ledger.in(j.Topic)) != 0 || len(w.ledger.in(HoldTopic(j.Lane))) != 1 {
				t.Errorf("%s: %+v, %v; %d held", name, p, err, len(w.ledger.in(HoldTopic(j.Lane))))
			}
		})
	}
}
