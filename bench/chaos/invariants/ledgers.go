// Package invariants decides whether a run of the fleet kept its promises: from
// what independent observers wrote down, and from nothing that the worker
// says of itself. It is plain data and one pure function, and imports nothing
// of ours; how a status is derived from rows is written here a second time.
//
// To use it, fill Ledgers and call Check:
//
//   - Producer: one Produced for each record that Kafka acknowledged, with its
//     place. The places of a partition must be all of them from 0 to the end
//     that the last Sample has, so a record that nobody wrote down is noticed.
//   - Sends: one Send for each push that the simulator decided about.
//     sim.Options.Watch is the source; what it takes back (Undone) stays in
//     the ledger as such.
//   - Status: every row of the status table, read when all is done.
//   - Letters: every record of the retry, hold and dead-letter topics.
//   - Offsets: Samples of the committed offset of every partition, taken at
//     least every Limits.SampleGap from the first record to the end, with the
//     status of what was passed read at once (Sample.Looked). While the store
//     is away nobody can read; when it is back the fleet must be kept from it
//     (Shut) until that is made up for.
//   - Processes and Leaks, or I9 and I8 in Limits.Unobserved.
//   - Exposures: what each worker had accepted without a row, looked at all the
//     time, or Bound in Limits.Unobserved.
//   - Owners and Declared: whose each partition was, and what its owner said of
//     why it stands still, or Reasons in Limits.Unobserved.
//   - Calls, Fanouts and Changes, where Limits.Gateways says that there are
//     gateways: each request and its answer, and what receipts say in the end. The
//     producer's ledger is then what somebody has read from the lane, and names for
//     each record the call that it is of.
//   - Events: what was done to the fleet, with how many pushes each may make
//     the fleet repeat. Without events nothing may be repeated.
//
// Each observer seals its ledger once it knows that it has missed nothing. An
// unsealed ledger is a finding: no run is clean because somebody did not look.
package invariants

import (
	"strings"
	"time"
)

// Ledgers are all that was seen of a run.
type Ledgers struct {
	Producer  Ledger[Produced]
	Marks     map[Partition][]int64 // offsets of the producer's partitions that no record has: the marks of transactions
	Sends     Ledger[Send]
	Status    Ledger[Row]
	Letters   Ledger[Letter]
	Offsets   Ledger[Sample]
	Processes Ledger[Footprint]
	Leaks     Ledger[Leak]
	Exposures Ledger[Exposure]
	Owners    Ledger[Owner]    // of the lane's own partitions: each change
	Declared  Ledger[Declared] // what workers say of those
	Calls     Ledger[Call]     // through gateways, where Limits.Gateways is set, as the two below
	Fanouts   Ledger[Fanout]
	Changes   Ledger[Change] // of the topic's subscribers
	Exits     []Exit
	Events    []Event
	Shut      []Span // when nobody of the fleet could reach the status store
	Limits    Limits
}

// Span is a time from one moment to another.
type Span struct{ From, To time.Time }

// Ledger is the account of one observer.
type Ledger[E any] struct {
	Entries []E
	// Sealed says that the observer has seen everything there was. Missing says
	// why not, where it knows.
	Sealed  bool
	Missing string
}

// Seal is a complete ledger of these entries.
func Seal[E any](entries []E) Ledger[E] { return Ledger[E]{Entries: entries, Sealed: true} }

// Partition is one of a topic.
type Partition struct {
	Topic string
	ID    int32
}

// Pair is one notification on one device: what may be accepted once.
type Pair struct{ ID, Device string }

// Produced is one record of a lane's topic, as it was acknowledged.
type Produced struct {
	ID        string // what its status rows stand under, also where the record has no usable id
	Partition Partition
	Offset    int64
	At        time.Time // of its timestamp
	App       string    // that it is for; empty = nobody asks
	Copy      bool      // a further record of an id: it has no outcome of its own
	Unsent    bool      // must never reach a provider: opted out, unusable, expired
	Deadline  time.Time // it may not be sent after this; zero = no deadline
	Outcomes  []Outcome // that it may end with; empty = any final one
	Devices   []string  // hashes of devices that must each end; empty = not known
	Dead      []string  // of devices with dead tokens: it may be sent to these as well, and no others
	Kind      string    // what is special about it, in words; empty = nothing
	Reason    string    // that a row must have where it ends with the first of Outcomes; empty = any
	Textless  bool      // has nothing to show
	Call      string    // the Call or Fanout that it is of; empty = nobody asks
	User      string    // whom it is for, where it is of a Fanout
}

