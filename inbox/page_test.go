package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// pageTables answer what pages are read by, from positions in the order of the tables.
type pageTables struct {
	own    []Position // of a page: entries; where they are counted: marks alone, as read
	topics map[string][]Position
	reads  int // of topics' places
	fails  string
	large  bool // messages have 100 KiB
}

func (f *pageTables) Exec(context.Context, string, ...any) error {
	return errors.New("nothing is written here")
}

func (f *pageTables) Query(_ context.Context, statement string, values, dest []any, row func()) error {
	if f.fails == statement {
		return errAway
	}
	// part calls row with those of a list in a period and behind a position, up to a limit.
	part := func(list []Position, p int, at any, id any, limit int, put func(Position)) {
		behind := Position{at.(time.Time), id.(string)}
		for _, one := range list {
			if period(one.At) == p && behind.Before(one) && limit > 0 {
				put(one)
				limit--
				row()
			}
		}
	}
	switch statement {
	case selectPage:
		part(f.own, values[2].(int), values[3], values[4], values[5].(int), func(p Position) {
			*dest[0].(*time.Time), *dest[1].(*string), *dest[2].(*string), *dest[6].(*[]byte) = p.At, p.ID, "own", []byte(`{}`)
		})
	case selectMarks:
		part(f.own, values[2].(int), values[3], values[4], values[5].(int), func(p Position) {
			*dest[0].(*time.Time), *dest[1].(*string), *dest[4].(*time.Time) = p.At, p.ID, p.At
		})
	case selectOfTopics:
		f.reads++
		for _, name := range values[1].([]string) {
			part(f.topics[name], values[2].(int), values[3], values[4], values[5].(int), func(p Position) {
				*dest[0].(*string), *dest[1].(*time.Time), *dest[2].(*string) = name, p.At, p.ID
			})
		}
	case selectMessage:
		*dest[0].(*string), *dest[4].(*[]byte) = values[1].(string), []byte(`{}`)
		if f.large {
			*dest[4].(*[]byte) = make([]byte, 100<<10)
		}
		row()
	}
	return nil
}

// Pages over many topics, of which each has other counts in each period, are in order and
// whole, whatever is read at once: no row comes before those of another topic that were not
// read yet. A page reads as many times as there are periods, and not as there are topics.
func TestPagesOverManyTopics(t *testing.T) {
	now := time.UnixMilli(1_764_126_000_123).UTC()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := &pageTables{topics: map[string][]Position{}}
		s := New(Options{Tables: f, Now: func() time.Time { return now }})
		var want []Position
		at := func(id string) Position {
			// Few times, so that many are the same.
			return Position{now.Add(-time.Duration(r.IntN(200)) * 3 * time.Hour), id}
		}
		var follows []Follow
		for i := range 1 + r.IntN(12) {
			one := Follow{Topic: fmt.Sprint("t", i)}
			if r.IntN(3) == 0 {
				one.Since = now.Add(-time.Duration(r.IntN(600)) * time.Hour)
			}
			for n := range r.IntN(40) {
				p := at(fmt.Sprintf("m-%d-%d", i, n))
				if f.topics[one.Topic] = append(f.topics[one.Topic], p); !p.At.Before(one.Since) {
					want = append(want, p)
				}
			}
			slices.SortFunc(f.topics[one.Topic], Position.compare)
			follows = append(follows, one)
		}
		for n := range r.IntN(60) {
			f.own = append(f.own, at(fmt.Sprintf("own-%d", n)))
		}
		if list := f.topics["t0"]; len(list) > 0 { // who has that in his inbox reads it there, once
			f.own = append(f.own, list[len(list)/2])
		}
		slices.SortFunc(f.own, Position.compare)
		want = append(want, f.own...)
		slices.SortFunc(want, Position.compare)
		want = slices.Compact(want)
		for _, limit := range []int{1, 3, 20, 100} {
			var got []Position
			behind, own := Top(now), 0
			for {
				page, end, err := s.Page(t.Context(), Key{"u", "shop"}, follows, behind, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					if got = append(got, e.Position); e.Topic == "" {
						own++
					}
				}
				if end {
					break
				}
				behind = page[len(page)-1].Position
			}
			if !slices.Equal(got, want) || own != len(f.own) {
				t.Fatalf("seed %d, by %d: %d entries, want %d, or in another order", seed, limit, len(got), len(want))
			}
		}
		f.reads = 0
		page, _, err := s.Page(t.Context(), Key{"u", "shop"}, follows, Top(now), 100)
		if err != nil || f.reads > 8 {
			t.Errorf("seed %d: %d reads of topics for a page, %v", seed, f.reads, err)
		}
		ofTopics := slices.ContainsFunc(page, func(e Entry) bool { return e.Topic != "" })
		for _, f.fails = range []string{selectPage, selectOfTopics, selectMessage, selectUpTo} {
			if _, _, err := s.Page(t.Context(), Key{"u", "shop"}, follows, Top(now), 100); !errors.Is(err, errAway) && (ofTopics || f.fails != selectMessage) {
				t.Errorf("seed %d: without an answer to %s: %v", seed, f.fails, err)
			}
		}
		if len(s.places) != 0 {
			t.Fatalf("%d places are not given back", len(s.places))
		}
	}
}

