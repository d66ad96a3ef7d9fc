package invariants

import (
	"maps"
	"slices"
	"time"
)

// Call is one message that somebody sent through a gateway, as often as it took until it
// was answered for good, and perhaps once more.
type Call struct {
	Name    string // that its records carry; see Produced.Call
	ID      string // that its sender gave it; empty = the gateway derives one
	Invalid string // what makes it one that no gateway may take; empty = it is good
	Sent    []Attempt
	Told    *Told // what its receipt says when all is done; nil = there is none
}

// Attempt is one request with the message, or the line of a batch.
type Attempt struct {
	Gateway  string
	From, To time.Time // To is when the answer was there, or the connection had ended
	Status   int       // 0 = none came
	ID       string    // of an answer with 202
	Why      string    // the code of a problem
	// Replayed says that the answer was the receipt of an earlier attempt, and that this one
	// wrote nothing.
	Replayed bool
}

// accepted reports whether it was answered that the message is durable.
func (a *Attempt) accepted() bool { return a.Status == 202 }

// refused reports whether it was answered that the message will never be taken as it is.
func (a *Attempt) refused() bool { return a.Status/100 == 4 && a.Status != 429 }

// Told is what a gateway says of a message.
type Told struct {
	ID     string
	Status string // of a receipt
	State  Outcome
	Final  bool
}