// Send is one push as the simulator saw it.
type Send struct {
	Pair
	At         time.Time
	Provider   string
	Worker     string // who sent it; empty = not known
	Reply      string
	Accepted   bool
	Unheard    bool // its answer did not get out
	Undone     bool // the provider says it never processed it: no acceptance and no attempt
	CollapseID string
}

// Row is one row of the status table.
type Row struct {
	Pair
	Step   int
	State  State
	At     time.Time // as the row says; see Limits.StoreTimes
	Reason string
}

// Kind is the kind of topic that a Letter is in.
type Kind uint8

// The topics beside a lane's own.
const (
	Dead Kind = iota + 1
	Retry
	Deferral
	Hold
)

// KindOf is that of a topic beside this lane's; 0 for all others.
func KindOf(lane, topic string) Kind {
	rest, ok := strings.CutPrefix(topic, lane)
	switch {
	case !ok:
		return 0
	case rest == ".dlq":
		return Dead
	case strings.HasPrefix(rest, ".retry."):
		return Retry
	case strings.HasPrefix(rest, ".defer."):
		return Deferral
	case strings.HasPrefix(rest, ".hold."):
		return Hold
	}
	return 0
}

// Letter is one record of a retry, deferral, hold or dead-letter topic.
type Letter struct {
	Kind    Kind
	ID      string // as its Produced has it
	Attempt int    // pf-attempt
	Reason  string
}

// Sample is what was committed of a partition at a moment.
type Sample struct {
	At        time.Time // when the answer was there
	Partition Partition
	Committed int64 // the next offset; 0 when nothing is committed
	End       int64 // of the log, read after Committed; -1 = not read
	Waits     bool  // a retry, deferral or hold topic, whose records wait for their time
	// Looked is set where the status of every record below Committed that had not
	// been read by a sample before was read, and says when that was done; Unsettled
	// are their offsets that had no durable outcome. What is passed while the
	// status cannot be read stays to be read by a later sample: a row that was
	// written meanwhile excuses it, so either that took less than Limits.Look, or
	// nobody could write (Ledgers.Shut).
	Looked    time.Time
	Unsettled []int64
}

// Footprint is what a process took of its machine while it had nothing to do.
type Footprint struct {
	Process    string
	At         time.Time
	Goroutines int
	FDs        int
	Bytes      int64 // resident
	// Backlog is how many bytes of records have come for it since the footprint
	// before, which it could read and must leave where they are: a store is away.
	Backlog int64
}

// Leak is a canary found where it must not be; Where says it without the
// canary itself. No entries in a sealed ledger means that all was searched.
type Leak struct{ Where string }

// Exit is the end of a process.
type Exit struct {
	Process string
	At      time.Time
	Asked   bool // it was told to end, other than by SIGKILL, which is not written down
	Status  int
	Took    time.Duration // since it was told
	Budget  time.Duration // that it may take
	Why     string        // what its log says of it, where it was not asked
}

// Event is something that was done to the fleet.
type Event struct {
	Kind   string // "kill", "pause", "redis wiped" …
	Target string
	Start  time.Time
	End    time.Time // when the fault was taken away; Start for one without length
	// Repeats is the most pushes that it may make the fleet send again. Exposed,
	// where it is not nil, are the only ones: those accepted without a durable
	// status at that moment.
	Repeats int
	Exposed map[Pair]bool
	// Of names the worker whose sends it concerns; empty = everybody's. Orderly
	// is set for a stop that must leave nothing to be repeated. Unrecordable says
	// that rows could not be written while it lasted.
	Of                    string
	Orderly, Unrecordable bool
	// Holds says that what its worker sent before End may have been held on its way
	// to the provider until then.
	Holds bool
	// Rewinds says that offsets were set back by hand: committed ones may be
	// lower after it than before.
	Rewinds bool
	// Loads says that a broker comes back with it, which may answer once with offsets
	// that were committed long before: see checker.stale.
	Loads bool
	// Unknown is the most notifications that it may leave UNKNOWN in a lane that
	// sends at most once: what was committed and not answered.
	Unknown int
	// Stalls says that partitions may stand still from Start to End and for
	// Limits.Heal after it. ComesBack says that commits must move again within
	// Limits.Back of End.
	Stalls, ComesBack bool
	// Mute says that from Start to End, and for Limits.Heal after it, the worker
	// that it is of can neither commit nor say why not; without one, nobody can.
	Mute bool
	// Bars says that who starts meanwhile waits, and takes no partition before: a
	// store is away that it needs.
	Bars bool
	// Ban is set where the provider said stop from Start to End.
	Ban *Ban
	// Unharmed names a provider that had nothing to do with it: while it lasts,
	// at least nine tenths as many pushes a second are accepted there as before,
	// or as its share of what is produced then. UnharmedApp names an app in place
	// of a provider.
	Unharmed, UnharmedApp string
	// Pushes, above 0, is the most that may be accepted from Away, or from Start
	// if that is later, to End: a store is away, so what is not sent stays unsent.
	Pushes int
	Away   time.Time
	// Stands says that the process that it is of could do nothing from Start to End.
	// Serves says that gateways need nothing that was away to send.
	Stands, Serves bool
	// Unheard is how many calls a gateway that was killed had open whose records Kafka had.
	Unheard int
	// Again is the most records of fan-outs that it may make be produced again.
	Again int
	// Quota is set where the provider takes only so much while the event lasts, which
	// is less than what waits for it.
	Quota *Quota
	// Recovery is set where the provider was down, and came back with little room.
	Recovery *Recovery
}