// Where far more is looked at than a topic gives at once, nothing of it is passed over
// because another topic has something older; and there is an end to looking.
func TestUnreadBehindMuchThatIsRead(t *testing.T) {
	now := time.UnixMilli(1_764_126_000_123).UTC()
	f := &pageTables{topics: map[string][]Position{}}
	s := New(Options{Tables: f, Now: func() time.Time { return now }})
	follows := []Follow{{Topic: "busy"}, {Topic: "quiet"}}
	for i := range 300 {
		p := Position{now.Add(-time.Duration(i) * time.Minute), fmt.Sprint("m-", i)}
		if f.topics["busy"] = append(f.topics["busy"], p); i < 240 {
			f.own = append(f.own, p)
		}
	}
	for i := range 10 {
		f.topics["quiet"] = append(f.topics["quiet"], Position{now.Add(-time.Duration(400+i) * time.Minute), fmt.Sprint("q-", i)})
	}
	if n, more, err := s.Unread(t.Context(), Key{"u", "shop"}, follows); n != 70 || more || err != nil {
		t.Errorf("%d, more %v, %v", n, more, err)
	}
	f.topics["quiet"] = nil
	for i := range 900 {
		p := Position{now.Add(-time.Duration(300+i) * time.Minute), fmt.Sprint("m-", 300+i)}
		f.topics["busy"], f.own = append(f.topics["busy"], p), append(f.own, p)
	}
	f.reads = 0
	if n, more, err := s.Unread(t.Context(), Key{"u", "shop"}, follows); n != 60 || !more || err != nil || f.reads > 12 {
		t.Errorf("%d, more %v, %v, after %d reads", n, more, err, f.reads)
	}
}

// Contents that are read after the places were found end a page as others do.
func TestAPageOfLargeMessages(t *testing.T) {
	now := time.UnixMilli(1_764_126_000_123).UTC()
	f := &pageTables{topics: map[string][]Position{}, large: true}
	s := New(Options{Tables: f, Now: func() time.Time { return now }})
	for i := range 15 {
		f.topics["news"] = append(f.topics["news"], Position{now.Add(-time.Duration(i) * time.Minute), fmt.Sprint("m-", i)})
	}
	behind := Top(now)
	for _, want := range []int{10, 5} {
		page, end, err := s.Page(t.Context(), Key{"u", "shop"}, []Follow{{Topic: "news"}}, behind, 100)
		if err != nil || len(page) != want || end != (want == 5) {
			t.Fatalf("%d entries, end %v, %v", len(page), end, err)
		}
		behind = page[len(page)-1].Position
	}
}
