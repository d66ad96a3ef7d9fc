//go:build unix

package endtoend

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// fate is what a user has to do with a topic to which a message is sent.
type fate uint8

// The fates.
const (
	stranger fate = iota // never subscribes
	stays                // is there before the message is accepted, and ever after
	leaves               // is there before, and leaves meanwhile
	joins                // comes after it was accepted
)

func (f fate) String() string {
	return [...]string{"never subscribed", "was there all the time", "left meanwhile", "came later"}[f]
}

// reached is what a user has got of the one message.
type reached struct {
	Fate    fate
	Records int // in the lane
	Pushes  int // that the provider has accepted
	IDs     int // of all of these
}

// receiptOf is what the receipt says in the end.
type receiptOf struct {
	Final  bool
	Fanout struct {
		State   string
		Chunks  struct{ All, Done int }
		Emitted int
		Skipped map[string]int
	}
}

// fannedOut is what is left of a message to many, for the judge.
type fannedOut struct {
	Users   []reached
	Foreign int // pushes and records that are of no user

	Killed        int // processes of fan-outs
	Open          int // records that each of them could leave half done: the members of at_once chunks
	WorkersKilled int
	Bound         int // push_duplicate_bound: pushes that each of those could leave to be made again

	Chunks  int // that the message has
	Receipt receiptOf
}

// findings are what is wrong, in words; none = every promise was kept.
func (f *fannedOut) findings() (list []string) {
	find := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if f.Foreign > 0 {
		find("%d pushes and records are of no user", f.Foreign)
	}
	wrong := map[string][]int{} // users, by what is wrong with each
	pushesAgain, recordsAgain := 0, 0
	for i := range f.Users {
		u := &f.Users[i]
		if why := u.wrong(); why != "" {
			wrong[why] = append(wrong[why], i)
		}
		pushesAgain += max(0, u.Pushes-1)
		recordsAgain += max(0, u.Records-1)
	}
	for _, why := range slices.Sorted(maps.Keys(wrong)) {
		const few = 5
		find("%d users: %s, as number %v", len(wrong[why]), why, wrong[why][:min(few, len(wrong[why]))])
	}
	if most := f.WorkersKilled * f.Bound; pushesAgain > most {
		find("%d pushes were made again, and %d killed workers print a bound of %d", pushesAgain, f.WorkersKilled, most)
	}
	if most := f.Killed * f.Open; recordsAgain > most {
		find("%d records are in the lane again, and %d killed processes had %d under way at most", recordsAgain, f.Killed, most)
	}
	return append(list, f.receipt()...)
}

// wrong is what is wrong with a user's; empty = nothing.
func (u *reached) wrong() string {
	switch got := u.Pushes > 0 || u.Records > 0; {
	case u.Fate == stays && u.Pushes == 0:
		return fmt.Sprintf("%s, and got no push (%d records)", u.Fate, u.Records)
	case (u.Fate == joins || u.Fate == stranger) && got:
		return fmt.Sprintf("%s, and got the message", u.Fate)
	case u.Pushes > 0 && u.Records == 0:
		return "pushed without a record"
	case u.Records > 0 && u.Pushes == 0:
		return "a record without a push"
	case u.IDs > 1:
		return "several notifications of one message"
	}
	return ""
}

// receipt holds the numbers of the receipt against who was there. A chunk that was done again
// counts as left who had a record of the first time and has left since.
func (f *fannedOut) receipt() (list []string) {
	find := func(format string, args ...any) { list = append(list, fmt.Sprintf("the receipt: "+format, args...)) }
	var of [joins + 1]int
	have, gone := 0, 0 // users with a record; of these, who have left
	for i := range f.Users {
		u := &f.Users[i]
		of[u.Fate]++
		if u.Records > 0 {
			have++
			if u.Fate == leaves {
				gone++
			}
		}
	}
	said := &f.Receipt.Fanout
	if !f.Receipt.Final || said.State != "ended" || said.Chunks.Done != f.Chunks || said.Chunks.All != f.Chunks {
		find("final %v, %s, %d of %d chunks, and there are %d", f.Receipt.Final, said.State, said.Chunks.Done, said.Chunks.All, f.Chunks)
	}
	left, later := said.Skipped["left"], said.Skipped["later"]
	if there := of[stays] + of[leaves]; said.Emitted+left != there {
		find("%d emitted and %d left, and %d had subscribed before", said.Emitted, left, there)
	}
	if left > of[leaves] || later > of[joins] {
		find("%d left and %d later, of %d and %d", left, later, of[leaves], of[joins])
	}
	if said.Emitted > have || said.Emitted < have-gone {
		find("%d emitted, and %d have a record, of whom %d have left since", said.Emitted, have, gone)
	}
	for _, why := range slices.Sorted(maps.Keys(said.Skipped)) {
		if why != "left" && why != "later" {
			find("%d skipped as %s", said.Skipped[why], why)
		}
	}
	return list
}

