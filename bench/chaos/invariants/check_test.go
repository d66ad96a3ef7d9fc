package invariants

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Every promise that is broken, and every ledger that is not whole, is
// reported, as that and with words that lead to it; what an event excuses is
// not.
func TestCheckNotices(t *testing.T) {
	again := func(l *Ledgers) { l.Sends.Entries = append(l.Sends.Entries, accept("a", "1", 2500)) }
	// nameless is a repeat by a kill, effectively once, in which neither push has a collapse id.
	nameless := func(l *Ledgers, provider string) {
		again(l)
		l.Limits.Mode, l.Events = EffectivelyOnce, []Event{kill(300, 1)}
		for i := range l.Sends.Entries {
			if s := &l.Sends.Entries[i]; s.Pair == (Pair{"a", "1"}) {
				s.CollapseID, s.Provider = "", provider
			}
		}
	}
	for _, tt := range []struct {
		why    string
		change func(*Ledgers)
		broken Invariant // empty: nothing is
		says   string
	}{
		{"the producer's ledger is not sealed", func(l *Ledgers) { l.Producer.Sealed = false }, Incomplete, "producer is not sealed"},
		{"the simulator's ledger is not, and says why", func(l *Ledgers) { l.Sends.Sealed, l.Sends.Missing = false, "12 of 13" }, Incomplete, "12 of 13"},
		{"the status dump is not", func(l *Ledgers) { l.Status.Sealed = false }, Incomplete, "status rows is not sealed"},
		{"the topics' is not", func(l *Ledgers) { l.Letters.Sealed = false }, Incomplete, "dead-letter topics is not sealed"},
		{"the offsets' is not", func(l *Ledgers) { l.Offsets.Sealed = false }, Incomplete, "offsets is not sealed"},
		{"the status dump is empty", func(l *Ledgers) { l.Status.Entries = nil }, Incomplete, "status rows is empty"},
		{"nobody looked at processes", func(l *Ledgers) { l.Processes = Ledger[Footprint]{} }, Incomplete, "processes is not sealed"},
		{"processes were looked at once", func(l *Ledgers) { l.Processes.Entries = l.Processes.Entries[:1] }, Incomplete, "looked at twice"},
		{"nobody searched for canaries", func(l *Ledgers) { l.Leaks = Ledger[Leak]{} }, Incomplete, "canaries is not sealed"},
		{"an offset that nobody knows of", func(l *Ledgers) { shift(l) }, Incomplete, "goes on with offset"},
		{"it is the mark of a transaction", func(l *Ledgers) { p, at := shift(l); l.Marks = map[Partition][]int64{p: {at}} }, "", ""},
		{"that nobody looked is declared", func(l *Ledgers) {
			l.Processes, l.Leaks, l.Limits.Unobserved = Ledger[Footprint]{}, Ledger[Leak]{}, []Invariant{I8, I9}
		}, "", ""},
		{"a record is not in the producer's ledger", func(l *Ledgers) { l.Producer.Entries = l.Producer.Entries[1:] }, Incomplete, "offset 1 where 0"},
		{"the last record is not", func(l *Ledgers) { l.Producer.Entries = l.Producer.Entries[:4] }, Incomplete, "ends at 5"},
		{"a whole partition is not", func(l *Ledgers) {
			l.Offsets.Entries = append(l.Offsets.Entries, Sample{At: at(4000), Partition: Partition{"push.main", 1}, Committed: 3, End: 3})
		}, Incomplete, "push.main/1 has 3 records"},
		{"a partition was never sampled", func(l *Ledgers) {
			l.Producer.Entries = append(l.Producer.Entries, Produced{ID: "a", Copy: true, Partition: Partition{"push.main", 1}})
		}, Incomplete, "no offset of push.main/1"},
		{"samples are missing for 3 s", func(l *Ledgers) {
			l.Offsets.Entries = append(l.Offsets.Entries[:4:4], l.Offsets.Entries[70:]...)
		}, Incomplete, "was not sampled for 3"},
		{"one id was produced for two notifications", func(l *Ledgers) { l.Producer.Entries[4].Copy = false }, Incomplete, "twice"},

		{"no rows: lost", func(l *Ledgers) { l.Status.Entries = l.Status.Entries[:5] }, I1, "d (push.main/0/3) has no final outcome: [no rows]"},
		{"handed over and never picked up", func(l *Ledgers) { l.Status.Entries[3].State = Held }, I1, "b (push.main/0/1) has no final outcome"},
		{"an intent is no outcome", func(l *Ledgers) { l.Status.Entries[5].State = Sending }, I1, "no final outcome"},
		{"one device of two is open", func(l *Ledgers) { l.Status.Entries[1].State = Retrying }, I1, "devices [2] are open"},
		{"nothing about a device", func(l *Ledgers) {
			l.Status.Entries = append(l.Status.Entries[:1:1], l.Status.Entries[2:]...)
		}, I1, "nothing about its device 2"},
		{"nothing about a device, and the whole was retried", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries[:1:1], l.Sends.Entries[2:]...)
			l.Status.Entries[1] = row("a", "", 0, Retrying, 160)
		}, I1, "nothing about its device 2"},
		{"and it was so in a kill: what was retried must come all the same", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries[:1:1], l.Sends.Entries[2:]...)
			l.Status.Entries[1] = row("a", "", 0, Retrying, 160)
			l.Events = []Event{kill(155, 9)}
		}, I1, "nothing about its device 2"},
		{"the whole was held, and its devices came later", func(l *Ledgers) {
			l.Status.Entries = append(l.Status.Entries, row("a", "", 0, Held, 90))
		}, "", ""},
		{"nothing about a device, and the whole ended as it was not meant to", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries[:1:1], l.Sends.Entries[2:]...)
			l.Status.Entries[1] = row("a", "", 0, Suppressed, 160)
		}, I1, "nothing about its device 2"},
		{"the whole ended as it may, after it was left to another worker", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries[:1:1], l.Sends.Entries[2:]...)
			l.Status.Entries[1] = row("a", "", 0, Expired, 160)
			l.Producer.Entries[0].Outcomes = append(l.Producer.Entries[0].Outcomes, Outcome(Expired))
		}, "", ""},
		{"the whole ended as it was not meant to, in a kill", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries[:1:1], l.Sends.Entries[2:]...)
			l.Status.Entries[1] = row("a", "", 0, Expired, 160)
			l.Events = []Event{kill(155, 9)}
		}, "", ""},
		{"another outcome than was meant", func(l *Ledgers) { l.Status.Entries[4].State = Failed }, I1, "c (push.main/0/2) ended FAILED and not"},
		{"two endings", func(l *Ledgers) {
			l.Status.Entries = append(l.Status.Entries, row("d", "", 1, Expired, 3500))
		}, I1, "ended in 2 ways"},
		{"dead-lettered without a copy", func(l *Ledgers) { l.Letters.Entries = l.Letters.Entries[1:] }, I1, "in the dead-letter topic false"},
		{"a dead letter of something delivered", func(l *Ledgers) {
			l.Letters.Entries = append(l.Letters.Entries, Letter{Dead, "a", 0, "panicked"})
		}, I1, "in the dead-letter topic true"},
		{"rows of something that was never produced", func(l *Ledgers) {
			l.Status.Entries = append(l.Status.Entries, row("x", "", 0, Suppressed, 10))
		}, I1, "x has status rows"},
		{"a retry of something that was never produced", func(l *Ledgers) {
			l.Letters.Entries = append(l.Letters.Entries, Letter{Retry, "x", 1, ""})
		}, I1, "x is in a retry topic"},

		{"delivered, and the provider never saw it", func(l *Ledgers) { l.Sends.Entries = l.Sends.Entries[1:] }, I2, "the provider never saw"},
		{"delivered, and the provider refused", func(l *Ledgers) {
			l.Sends.Entries[1].Accepted, l.Sends.Entries[1].Reply = false, "bad"
		}, I2, "never accepted it"},
		{"a retry counted as delivered", func(l *Ledgers) { l.Sends.Entries = l.Sends.Entries[:3] }, I2, "never accepted it"},
		{"accepted, and the row says failed", func(l *Ledgers) { l.Status.Entries[1].State = Failed }, I2, "its row does not say so"},
		{"its worker died a while later", func(l *Ledgers) {
			l.Status.Entries[1].State = Failed
			l.Events = []Event{kill(2800, 9)}
		}, I2, "its row does not say so"},
		{"its worker died a while later, before the row was durable", func(l *Ledgers) {
			l.Status.Entries[1] = row("a", "2", 0, Expired, 2900)
			l.Events = []Event{kill(2800, 9, Pair{"a", "2"})}
		}, "", ""},
		{"and it was another device's row", func(l *Ledgers) {
			l.Status.Entries[1] = row("a", "2", 0, Expired, 2900)
			l.Events = []Event{kill(2800, 9, Pair{"a", "1"})}
		}, I2, "its row does not say so"},
		{"its row was wrong before its worker died", func(l *Ledgers) {
			l.Status.Entries[1] = row("a", "2", 0, Expired, 2700)
			l.Events = []Event{kill(2800, 9, Pair{"a", "2"})}
		}, I2, "its row does not say so"},
		{"and the next worker heard the answer, and wrote something else", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "2", 2500))
			l.Status.Entries[1] = row("a", "2", 0, Failed, 2550)
			l.Events = []Event{kill(500, 9, Pair{"a", "2"})}
		}, I2, "its row does not say so"},
		{"that one died too", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "2", 2500))
			l.Status.Entries[1] = row("a", "2", 0, Expired, 3900)
			l.Events = []Event{kill(500, 9, Pair{"a", "2"}), kill(3800, 9, Pair{"a", "2"})}
		}, "", ""},
		{"that one did not hear the answer", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "2", 2500))
			l.Sends.Entries[4].Unheard = true
			l.Status.Entries[1] = row("a", "2", 0, Failed, 2550)
			l.Events = []Event{kill(500, 9, Pair{"a", "2"})}
		}, "", ""},
		{"accepted and answered, at most once, and the row says failed", func(l *Ledgers) {
			unknown(l)
			l.Status.Entries[1].State = Failed
		}, I2, "its row does not say so"},
		{"the row says unknown", func(l *Ledgers) {
			unknown(l)
			l.Status.Entries[1].State = Unknown
			l.Events = []Event{leaves(155, 1)}
		}, "", ""},
		{"its worker died while the row could not be written", func(l *Ledgers) {
			l.Status.Entries[1].State = Failed
			l.Events = []Event{unrecordable(400, 1800), unrecordable(1900, 2700), kill(2800, 9)}
		}, "", ""},
		{"the row could not be written, and no worker died", func(l *Ledgers) {
			l.Status.Entries[1].State = Failed
			l.Events = []Event{unrecordable(400, 2700)}
		}, I2, "its row does not say so"},
		{"its worker died long after the row could be written", func(l *Ledgers) {
			l.Status.Entries[1].State = Failed
			l.Events = []Event{unrecordable(400, 1000), kill(2800, 9)}
		}, I2, "its row does not say so"},
		{"pushed and never produced", func(l *Ledgers) { l.Sends.Entries = append(l.Sends.Entries, accept("x", "1", 10)) }, I2, "x was pushed"},

		{"who looked at once found nothing", func(l *Ledgers) {
			sampled(l, 200, func(s *Sample) {
				if s.At.Equal(at(200)) {
					s.Unsettled = []int64{1}
				}
			})
		}, I3, "nothing durable was there of offset 1, b:"},
		{"times in the rows prove nothing when somebody looked", func(l *Ledgers) { l.Status.Entries[0].At = at(3000) }, "", ""},
		{"the store was away, and it was read before the fleet could write", func(l *Ledgers) {
			away(l, 200, 3900)
			l.Shut = []Span{{at(150), at(3950)}}
		}, "", ""},
		{"what was then missing is found, although a row says that it was in time", func(l *Ledgers) {
			away(l, 200, 3900)
			l.Shut = []Span{{at(150), at(3950)}}
			sampled(l, 3900, func(s *Sample) {
				if s.At.Equal(at(3900)) {
					s.Unsettled = []int64{0}
				}
			})
		}, I3, "nothing durable was there of offset 0, a: "},
		{"the store was away, and rows could come before it was read", func(l *Ledgers) { away(l, 200, 3900) }, Incomplete,
			"push.main/0 was committed to 2 at Nov 21 12:00:00.200, and for 3.71s anybody could write what is missing from 0 on"},
		{"the fleet was let in too early", func(l *Ledgers) {
			away(l, 200, 3900)
			l.Shut = []Span{{at(150), at(1900)}}
		}, Incomplete, "for 2.01s anybody could write"},
		{"it was shut out too late", func(l *Ledgers) {
			away(l, 200, 3900)
			l.Shut = []Span{{at(1500), at(3950)}}
		}, Incomplete, "for 1.3s anybody could write"},
		{"it could not be read for a moment", func(l *Ledgers) { away(l, 200, 900) }, "", ""},
		{"and never after", func(l *Ledgers) { away(l, 200, 9000) }, Incomplete, "committed from 0 to 2 at Nov 21 12:00:00.200, and nobody has read"},
		{"nobody ever looked", func(l *Ledgers) { away(l, 0, 9000) }, Incomplete, "nobody has read"},
		{"nobody looked, where the store itself says when", func(l *Ledgers) { away(l, 0, 9000); l.Limits.StoreTimes = true }, "", ""},
		{"committed before the status was durable", func(l *Ledgers) {
			away(l, 0, 9000)
			l.Limits.StoreTimes, l.Status.Entries[0].At = true, at(900)
		}, I3, "a (push.main/0/0) was durable 700ms later"},
		{"committed past a gap", func(l *Ledgers) {
			away(l, 0, 9000)
			sampled(l, 200, func(s *Sample) { s.Committed = max(4, s.Committed) })
			l.Limits.StoreTimes, l.Status.Entries[4].At = true, at(800)
		}, I3, "c (push.main/0/2) was durable 600ms later"},

		{"accepted twice", again, I4, "no fault explains it"},
		{"accepted twice, as a kill may do", func(l *Ledgers) { again(l); l.Events = []Event{kill(300, 1)} }, "", ""},
		{"more than that kill may repeat", func(l *Ledgers) {
			again(l)
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "2", 2600))
			l.Events = []Event{kill(300, 1)}
		}, I4, "beyond the bound of the kill"},
		{"two kills, one each", func(l *Ledgers) {
			again(l)
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "2", 2600))
			l.Events = []Event{kill(300, 1), kill(1700, 1)}
		}, "", ""},
		{"the kill came later", func(l *Ledgers) { again(l); l.Events = []Event{kill(3800, 9)} }, I4, "no fault explains it"},
		{"the kill was over before", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries, accept("b", "3", 3500))
			l.Events = []Event{kill(300, 9)}
		}, I4, "no fault explains it"},
		{"nor does a busy machine bring it nearer", func(l *Ledgers) {
			again(l)
			l.Events, l.Limits.Grace = []Event{kill(3800, 9)}, 10*time.Second
		}, I4, "no fault explains it"},
		{"its status was durable when the kill came", func(l *Ledgers) {
			again(l)
			l.Events = []Event{kill(300, 9, Pair{"a", "2"})}
		}, I4, "its status was durable"},
		{"it was not, and three workers sent it", func(l *Ledgers) {
			again(l)
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "1", 2600))
			l.Events = []Event{kill(2000, 9, Pair{"a", "1"})}
		}, I4, "beyond the bound of the kill"},
		{"two died with it", func(l *Ledgers) {
			again(l)
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "1", 2600))
			l.Events = []Event{kill(2000, 9, Pair{"a", "1"}), kill(2550, 9, Pair{"a", "1"})}
		}, "", ""},
		{"one of two did, and a fault before explains the first only", func(l *Ledgers) {
			again(l)
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "1", 2600))
			l.Events = []Event{kill(2000, 9, Pair{"a", "1"}), kill(600, 9)}
		}, "", ""},
		{"what it is not known to have exposed may come as often as it has room", func(l *Ledgers) {
			again(l)
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "1", 2600))
			l.Events = []Event{kill(2000, 2)}
		}, "", ""},
		{"its status was not", func(l *Ledgers) { again(l); l.Events = []Event{kill(300, 9, Pair{"a", "1"})} }, "", ""},
		{"a decision that was taken back is no acceptance", func(l *Ledgers) { again(l); l.Sends.Entries[0].Undone = true }, "", ""},
		{"another collapse id, effectively once", func(l *Ledgers) {
			again(l)
			l.Sends.Entries[4].CollapseID, l.Limits.Mode, l.Events = "other", EffectivelyOnce, []Event{kill(300, 1)}
		}, I4, `under the collapse ids "ca" and "other"`},
		{"none, effectively once", func(l *Ledgers) { nameless(l, "fcm") }, I4, `under the collapse ids "" and ""`},
		{"none, of what has no text, on Android", func(l *Ledgers) { nameless(l, "fcm"); l.Producer.Entries[0].Textless = true }, "", ""},
		{"none, of what has no text, on Apple's", func(l *Ledgers) { nameless(l, "apns"); l.Producer.Entries[0].Textless = true }, I4, `under the collapse ids "" and ""`},
		{"the same one", func(l *Ledgers) { again(l); l.Limits.Mode, l.Events = EffectivelyOnce, []Event{kill(300, 1)} }, "", ""},
		{"twice in a lane of at most once", func(l *Ledgers) {
			again(l)
			l.Limits.Mode, l.Events = AtMostOnce, []Event{kill(300, 1)}
		}, I4, "sends at most once"},

		{"UNKNOWN because of a kill, at most once", func(l *Ledgers) { unknown(l, "d"); l.Events = []Event{leaves(300, 1)} }, "", ""},
		{"UNKNOWN without a fault", func(l *Ledgers) { unknown(l, "d") }, I1, "d (push.main/0/3) ended UNKNOWN, and no fault explains it"},
		{"of two, a kill may leave one", func(l *Ledgers) { unknown(l, "d", "c"); l.Events = []Event{leaves(300, 1)} }, I1, "beyond what the faults may leave so"},
		{"two kills", func(l *Ledgers) { unknown(l, "d", "c"); l.Events = []Event{leaves(300, 1), leaves(350, 1)} }, "", ""},
		{"of two kills, one explains only one of them", func(l *Ledgers) {
			unknown(l, "d", "c")
			l.Status.Entries[len(l.Status.Entries)-2].At = at(-3000) // c's intent; d's is after the first kill
			l.Events = []Event{leaves(-2500, 1), leaves(350, 1)}
		}, "", ""},
		{"the kill came before the intent", func(l *Ledgers) { unknown(l, "d"); l.Events = []Event{leaves(-1500, 1)} }, I1, "no fault explains it"},

		{"an offset went back", func(l *Ledgers) {
			sampled(l, 2000, func(s *Sample) {
				if s.At.Equal(at(2000)) {
					s.Committed = 3
				}
			})
		}, I5, "push.main/0 went from 5 back to 3"},
		{"a broker that had just come back told an old one, once", func(l *Ledgers) {
			backAt(l, 2000, 2000)
			l.Events = []Event{{Kind: "kill", Target: "kafka", Start: at(1000), End: at(1900), Stalls: true, Loads: true}}
		}, "", ""},
		{"it had come back long before", func(l *Ledgers) {
			backAt(l, 2000, 2000)
			l.Events = []Event{{Kind: "kill", Target: "kafka", Start: at(1000), End: at(1100), Stalls: true, Loads: true}}
			l.Limits.Heal = 100 * time.Millisecond
		}, I5, "push.main/0 went from 5 back to 3"},
		{"it had not been away", func(l *Ledgers) {
			backAt(l, 2000, 2000)
			l.Events = []Event{{Kind: "slow", Target: "kafka", Start: at(1000), End: at(1900), Stalls: true}}
		}, I5, "push.main/0 went from 5 back to 3"},
		{"it told that in the end: nobody knows better", func(l *Ledgers) {
			backAt(l, 2000, 1<<30)
			l.Events = []Event{{Kind: "kill", Target: "kafka", Start: at(1000), End: at(1900), Stalls: true, Loads: true}}
		}, I5, "push.main/0 went from 5 back to 3"},
		{"the last sample alone told it", func(l *Ledgers) {
			end := l.Offsets.Entries[len(l.Offsets.Entries)-1].At
			sampled(l, 0, func(s *Sample) {
				if s.At.Equal(end) {
					s.Committed = 3
				}
			})
			l.Events = []Event{{Kind: "kill", Target: "kafka", Start: at(1000), End: end, Stalls: true, Loads: true}}
		}, I5, "push.main/0 went from 5 back to 3"},
		{"it was told twice: then it was committed", func(l *Ledgers) {
			backAt(l, 2000, 2100)
			l.Events = []Event{{Kind: "kill", Target: "kafka", Start: at(1000), End: at(1900), Stalls: true, Loads: true}}
		}, I5, "push.main/0 went from 5 back to 3"},

		{"sent to who opted out", func(l *Ledgers) { l.Sends.Entries = append(l.Sends.Entries, refuse("d", "4", 10)) }, I6, "d (push.main/0/3) was never to be sent"},
		{"sent to a device that it is not for, and DELIVERED there", func(l *Ledgers) {
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "9", 115))
			l.Status.Entries = append(l.Status.Entries, row("a", "9", 0, Delivered, 165))
		}, I6, "a (push.main/0/0) was sent to device 9, and it is for [1 2]"},
		{"sent to a device of its user whose token is dead", func(l *Ledgers) {
			l.Producer.Entries[0].Dead = []string{"9"}
			l.Sends.Entries = append(l.Sends.Entries, refuse("a", "9", 115))
			l.Status.Entries = append(l.Status.Entries, row("a", "9", 0, Failed, 165))
		}, "", ""},
		{"refused there", func(l *Ledgers) { l.Sends.Entries = append(l.Sends.Entries, refuse("a", "9", 115)) }, I6, "was sent to device 9"},
		{"whose devices are not known may be sent to any", func(l *Ledgers) {
			l.Producer.Entries[0].Devices = nil
			l.Sends.Entries = append(l.Sends.Entries, accept("a", "9", 115))
			l.Status.Entries = append(l.Status.Entries, row("a", "9", 0, Delivered, 165))
		}, "", ""},
		{"sent past the deadline", func(l *Ledgers) { l.Producer.Entries[0].Deadline = at(-2000) }, I6, "after its deadline"},
		{"held on its way past the deadline", func(l *Ledgers) {
			l.Producer.Entries[0].Deadline = at(-2000)
			l.Events = []Event{{Kind: "black hole", Of: "w1", Holds: true, Start: at(-2500), End: at(50)}}
		}, "", ""},
		{"held twice in succession", func(l *Ledgers) {
			l.Producer.Entries[0].Deadline = at(-2000)
			l.Events = []Event{{Of: "w1", Holds: true, Start: at(-2500), End: at(-1100)}, {Of: "w1", Holds: true, Start: at(-1100), End: at(50)}}
		}, "", ""},
		{"another worker's way was shut", func(l *Ledgers) {
			l.Producer.Entries[0].Deadline = at(-2000)
			l.Events = []Event{{Of: "w2", Holds: true, Start: at(-2500), End: at(50)}}
		}, I6, "after its deadline"},
		{"its way was shut later", func(l *Ledgers) {
			l.Producer.Entries[0].Deadline = at(-2000)
			l.Events = []Event{{Of: "w1", Holds: true, Start: at(-900), End: at(50)}}
		}, I6, "after its deadline"},
		{"its way was open again before", func(l *Ledgers) {
			l.Producer.Entries[0].Deadline = at(-2000)
			l.Events = []Event{{Of: "w1", Holds: true, Start: at(-3500), End: at(-2100)}}
		}, I6, "after its deadline"},
		{"called inside a ban", func(l *Ledgers) {
			l.Events = []Event{{Kind: "429", Start: at(1000), End: at(3000), Ban: &Ban{Provider: "apns", Drain: 500 * time.Millisecond}}}
		}, I6, "b was sent by \"w1\" 900ms after apns said stop"},
		{"what was in flight still arrives", func(l *Ledgers) {
			l.Events = []Event{{Kind: "429", Start: at(1500), End: at(3000), Ban: &Ban{Provider: "apns", Drain: 500 * time.Millisecond}}}
		}, "", ""},
		{"called for an app inside its ban", func(l *Ledgers) {
			l.Producer.Entries[1].App = "shop"
			l.Events = []Event{{Kind: "ban", Start: at(1000), End: at(3000), Ban: &Ban{Provider: "apns", App: "shop"}}}
		}, I6, "b was sent by \"w1\" 900ms after apns said stop"},
		{"another app's ban", func(l *Ledgers) {
			l.Producer.Entries[1].App = "news"
			l.Events = []Event{{Kind: "ban", Start: at(1000), End: at(3000), Ban: &Ban{Provider: "apns", App: "shop"}}}
		}, "", ""},
		{"another provider's ban", func(l *Ledgers) {
			l.Events = []Event{{Kind: "429", Start: at(1000), End: at(3000), Ban: &Ban{Provider: "fcm", Drain: 0}}}
		}, "", ""},

		{"a partition stood still", func(l *Ledgers) { l.Limits.Standstill = 700 * time.Millisecond }, I7, "stood still at 2 of 5 for 800ms"},
		{"its store was away", func(l *Ledgers) {
			l.Limits.Standstill = 650 * time.Millisecond
			l.Events = []Event{{Kind: "redis", Start: at(300), End: at(400), Stalls: true}}
			l.Limits.Heal = 100 * time.Millisecond
			l.Declared = Seal([]Declared{says("w1", "filter", 300, 500)})
		}, "", ""},
		{"its store was away for a shorter time", func(l *Ledgers) {
			l.Limits.Standstill = 300 * time.Millisecond
			l.Events = []Event{{Kind: "redis", Start: at(300), End: at(400), Stalls: true}}
		}, I7, "stood still"},
		{"not all is committed in the end", func(l *Ledgers) {
			sampled(l, 1000, func(s *Sample) { s.Committed = 4 })
		}, I7, "is committed to 4 of 5 in the end"},
		{"nor in a retry topic", func(l *Ledgers) {
			l.Offsets.Entries[len(l.Offsets.Entries)-1].End = 2
		}, I7, "push.main.retry.30s/0 is committed to 1 of 2"},
		{"back too late", func(l *Ledgers) {
			l.Events, l.Limits.Back = []Event{{Kind: "cassandra", Start: at(210), End: at(300), ComesBack: true}}, 500*time.Millisecond
		}, I7, "the first commit took 700ms"},
		{"back in time", func(l *Ledgers) {
			l.Events = []Event{{Kind: "cassandra", Start: at(210), End: at(300), ComesBack: true}}
		}, "", ""},

		{"a canary is in a log", func(l *Ledgers) { l.Leaks = Seal([]Leak{{"the log of w1"}}) }, I8, "the log of w1"},

		{"goroutines leak", func(l *Ledgers) { l.Processes.Entries[1].Goroutines = 400 }, I9, "400 goroutines"},
		{"descriptors leak", func(l *Ledgers) { l.Processes.Entries[1].FDs = 90 }, I9, "90 descriptors"},
		{"memory leaks", func(l *Ledgers) { l.Processes.Entries[1].Bytes = 1 << 30 }, I9, "bytes of memory"},

		{"a backlog is left where it is", func(l *Ledgers) { backlog(l, 60<<20, 200<<20) }, "", ""},
		{"a backlog is held in memory", func(l *Ledgers) { backlog(l, 200<<20, 200<<20) }, I9, "bytes of memory"},
		{"half of it is", func(l *Ledgers) { backlog(l, 101<<20, 200<<20) }, I9, "bytes of memory"},
		{"too small a backlog to tell", func(l *Ledgers) { backlog(l, 199<<20, 199<<20) }, "", ""},
		{"and a leak all the same", func(l *Ledgers) { backlog(l, 257<<20, 199<<20) }, I9, "bytes of memory"},

		{"tried too often", func(l *Ledgers) {
			for range 3 {
				l.Sends.Entries = append(l.Sends.Entries, refuse("b", "3", 500))
			}
		}, I10, "tried 5 times for device 3, at most 4"},
		{"tried once more because of a kill", func(l *Ledgers) {
			for range 3 {
				l.Sends.Entries = append(l.Sends.Entries, refuse("b", "3", 500))
			}
			l.Events = []Event{kill(600, 1)}
		}, "", ""},
		{"more was exposed than the windows hold", func(l *Ledgers) {
			l.Events = []Event{kill(300, 1, Pair{"a", "1"}, Pair{"a", "2"})}
		}, I4, "2 pushes were accepted without a durable status; the windows hold 1"},
		{"a worker died by itself", func(l *Ledgers) {
			l.Exits = []Exit{{Process: "w1", At: at(100), Status: 2, Why: "panic"}}
		}, Exits, "w1 ended by itself"},
		{"a worker ended badly", func(l *Ledgers) { l.Exits = []Exit{{Process: "w1", Asked: true, Status: 1}} }, Exits, "status 1"},
		{"a worker took too long", func(l *Ledgers) {
			l.Exits = []Exit{{Process: "w1", Asked: true, Took: 2 * time.Second, Budget: time.Second}}
		}, Exits, "took 2s"},
		{"a worker ended well", func(l *Ledgers) {
			l.Exits = []Exit{{Process: "w1", Asked: true, Took: time.Second, Budget: time.Second}}
		}, "", ""},
		{"sending went on while the store was away", func(l *Ledgers) {
			l.Events = []Event{{Kind: "down", Target: "cassandra", Start: at(50), End: at(115), Pushes: 1}}
		}, Pressure, "2 pushes were accepted while cassandra was away"},
		{"what was sent before it was away counts for nothing", func(l *Ledgers) {
			l.Events = []Event{{Kind: "down", Target: "cassandra", Start: at(50), Away: at(114), End: at(115), Pushes: 1}}
		}, "", ""},
		{"the other provider had its share", func(l *Ledgers) {
			l.Events = []Event{{Kind: "down", Target: "fcm", Start: at(105), End: at(5105), Unharmed: "apns"}}
		}, "", ""},
		{"nine tenths of its share", func(l *Ledgers) { shared(l, 100, 90) }, "", ""},
		{"less than that", func(l *Ledgers) { shared(l, 100, 89) }, Isolation, "apns accepted 100 in the 6s before the down of fcm, and 89 while it lasted"},
		{"the other app had nine tenths of its share", func(l *Ledgers) { shared(l, 100, 90); ofApp(l, "news") }, "", ""},
		{"the other app had less than that", func(l *Ledgers) { shared(l, 100, 89); ofApp(l, "news") }, Isolation, "news accepted 100 in the 6s before"},
		{"what it had was the stopped app's", func(l *Ledgers) {
			shared(l, 100, 90)
			ofApp(l, "news")
			l.Producer.Entries[0].App = "shop" // two of what came meanwhile
		}, Isolation, "news accepted 100 in the 6s before"},
		{"less than before, when what an earlier fault had held came on top", func(l *Ledgers) { mostlyEarlier(l, 100, 60) }, "", ""},
		{"less than its share, too", func(l *Ledgers) { mostlyEarlier(l, 100, 50) }, Isolation, "50 while it lasted, of a share of 60"},
		{"the other provider was harmed", func(l *Ledgers) {
			l.Events = []Event{{Kind: "down", Target: "fcm", Start: at(2000), End: at(8000), Unharmed: "apns"}}
			for i := range l.Producer.Entries {
				l.Producer.Entries[i].At = at(3000)
			}
		}, Isolation, "apns accepted 3 in the 6s before"},
		{"an attempt beyond the last", func(l *Ledgers) { l.Letters.Entries[1].Attempt = 4 }, I10, "attempt 4"},
	} {
		l := clean()
		tt.change(l)
		r := Check(l)
		err := r.Err()
		switch {
		case tt.broken == "" && err != nil:
			t.Errorf("%s: %v", tt.why, err)
		case tt.broken != "" && r.Violations[tt.broken] == 0:
			t.Errorf("%s: %s is not reported, but %v", tt.why, tt.broken, err)
		case tt.broken != "" && !strings.Contains(strings.Join(r.Findings[tt.broken], "\n"), tt.says):
			t.Errorf("%s: reported as %q, want something with %q", tt.why, r.Findings[tt.broken], tt.says)
		}
	}
}

