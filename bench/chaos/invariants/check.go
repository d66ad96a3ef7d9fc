package invariants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Invariant is the short name of a promise.
type Invariant string

// The promises. Incomplete is none of them: it says that a ledger is not
// whole, so that nothing can be said.
const (
	Incomplete Invariant = "incomplete"
	I1         Invariant = "I1"  // every record has exactly one final outcome, the one that was meant
	I2         Invariant = "I2"  // DELIVERED where the provider accepted, and only there
	I3         Invariant = "I3"  // no offset passes a record without a durable outcome
	I4         Invariant = "I4"  // what is accepted twice is within the bounds of the events, under one collapse id
	I5         Invariant = "I5"  // committed offsets never decrease
	I6         Invariant = "I6"  // nothing is sent past its deadline, to who opted out, to a device that it is not for, or inside a ban
	I7         Invariant = "I7"  // no partition with lag stands still, and in the end there is no lag
	I8         Invariant = "I8"  // canaries stay on the wire
	I9         Invariant = "I9"  // goroutines, descriptors and memory return to where they were
	I10        Invariant = "I10" // no more attempts than configured
	Exits      Invariant = "exits"
	Isolation  Invariant = "isolation"
	Pressure   Invariant = "pressure"
	Stops      Invariant = "stops"
	Bound      Invariant = "bound"
	Memory     Invariant = "memory"
	Reasons    Invariant = "reasons" // see checker.reasons
	Quotas     Invariant = "quotas"
	Recoveries Invariant = "recoveries"
	Durable    Invariant = "durable"
	Refused    Invariant = "refused"
	Receipts   Invariant = "receipts"
	Answers    Invariant = "answers"
	Fanned     Invariant = "fan-outs"
)

// meanings are the promises in words, for reports.
var meanings = map[Invariant]string{
	Incomplete: "a ledger is not whole",
	I1:         "every record has exactly one final outcome, the one that was meant",
	I2:         "DELIVERED where the provider accepted, and only there",
	I3:         "no offset passes a record without a durable outcome",
	I4:         "pushes are repeated only by faults, within their bounds",
	I5:         "committed offsets never decrease",
	I6:         "nothing is sent past its deadline, to who opted out, to a device that it is not for, or inside a ban",
	I7:         "no partition stands still, and all lag is gone in the end",
	I8:         "no token or text outside the wire",
	I9:         "goroutines, descriptors and memory return to where they were",
	I10:        "no more attempts than configured",
	Exits:      "processes end only when told to, with status 0 and in time",
	Isolation:  "one provider's fault leaves the other alone",
	Stops:      "a worker that ends in order leaves nothing to be sent again",
	Bound:      "at every look, no more is accepted without a row than push_duplicate_bound says",
	Memory:     "no worker takes more memory than it printed at its start",
	Reasons:    "no partition stands still but for a reason that its own worker declares, or that keeps it from that",
	Quotas:     "the fleet keeps to a quota that it was never told, and uses it",
	Recoveries: "a provider that comes back slowly is not pushed over again",
	Durable:    "what a gateway answered 202 is in its lane, and a lane has no more than was sent",
	Refused:    "what a gateway refused is not pushed",
	Receipts:   "a message has one id however often it is sent, and its receipt says what became of it",
	Answers:    "gateways answer in time whatever is away, and send while only what they do not need is",
	Fanned:     "who was subscribed all the time gets a message to the topic once, who was not gets none, and its receipt counts them",
	Pressure:   "while a store is away, no more is sent than the windows hold",
}

// Meaning is the promise in words.
func (i Invariant) Meaning() string { return meanings[i] }

// All are the promises in order, with Incomplete first.
func All() []Invariant {
	return []Invariant{Incomplete, I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, Exits, Isolation, Pressure, Stops, Bound, Memory, Reasons, Quotas, Recoveries, Durable, Refused, Receipts, Answers, Fanned}
}

// kept is how many findings of one promise are described; all are counted.
const kept = 10

// Report is what Check found.
type Report struct {
	Records       int // produced
	Notifications int // without further copies
	Lost          int // of them, without a final outcome
	Pushes        int // accepted
	Repeated      int // accepted beyond the first of their device
	Bound         int // the most that the events allow to be repeated
	Letters       map[Kind]int
	Outcomes      map[Outcome]int
	Events        []EventReport // in the order of Ledgers.Events
	Worst         Worst
	Memory        []Growth // of processes that had a backlog large enough to tell
	Calls         CallReport
	Stale         int // samples of offsets that a broker told when it had just come back, and that were old
	Unobserved    []Invariant
	Violations    map[Invariant]int      // how often each promise was broken
	Findings      map[Invariant][]string // the first of them, in words
}