// gateways checks what gateways have answered against what is in the lane, and what receipts
// say against the rows.
func (c *checker) gateways() {
	if c.Limits.Gateways == 0 {
		return
	}
	if !c.Calls.Sealed {
		c.r.find(Incomplete, "the ledger of calls is not sealed: %s", c.Calls.Missing)
	}
	records := map[string][]*Produced{}
	for i := range c.Producer.Entries {
		p := &c.Producer.Entries[i]
		records[p.Call] = append(records[p.Call], p)
	}
	known := map[string]bool{}
	for i := range c.Calls.Entries {
		call := &c.Calls.Entries[i]
		if known[call.Name] {
			c.r.find(Incomplete, "the ledger of calls has %s twice", call.Name)
		}
		known[call.Name] = true
		c.answers(call)
		c.durably(call, records[call.Name])
		c.sameID(call, records[call.Name])
		c.told(call, records[call.Name])
	}
	for i := range c.Fanouts.Entries {
		known[c.Fanouts.Entries[i].Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if !known[name] {
			c.r.find(Durable, "the lane has %s, and nobody sent it: call %q", c.describe(records[name][0]), name)
		}
	}
}

// answers: each attempt was answered in time, whatever was away, and the last for good. One
// that found the gateway busy was answered, too: those that waited come all at once.
func (c *checker) answers(call *Call) {
	good := false
	for i := range call.Sent {
		a := &call.Sent[i]
		c.r.Calls.count(a)
		good = good || a.accepted() || a.refused()
		took := a.To.Sub(a.From) - c.standing(a)
		c.r.Worst.Answer = max(c.r.Worst.Answer, took)
		if took > c.limits.Answer {
			c.r.find(Answers, "%s was sent to %s at %s and answered %d %s after %v, more than %v", call.Name, a.Gateway,
				a.From.Format(time.StampMilli), a.Status, a.Why, took.Round(time.Millisecond), c.limits.Answer)
		}
		if a.Status/100 == 5 && a.Why != "busy" && c.serves(a) {
			c.r.find(Answers, "%s was answered %d %s by %s at %s, and nothing was away that it needs to send", call.Name, a.Status, a.Why, a.Gateway, a.To.Format(time.StampMilli))
		}
	}
	if !good {
		c.r.find(Answers, "%s has no answer for good after %d attempts", call.Name, len(call.Sent))
	}
	c.r.Calls.Calls++
}

// standing is how much of an attempt its gateway could do nothing in: it was stopped.
func (c *checker) standing(a *Attempt) time.Duration {
	var spans []Span
	for i := range c.Events {
		if e := &c.Events[i]; e.Of == a.Gateway && e.Stands {
			spans = append(spans, Span{e.Start, e.End})
		}
	}
	return cover(spans, a.From, a.To)
}

// serves reports whether a store was away all the time that gateways need not to send, and
// nothing else had happened for a quarter of Limits.Heal.
func (c *checker) serves(a *Attempt) bool {
	serves := false
	for i := range c.Events {
		e := &c.Events[i]
		switch {
		case e.Serves:
			serves = serves || e.Start.Before(a.From) && e.End.After(a.To)
		case (e.Of == "" || e.Of == a.Gateway) && e.Start.Before(a.To) && e.End.Add(c.limits.Heal/4).After(a.From):
			return false
		}
	}
	return serves
}

// durably: what was answered 202 is in the lane, what was refused is not, and no attempt
// made more than one record, and none that had an earlier one's receipt.
func (c *checker) durably(call *Call, records []*Produced) {
	acks, refusals, replays := 0, 0, 0
	for i := range call.Sent {
		switch a := &call.Sent[i]; {
		case a.accepted() && a.Replayed:
			replays++
		case a.accepted():
			acks++
		case a.refused():
			refusals++
		}
	}
	switch {
	case call.Invalid != "" && (acks+replays > 0 || len(records) > 0):
		c.r.find(Refused, "%s, which %s, was answered 202 %d times, and has %d records in the lane", call.Name, call.Invalid, acks+replays, len(records))
	case acks > len(records):
		c.r.find(Durable, "%s was answered 202 %d times, and has %d records in the lane", call.Name, acks, len(records))
	case replays > 0 && len(records) == 0:
		c.r.find(Durable, "%s was answered with an earlier receipt %d times, and has no record in the lane", call.Name, replays)
	case len(records) > len(call.Sent)-refusals-replays:
		c.r.find(Durable, "%s has %d records in the lane, of %d attempts of which %d were refused and %d wrote nothing", call.Name, len(records), len(call.Sent), refusals, replays)
	case refusals == len(call.Sent) && call.ID != "" && (len(c.devices[call.ID]) > 0 || c.rows[call.ID] != nil):
		c.r.find(Refused, "%s was refused, and was pushed or has rows: %s", call.Name, c.story(call.ID))
	}
}

// sameID: all answers and all records of a message have one id, its own.
func (c *checker) sameID(call *Call, records []*Produced) {
	ids := map[string]bool{}
	if call.ID != "" {
		ids[call.ID] = true
	}
	for i := range call.Sent {
		if a := &call.Sent[i]; a.accepted() {
			ids[a.ID] = true
		}
	}
	for _, p := range records {
		ids[p.ID] = true
	}
	if len(ids) > 1 {
		c.r.find(Receipts, "%s has the ids %v in its answers and records", call.Name, slices.Sorted(maps.Keys(ids)))
	}
}

// statuses are the words of receipts for outcomes; all others are FAILED.
var statuses = map[Outcome]string{Outcome(Delivered): "DELIVERED", Outcome(Unknown): "FAILED"}

// told: the receipt says what the rows say.
func (c *checker) told(call *Call, records []*Produced) {
	accepted := slices.ContainsFunc(call.Sent, func(a Attempt) bool { return a.accepted() })
	switch t := call.Told; {
	case !accepted && t == nil:
	case t == nil:
		c.r.find(Receipts, "%s was answered 202, and nobody says what became of it", call.Name)
	case len(records) > 0 && t.ID != records[0].ID:
		c.r.find(Receipts, "the receipt of %s is about %s, and its record about %s", call.Name, t.ID, records[0].ID)
	default:
		outcome, _ := c.rows[t.ID].outcome()
		want := statuses[outcome]
		if want == "" {
			want = "FAILED"
		}
		if t.State != outcome || t.Status != want || !t.Final {
			c.r.find(Receipts, "the receipt of %s says %s, %s, final %v: %s", call.Name, t.Status, t.State, t.Final, c.story(t.ID))
		}
	}
}

// CallReport counts what gateways were asked.
type CallReport struct {
	Calls, Attempts                          int
	Accepted, Refused, Busy, Away, Unheard   int // attempts that were answered 202, 4xx, 429, 5xx, and not at all
	Fanouts, Audience, Emitted, Again, Apart int // of fan-outs: subscribers, their notifications, records beyond these, and subscribers who came or went meanwhile
}

func (r *CallReport) count(a *Attempt) {
	r.Attempts++
	switch {
	case a.accepted():
		r.Accepted++
	case a.refused():
		r.Refused++
	case a.Status == 429:
		r.Busy++
	case a.Status == 0:
		r.Unheard++
	default:
		r.Away++
	}
}