// Nothing at all is not clean.
func TestNothingIsNotClean(t *testing.T) {
	if r := Check(&Ledgers{}); r.Violations[Incomplete] < 6 {
		t.Errorf("an empty run has the findings %v", r.Findings)
	}
	r := Check(&Ledgers{Producer: Seal[Produced](nil), Sends: Seal[Send](nil), Status: Seal[Row](nil), Letters: Seal[Letter](nil),
		Offsets: Seal[Sample](nil), Processes: Seal[Footprint](nil), Leaks: Seal[Leak](nil)})
	if r.Violations[Incomplete] == 0 {
		t.Error("a run of which nothing was seen is clean")
	}
}

// Where one of 20,000 devices is missed, a finding does not tell of all others.
func TestAStoryHasAnEnd(t *testing.T) {
	c := &checker{Ledgers: &Ledgers{}, rows: map[string]history{"n": {}}}
	for i := range told + 50 {
		device := fmt.Sprintf("device %03d", i)
		c.rows["n"][device] = []Row{row("n", device, 0, Delivered, 0)}
	}
	if s := c.story("n"); strings.Count(s, "[row ") != told || !strings.Contains(s, "[and 50 more]") {
		t.Errorf("%d rows, ends %s", strings.Count(s, "[row "), s[len(s)-40:])
	}
}