// EventReport is what an event brought about.
type EventReport struct {
	Repeated int           // of Event.Repeats
	Unknown  int           // of Event.Unknown
	Pushes   int           // accepted while it lasted
	Refused  int           // of Event.Quota
	Back     time.Duration // from its end to the next commit; 0 = nothing was left to commit
}

// Growth is how a process has grown while a backlog waited for it.
type Growth struct {
	Process                 string
	Bytes, Allowed, Backlog int64
}

// Worst are the longest times of a run.
type Worst struct {
	Standstill time.Duration // of a partition with lag, where no event excuses it
	Excused    time.Duration // where one does
	Declared   time.Duration // of that, what only the word of the partition's worker explains
	Back       time.Duration // from the end of an event to the next commit
	Delivery   time.Duration // from a record to the provider's acceptance
	Sample     time.Duration // between two samples of a partition
	Look       time.Duration // from a sample to the reading of what it has passed, while rows could be written
	Exposed    int           // pushes of one worker that were accepted without a row
	Memory     int64         // bytes of one worker
	Stop       time.Duration // from when a worker was told to end until it had
	Answer     time.Duration // of a gateway that was not stopped meanwhile
}

// Clean reports whether every promise was kept.
func (r *Report) Clean() bool { return len(r.Violations) == 0 }

// Err is nil for a clean run, else names what was broken.
func (r *Report) Err() error {
	if r.Clean() {
		return nil
	}
	var b strings.Builder
	for _, i := range All() {
		if n := r.Violations[i]; n > 0 {
			fmt.Fprintf(&b, "\n%s (%s), %d times:\n  %s", i, i.Meaning(), n, strings.Join(r.Findings[i], "\n  "))
		}
	}
	return fmt.Errorf("promises are broken: %s", b.String())
}

func (r *Report) find(i Invariant, format string, args ...any) {
	if r.Violations[i]++; len(r.Findings[i]) < kept {
		r.Findings[i] = append(r.Findings[i], fmt.Sprintf(format, args...))
	}
}

// Check holds the ledgers against the promises. It is a pure function, and
// changes nothing in l.
func Check(l *Ledgers) *Report {
	c := &checker{Ledgers: l, limits: l.Limits.withDefaults()}
	c.r = &Report{Letters: map[Kind]int{}, Outcomes: map[Outcome]int{}, Events: make([]EventReport, len(l.Events)),
		Unobserved: slices.Clone(l.Limits.Unobserved), Violations: map[Invariant]int{}, Findings: map[Invariant][]string{}}
	c.arrange()
	c.complete()
	c.outcomes()
	c.accepted()
	c.repeats()
	c.offsets()
	c.sends()
	c.footprints()
	c.exits()
	c.during()
	c.quotas()
	c.recoveries()
	c.stops()
	c.bounds()
	c.gateways()
	c.fanouts()
	return c.r
}

// checker is one run of Check.
type checker struct {
	*Ledgers
	limits Limits
	r      *Report

	records map[string]*Produced // by id, without copies
	rows    map[string]history   // by id
	pushes  map[Pair][]Send      // in order of time
	devices map[string][]string  // that an id was pushed to
	letters map[string][]Letter  // by id
	samples map[Partition][]Sample

	owners   map[Partition]owned
	declared map[Partition][]Declared
}

