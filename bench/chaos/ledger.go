//go:build unix

package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
)

// ledger is what there is in the lane's topic, each record with its place: in memory, and
// line by line in a file that outlives a crash of the run.
type ledger struct {
	people *crowd.Crowd
	file   *os.File
	again  bool // see Scenario.again
	once   bool // the lane sends at most once

	mu      sync.Mutex
	out     *bufio.Writer                          // guarded by mu, as all that follows
	entries []invariants.Produced                  //
	byPlace map[invariants.Partition]map[int64]int // index in entries
	marks   map[invariants.Partition][]int64       // of transactions: offsets that no record has
	devices map[int][]string                       // of users
	size    int64                                  // bytes of all values
	err     error                                  // the first that makes the ledger incomplete
}

func newLedger(w *world, path string) (*ledger, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("ledger of the lane: %w", err)
	}
	return &ledger{people: w.people, file: file, again: w.scenario.again, once: w.mode == configs.AtMostOnce, out: bufio.NewWriter(file),
		byPlace: map[invariants.Partition]map[int64]int{}, marks: map[invariants.Partition][]int64{}, devices: map[int][]string{}}, nil
}

// bytes is how much was produced so far.
func (l *ledger) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// expect says in an entry what must become of a user's record. It is called with mu held.
func (l *ledger) expect(e *invariants.Produced, user int, fate crowd.Fate) {
	want := fleet.WantOf(fate)
	e.App, e.Copy, e.Unsent = l.people.AppOf(user), want.Copy, want.Unsent
	for _, o := range want.Outcomes {
		e.Outcomes = append(e.Outcomes, outcomes[o])
	}
	reaches := fate == crowd.Reaches || fate == crowd.MayExpire
	if l.once && len(e.Outcomes) > 0 {
		e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.Unknown))
		// Where a user's living device ends UNKNOWN, what the dead one ended as says
		// more of the whole.
		if reaches && len(l.people.Targets(user).Dead) > 0 {
			e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.Failed), invariants.Outcome(invariants.Suppressed))
		}
	}
	if reaches {
		e.Devices = l.devicesOf(user)
		if l.again {
			e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.DeadLettered), invariants.Outcome(invariants.Expired))
		}
	}
}

// keep adds an entry to the ledger. It is called with mu held.
func (l *ledger) keep(e invariants.Produced) {
	if l.byPlace[e.Partition] == nil {
		l.byPlace[e.Partition] = map[int64]int{}
	}
	l.byPlace[e.Partition][e.Offset] = len(l.entries)
	l.entries = append(l.entries, e)
	if err := json.NewEncoder(l.out).Encode(&e); err != nil {
		l.err = errors.Join(l.err, err)
	}
}

// noteMark notes the mark of a transaction.
func (l *ledger) noteMark(partition invariants.Partition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[partition] = append(l.marks[partition], offset)
}

// devicesOf are the devices of a user that must each end: those of users whose
// tokens all live. It is called with mu held.
func (l *ledger) devicesOf(user int) []string {
	if hashes, ok := l.devices[user]; ok {
		return hashes
	}
	u := l.people.User(user)
	var hashes []string
	if u.Kind == crowd.Plain {
		for _, d := range u.Devices {
			hashes = append(hashes, d.Hash)
		}
	}
	l.devices[user] = hashes
	return hashes
}

// outcomes are the checker's words for ours.
var outcomes = map[push.Outcome]invariants.Outcome{
	push.OutcomeDelivered: invariants.Outcome(invariants.Delivered), push.OutcomeFailed: invariants.Outcome(invariants.Failed),
	push.OutcomeSuppressed: invariants.Outcome(invariants.Suppressed), push.OutcomeExpired: invariants.Outcome(invariants.Expired),
	push.OutcomeDeadLettered: invariants.Outcome(invariants.DeadLettered), push.OutcomeShed: invariants.Outcome(invariants.Shed),
	push.OutcomeUnknown: invariants.Outcome(invariants.Unknown),
}

// at returns the records of a partition from one offset up to another, as far
// as their acknowledgements have come.
func (l *ledger) at(partition invariants.Partition, from, to int64) (list []invariants.Produced, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := from; o < to; o++ {
		i, ok := l.byPlace[partition][o]
		if !ok && slices.Contains(l.marks[partition], o) {
			continue
		}
		if !ok {
			return list, false
		}
		list = append(list, l.entries[i])
	}
	return list, true
}

// idAt is the id of the record at a place.
func (l *ledger) idAt(partition invariants.Partition, offset int64) (string, bool) {
	list, _ := l.at(partition, offset, offset+1)
	if len(list) == 0 {
		return "", false
	}
	return list[0].ID, true
}

// seal ends the ledger, whose writers have ended, and seals it unless something failed.
func (l *ledger) seal() invariants.Ledger[invariants.Produced] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.out.Flush(), l.file.Close()); err != nil {
		return invariants.Ledger[invariants.Produced]{Entries: l.entries, Missing: err.Error()}
	}
	return invariants.Seal(l.entries)
}
