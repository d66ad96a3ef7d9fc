//go:build linux

package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/push"
)

// seen is a ledger and a status store of what a test says.
type seen struct {
	accepted map[servers.Pair]int
	rows     map[string][]push.Row
	away     error // of the status store
	hung     error // of the ledger
}

func (s *seen) Accepted(_ context.Context, pairs []servers.Pair) (counts []int, err error) {
	for _, p := range pairs {
		counts = append(counts, s.accepted[p])
	}
	return counts, s.hung
}

// acceptedBefore is what there was when nothing of the backlog was produced.
const acceptedBefore = 7

func (s *seen) Total(context.Context) (total int, err error) {
	total = acceptedBefore
	for _, n := range s.accepted {
		total += n
	}
	return total, nil
}

func (s *seen) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	found := make([][]push.Row, len(ids))
	for i, id := range ids {
		found[i] = s.rows[id]
	}
	return found, s.away
}

// aRun is a backlog of more notifications than are read at once, for users of
// one to three devices, and what there is of it when all went well.
func aRun(t *testing.T) (*backlog, *seen, []servers.Pair) {
	t.Helper()
	people, err := newPeople(&Options{Notifications: 10_000, Duplicates: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	b, s := &backlog{people: people}, &seen{accepted: map[servers.Pair]int{}, rows: map[string][]push.Row{}}
	b.next(people.Records(), checkGroup+100, 0, time.Now(), time.Millisecond)
	var all []servers.Pair
	for i, id := range b.ids {
		for _, device := range people.Targets(int(b.users[i])).Live {
			p := servers.Pair{ID: id, Device: device}
			all = append(all, p)
			s.accepted[p] = 1
			s.rows[id] = append(s.rows[id], push.Row{ID: id, Device: device, State: push.StateDelivered})
		}
	}
	if len(all) <= len(b.ids) {
		t.Fatalf("%d devices of %d notifications: nobody has two", len(all), len(b.ids))
	}
	return b, s, all
}

func TestCheckFindsAll(t *testing.T) {
	b, s, all := aRun(t)
	found, err := b.check(t.Context(), s, s, acceptedBefore)
	if err != nil || found.pushes != len(all) {
		t.Errorf("%+v, %v, want all %d", found, err, len(all))
	}
}

// Whatever is missing, or is there too often, makes the run fail and is named.
func TestCheckNotices(t *testing.T) {
	for why, tt := range map[string]struct {
		spoil func(s *seen, p servers.Pair)
		want  found
		says  string
	}{
		"a push is missing": {func(s *seen, p servers.Pair) { delete(s.accepted, p) },
			found{unpushed: 1}, "was not accepted"},
		"a push was accepted again": {func(s *seen, p servers.Pair) { s.accepted[p] = 3 },
			found{again: 2}, "accepted 3 times"},
		"one is missing and another one is there twice: the sum is right": {func(s *seen, p servers.Pair) {
			delete(s.accepted, p)
			for q := range s.accepted {
				s.accepted[q]++
				break
			}
		}, found{unpushed: 1, again: 1}, "accepted"},
		"a push to somebody else": {func(s *seen, p servers.Pair) { s.accepted[servers.Pair{ID: p.ID, Device: "other"}] = 1 },
			found{strange: 1}, "for the devices that they were for"},
		"a push of nothing that was produced": {func(s *seen, p servers.Pair) { s.accepted[servers.Pair{ID: "other", Device: p.Device}] = 1 },
			found{strange: 1}, "for the devices that they were for"},
		"no row": {func(s *seen, p servers.Pair) { s.rows[p.ID] = s.rows[p.ID][:len(s.rows[p.ID])-1] },
			found{rowless: 1}, "no row"},
		"a row that does not say DELIVERED": {func(s *seen, p servers.Pair) { s.rows[p.ID][0].State = push.StateRetrying },
			found{rowless: 1}, "no row"},
		"a row for all of the item, and none of the device": {func(s *seen, p servers.Pair) { s.rows[p.ID][0].Device = "" },
			found{rowless: 1, strangeRows: 1}, "no row"},
		"a row of another device": {func(s *seen, p servers.Pair) {
			s.rows[p.ID] = append(s.rows[p.ID], push.Row{ID: p.ID, Device: "other", State: push.StateDelivered})
		}, found{strangeRows: 1}, "none of its user's"},
	} {
		t.Run(why, func(t *testing.T) {
			b, s, all := aRun(t)
			tt.spoil(s, all[len(all)-1]) // of the second group
			got, err := b.check(t.Context(), s, s, acceptedBefore)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %q", err, tt.says)
			}
			got.pushes, got.first = 0, ""
			if *got != tt.want {
				t.Errorf("found %+v, want %+v", *got, tt.want)
			}
		})
	}
}

// What could not be read is no row that is missing.
func TestCheckWithoutAStore(t *testing.T) {
	b, s, _ := aRun(t)
	s.away = errors.New("the store is away")
	if _, err := b.check(t.Context(), s, s, acceptedBefore); !errors.Is(err, s.away) {
		t.Errorf("got %v", err)
	}
	s.away, s.hung = nil, errors.New("the ledger is away")
	if _, err := b.check(t.Context(), s, s, acceptedBefore); !errors.Is(err, s.hung) {
		t.Errorf("got %v", err)
	}
}