func (c *checker) arrange() {
	c.records, c.rows = make(map[string]*Produced), make(map[string]history)
	c.devices, c.letters = make(map[string][]string), make(map[string][]Letter)
	c.pushes, c.samples = make(map[Pair][]Send), make(map[Partition][]Sample)
	for i := range c.Producer.Entries {
		p := &c.Producer.Entries[i]
		c.r.Records++
		if p.Copy {
			continue
		}
		c.r.Notifications++
		if c.records[p.ID] != nil {
			c.r.find(Incomplete, "the producer's ledger has %s twice, and neither is a copy", p.ID)
		}
		c.records[p.ID] = p
	}
	for _, row := range c.Status.Entries {
		h := c.rows[row.ID]
		if h == nil {
			h = history{}
			c.rows[row.ID] = h
		}
		h[row.Device] = append(h[row.Device], row)
	}
	for _, s := range c.Sends.Entries {
		if c.pushes[s.Pair] == nil {
			c.devices[s.ID] = append(c.devices[s.ID], s.Device)
		}
		c.pushes[s.Pair] = append(c.pushes[s.Pair], s)
	}
	for _, list := range c.pushes {
		slices.SortStableFunc(list, func(a, b Send) int { return a.At.Compare(b.At) })
	}
	for _, s := range c.Offsets.Entries {
		c.samples[s.Partition] = append(c.samples[s.Partition], s)
	}
	for _, list := range c.samples {
		slices.SortStableFunc(list, func(a, b Sample) int { return a.At.Compare(b.At) })
	}
	c.arrangeReasons()
	for _, letter := range c.Letters.Entries {
		c.r.Letters[letter.Kind]++
		c.letters[letter.ID] = append(c.letters[letter.ID], letter)
	}
}

// complete looks for holes in the ledgers.
func (c *checker) complete() {
	sealed := func(name string, is bool, missing string, entries, least int) {
		switch {
		case !is && missing == "":
			c.r.find(Incomplete, "the ledger of %s is not sealed", name)
		case !is:
			c.r.find(Incomplete, "the ledger of %s is not sealed: %s", name, missing)
		case entries < least:
			c.r.find(Incomplete, "the ledger of %s is empty", name)
		}
	}
	sealed("the producer", c.Producer.Sealed, c.Producer.Missing, len(c.Producer.Entries), 1)
	sealed("the simulator", c.Sends.Sealed, c.Sends.Missing, len(c.Sends.Entries), 0)
	sealed("status rows", c.Status.Sealed, c.Status.Missing, len(c.Status.Entries), 1)
	sealed("retry, hold and dead-letter topics", c.Letters.Sealed, c.Letters.Missing, len(c.Letters.Entries), 0)
	sealed("committed offsets", c.Offsets.Sealed, c.Offsets.Missing, len(c.Offsets.Entries), 1)
	if !c.unobserved(I9) {
		sealed("processes", c.Processes.Sealed, c.Processes.Missing, len(c.Processes.Entries), 1)
	}
	if !c.unobserved(I8) {
		sealed("canaries", c.Leaks.Sealed, c.Leaks.Missing, len(c.Leaks.Entries), 0)
		for _, leak := range c.Leaks.Entries {
			c.r.find(I8, "found in %s", leak.Where)
		}
	}
	if !c.unobserved(Reasons) {
		sealed("owners", c.Owners.Sealed, c.Owners.Missing, len(c.Owners.Entries), 1)
		sealed("declared reasons", c.Declared.Sealed, c.Declared.Missing, len(c.Declared.Entries), 0)
	}
	c.everyPlace()
}

func (c *checker) unobserved(i Invariant) bool { return slices.Contains(c.Limits.Unobserved, i) }

// everyPlace: the producer's ledger has every offset of its partitions once, up
// to the end of the log, but for marks.
func (c *checker) everyPlace() {
	places := map[Partition][]int64{}
	for p, marks := range c.Marks {
		places[p] = slices.Clone(marks)
	}
	for _, p := range c.Producer.Entries {
		places[p.Partition] = append(places[p.Partition], p.Offset)
	}
	for _, p := range slices.SortedFunc(maps.Keys(c.samples), comparePartitions) {
		list := c.samples[p]
		if last := list[len(list)-1]; places[p] == nil && !last.Waits && last.End > 0 {
			c.r.find(Incomplete, "%s/%d has %d records, and the producer's ledger none of them", p.Topic, p.ID, last.End)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(places), comparePartitions) {
		offsets := places[p]
		slices.Sort(offsets)
		for i, o := range offsets {
			if o != int64(i) {
				c.r.find(Incomplete, "%s/%d: the producer's ledger goes on with offset %d where %d should be", p.Topic, p.ID, o, i)
				break
			}
		}
		list := c.samples[p]
		if len(list) == 0 {
			c.r.find(Incomplete, "no offset of %s/%d was sampled", p.Topic, p.ID)
			continue
		}
		if end := list[len(list)-1].End; end != int64(len(offsets)) {
			c.r.find(Incomplete, "%s/%d ends at %d, the producer's ledger of it at %d", p.Topic, p.ID, end, len(offsets))
		}
	}
}

func comparePartitions(a, b Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), int(a.ID)-int(b.ID))
}
