package invariants

import (
	"slices"
	"sort"
	"time"
)

// Owner says whose a partition has been since a moment, as the group's
// coordinator has it.
type Owner struct {
	At        time.Time
	Partition Partition
	Worker    string // empty = nobody's
}

// Declared is what a worker says of itself: that one of its partitions stands
// still for a reason.
type Declared struct {
	At        time.Time // when it said so
	Worker    string
	Partition Partition
	Reason    string
	Since     time.Time // that it does, as it says
}

// queues are reasons that a worker has, and that are none here: what waits in
// its own lines is to move on.
var queues = []string{"back_pressure", "others_back_pressure", "previous_owner", "not_due"}

// owned are the owners of one partition, in order of time.
type owned []Owner

// at is whose the partition was at a moment; empty also before anybody asked.
func (o owned) at(t time.Time) string {
	i := sort.Search(len(o), func(i int) bool { return o[i].At.After(t) })
	if i == 0 {
		return ""
	}
	return o[i-1].Worker
}

// during reports whether it was a worker's at some moment of a time.
func (o owned) during(worker string, from, to time.Time) bool {
	return o.at(from) == worker || slices.ContainsFunc(o, func(e Owner) bool {
		return e.Worker == worker && e.At.After(from) && !e.At.After(to)
	})
}

// nobodys are the times at which it was nobody's, up to a moment. What was
// before anybody asked counts.
func (o owned) nobodys(to time.Time) (spans []Span) {
	from, whose := time.Time{}, ""
	for _, e := range o {
		switch {
		case whose == "" && e.Worker != "":
			spans = append(spans, Span{from, e.At})
		case whose != "" && e.Worker == "":
			from = e.At
		}
		whose = e.Worker
	}
	if whose == "" {
		spans = append(spans, Span{from, to})
	}
	return spans
}

// reasons is how much of a time a partition may have stood still in: because its
// own owner says so, or because a fault has kept that one from saying anything.
// What is done to others is no reason. word is
// what only the owner's word explains.
func (c *checker) reasons(p Partition, from, to time.Time) (all, word time.Duration) {
	owners := c.owners[p]
	var spans, said []Span
	for i := range c.Events {
		e := &c.Events[i]
		healed := e.End.Add(c.limits.Heal)
		switch {
		case e.Mute && (e.Of == "" || owners.during(e.Of, e.Start, e.End)):
			spans = append(spans, Span{e.Start, healed})
		case e.Bars:
			// Who starts waits for the stores, and takes no partition before.
			for _, s := range owners.nobodys(to) {
				if from, to := latest(s.From, e.Start), earliest(s.To, healed); to.After(from) {
					spans = append(spans, Span{from, to})
				}
			}
		}
	}
	for i := range c.declared[p] {
		d := &c.declared[p][i]
		if !slices.Contains(queues, d.Reason) && owners.at(d.At) == d.Worker {
			said = append(said, Span{d.Since, d.At})
		}
	}
	all = cover(append(slices.Clone(spans), said...), from, to)
	return all, all - cover(spans, from, to)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// arrangeReasons sorts the two ledgers by partition.
func (c *checker) arrangeReasons() {
	c.owners, c.declared = make(map[Partition]owned), make(map[Partition][]Declared)
	for _, o := range c.Owners.Entries {
		c.owners[o.Partition] = append(c.owners[o.Partition], o)
	}
	for _, list := range c.owners {
		slices.SortStableFunc(list, func(a, b Owner) int { return a.At.Compare(b.At) })
	}
	for _, d := range c.Declared.Entries {
		c.declared[d.Partition] = append(c.declared[d.Partition], d)
	}
}
