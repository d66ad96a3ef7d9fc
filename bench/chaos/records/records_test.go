package records

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

var (
	written = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	all     = Options{App: "shop", Users: []User{{"u1"}, {"u2"}, {"u3"}}, GreatestAge: 24 * time.Hour, Bombs: true, Wire: true}
)

func generator(t *testing.T, o Options, seed uint64) *Generator {
	t.Helper()
	g, err := New(o, rand.NewPCG(seed, 1))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The same seed gives the same records, and another one others.
func TestSameSeedSameRecords(t *testing.T) {
	o := all
	o.Bombs = false
	a, b, c := generator(t, o, 1), generator(t, o, 1), generator(t, o, 2)
	differ := false
	for i := range 500 {
		at := written.Add(time.Duration(i) * time.Millisecond)
		x, y, z := a.Next(at), b.Next(at), c.Next(at)
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("record %d is %q and %q", i, x.Kind, y.Kind)
		}
		differ = differ || !reflect.DeepEqual(x, z)
	}
	if !differ {
		t.Error("another seed gives the same records")
	}
}

// Every kind is drawn, and what it says of a record can be so: an id is that
// of one notification, unless it is a copy.
func TestKinds(t *testing.T) {
	o := all
	o.Bombs = false
	g, drawn, seen := generator(t, o, 1), map[string]bool{}, map[string]bool{}
	for range 5000 {
		r := g.Next(written)
		drawn[r.Kind] = true
		id := r.Want.ID
		if r.Want.Copy != (id != "" && seen[id]) {
			t.Fatalf("%s: id %q was there %v, and it is a copy %v", r.Kind, id, seen[id], r.Want.Copy)
		}
		seen[id] = true
		if r.Want.Outcome == DeadLettered && r.Want.Reason == "" || r.Want.Outcome == "" {
			t.Fatalf("%s: ends %q because of %q", r.Kind, r.Want.Outcome, r.Want.Reason)
		}
		if r.Want.Outcome == Delivered && (id == "" || r.Want.User < 0) {
			t.Fatalf("%s: delivered to user %d as %q", r.Kind, r.Want.User, id)
		}
	}
	for i := range kinds {
		if k := &kinds[i]; !k.bomb && !drawn[k.name] {
			t.Errorf("%q is never drawn", k.name)
		}
	}
}

// Bombs are what they are called: more than a batch may unpack to, or just not.
func TestBombs(t *testing.T) {
	for i := range kinds {
		k := &kinds[i]
		if !k.bomb {
			continue
		}
		r := generator(t, all, 1).make(k, written)
		if takes := len(r.Value) + recordTakes; takes > maxBatch != (r.Want.Detail == "batch") || !r.Alone || r.Codec == Unpacked {
			t.Errorf("%s takes %d of %d bytes, is alone %v and packed as %d", k.name, takes, maxBatch, r.Alone, r.Codec)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for why, change := range map[string]func(*Options){
		"no app":   func(o *Options) { o.App = "" },
		"one user": func(o *Options) { o.Users = o.Users[:1] },
		"no age":   func(o *Options) { o.GreatestAge = 0 },
	} {
		o := all
		change(&o)
		if _, err := New(o, rand.NewPCG(1, 1)); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
}