// kept is an account in which every promise was kept.
func kept() *fannedOut {
	f := &fannedOut{Killed: 2, Open: 1, WorkersKilled: 1, Bound: 1, Chunks: 4, Users: []reached{
		{stays, 1, 1, 1}, {stays, 3, 2, 1}, {leaves, 1, 1, 1}, {leaves, 0, 0, 0}, {joins, 0, 0, 0}, {stranger, 0, 0, 0},
	}}
	f.Receipt.Final = true
	s := &f.Receipt.Fanout
	s.State, s.Chunks.All, s.Chunks.Done, s.Emitted, s.Skipped = "ended", 4, 4, 3, map[string]int{"left": 1, "later": 1}
	return f
}

// The judge of fan-outs finds each promise that is broken, and nothing where all are kept.
func TestTheJudgeOfFanoutsFindsWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*fannedOut)
		want  string
	}{
		{"all is well", func(*fannedOut) {}, ""},
		{"a chunk was done again after one had left", func(f *fannedOut) { f.Receipt.Fanout.Emitted, f.Receipt.Fanout.Skipped["left"] = 2, 2 }, ""},
		{"no push", func(f *fannedOut) { f.Users[0].Pushes = 0 }, "1 users: was there all the time, and got no push (1 records), as number [0]"},
		{"nothing at all", func(f *fannedOut) { f.Users[0] = reached{Fate: stays} },
			"1 users: was there all the time, and got no push (0 records), as number [0]; the receipt: 3 emitted, and 2 have a record, of whom 1 have left since"},
		{"pushed twice beyond the bound", func(f *fannedOut) { f.Users[0].Pushes = 2 }, "2 pushes were made again, and 1 killed workers print a bound of 1"},
		{"pushed twice, and no worker was killed", func(f *fannedOut) { f.WorkersKilled = 0 }, "1 pushes were made again, and 0 killed workers print a bound of 0"},
		{"one who left, twice", func(f *fannedOut) { f.Users[2].Pushes = 2 }, "2 pushes were made again, and 1 killed workers print a bound of 1"},
		{"more records again", func(f *fannedOut) { f.Users[0].Records = 2 }, "3 records are in the lane again, and 2 killed processes had 2 under way at most"},
		{"one who came later", func(f *fannedOut) { f.Users[4] = reached{joins, 1, 1, 1} }, "1 users: came later, and got the message, as number [4]"},
		{"one who came later has a record", func(f *fannedOut) { f.Users[4] = reached{joins, 1, 0, 1} }, "1 users: came later, and got the message, as number [4]"},
		{"one who never came", func(f *fannedOut) { f.Users[5] = reached{stranger, 1, 1, 1} }, "1 users: never subscribed, and got the message, as number [5]"},
		{"two ids", func(f *fannedOut) { f.Users[0].IDs = 2 }, "1 users: several notifications of one message, as number [0]"},
		{"a push from nowhere", func(f *fannedOut) { f.Users[2].Records = 0 }, "1 users: pushed without a record, as number [2]; the receipt: 3 emitted, and 2 have a record, of whom 0 have left since"},
		{"a record that nobody sent on", func(f *fannedOut) { f.Users[2].Pushes = 0 }, "1 users: a record without a push, as number [2]"},
		{"somebody else", func(f *fannedOut) { f.Foreign = 1 }, "1 pushes and records are of no user"},
		{"a chunk is missing", func(f *fannedOut) { f.Receipt.Fanout.Chunks.Done = 3 }, "the receipt: final true, ended, 3 of 4 chunks, and there are 4"},
		{"not ended", func(f *fannedOut) { f.Receipt.Fanout.State = "running" }, "the receipt: final true, running, 4 of 4 chunks, and there are 4"},
		{"one too many is counted", func(f *fannedOut) { f.Receipt.Fanout.Emitted = 4 },
			"the receipt: 4 emitted and 1 left, and 4 had subscribed before; the receipt: 4 emitted, and 3 have a record, of whom 1 have left since"},
		{"one too few is counted", func(f *fannedOut) { f.Receipt.Fanout.Emitted = 2 }, "the receipt: 2 emitted and 1 left, and 4 had subscribed before"},
		{"more are later than came", func(f *fannedOut) { f.Receipt.Fanout.Skipped["later"] = 2 }, "the receipt: 1 left and 2 later, of 2 and 1"},
		{"another reason", func(f *fannedOut) { f.Receipt.Fanout.Skipped["bad_user"] = 1 }, "the receipt: 1 skipped as bad_user"},
	} {
		f := kept()
		tt.spoil(f)
		got := ""
		for i, s := range f.findings() {
			if i > 0 {
				got += "; "
			}
			got += s
		}
		if got != tt.want {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.want)
		}
	}
}