// Recovery is how a provider came back.
type Recovery struct {
	Provider string
	Down     time.Duration // from the event's start
	Falls    int           // how often it was asked for so much that it was down again
}

// Quota is what a provider takes: Count calls in each Per, of all workers together.
type Quota struct {
	Provider string
	Count    int
	Per      time.Duration
	Settle   time.Duration // from the event's start, when the fleet may still look for it
}

// Ban says who may not be called while an Event lasts, for any app or only for
// one.
type Ban struct {
	Provider string
	Drain    time.Duration // of the ban's start, when what is in flight still arrives
	App      string
}

// Mode is a lane's delivery mode, as configured.
type Mode string

// The delivery modes.
const (
	AtLeastOnce     Mode = "at_least_once"
	EffectivelyOnce Mode = "effectively_once"
	AtMostOnce      Mode = "at_most_once"
)

// Limits are what a run is held against.
type Limits struct {
	Mode       Mode          // empty = AtLeastOnce
	Retries    int           // attempts after the first
	Standstill time.Duration // a partition with lag may not stand still for longer; 0 = 30 s
	Heal       time.Duration // after an event that stalls
	Back       time.Duration // see Event.ComesBack; 0 = not checked
	Grace      time.Duration // how late something in flight may still arrive; 0 = 1 s
	SampleGap  time.Duration // the longest time without a sample of a partition; 0 = 2 s
	Look       time.Duration // the longest from a sample to the reading of what it has passed; 0 = 5 s
	Goroutines int           // growth of an idle process that is no leak; 0 = 100
	FDs        int           // 0 = 50
	Bytes      int64         // 0 = 256 MiB
	// Held is the most bytes that a process may hold of records and what is to be
	// sent of them, as its configuration bounds it; 0 = no bound. With a backlog
	// of twice that and more no process may grow by more: one that reads its
	// backlog into memory does. With less of a backlog nothing can be told, and
	// Bytes holds.
	Held int64
	// StoreTimes says that the times in the rows are the store's own, of when each
	// became durable, as in a store that is part of the test. Only then they judge
	// I3, where no sample has looked. Cassandra has none such: At is the writer's,
	// and so is WRITETIME, which the worker sends along.
	StoreTimes bool
	// Unobserved are invariants that this run has no observer for: I8, I9. They
	// are named in the report.
	Unobserved []Invariant
	Gateways   int           // above 0 there are gateways, and ledgers of what they were asked
	Answer     time.Duration // the longest that one takes to answer; 0 = 8 s
	// Windows is what a worker's windows hold by the configuration: the bound
	// that it must print; 0 = not compared.
	Windows int
}

func (l Limits) withDefaults() Limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&l.Standstill, 30*time.Second)
	set(&l.Grace, time.Second)
	set(&l.SampleGap, 2*time.Second)
	set(&l.Look, 5*time.Second)
	set(&l.Answer, 8*time.Second)
	if l.Mode == "" {
		l.Mode = AtLeastOnce
	}
	if l.Goroutines == 0 {
		l.Goroutines = 100
	}
	if l.FDs == 0 {
		l.FDs = 50
	}
	if l.Bytes == 0 {
		l.Bytes = 256 << 20
	}
	return l
}
