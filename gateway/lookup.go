package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// found is what a look-up found of one receipt: a report or a problem.
type found struct {
	report  *Report
	problem *Problem
}

// asked is one receipt that is looked up.
type asked struct {
	text  string
	id    string
	claim *claim // nil = a bare id
	rows  []push.Row
	stage stage
	err   error // why the stage is not known
}

// stage is how far the workers are with a record, as their commits prove.
type stage uint8

const (
	incomparable stage = iota // the receipt has no place, or one in a topic that is gone
	waiting                   // not committed yet: it has not been worked on, or is being worked on
	passed                    // committed: what became of it is durable
)

// lookUp finds what became of notifications. Committed offsets are asked for before
// rows: an offset is committed after its rows are durable, so that a record which had
// been passed before the rows were read has its rows, or none at all.
func (g *Gateway) lookUp(ctx context.Context, c *Caller, receipts []string) ([]found, *Problem) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status)
	defer cancel()
	// Half the time is the rows': they say most, also while Kafka does not answer.
	asking, done := context.WithTimeout(ctx, g.o.Times.Status/2)
	defer done()
	results := make([]found, len(receipts))
	all := make([]*asked, len(receipts)) // nil = it has its problem, or is a fan-out's
	many := g.newFanoutLooks(c)
	defer many.Wait()
	for i, text := range receipts {
		a, problem := g.open(c, text)
		if problem != nil {
			results[i].problem = problem
			continue
		}
		if a.claim != nil && a.claim.isFanout() { // it has no rows, and a place in another topic
			many.look(asking, a, &results[i])
			continue
		}
		if a.claim != nil {
			a.stage, a.err = g.stage(asking, a.claim)
		}
		all[i] = a
	}
	if err := g.readRows(ctx, all); err != nil {
		g.o.Log.Warn("the status store does not answer", "error", err)
		return nil, newProblem(codeStatusAway, "the status store does not answer; sends go on").after(2)
	}
	now := time.Now()
	for i, a := range all {
		if a == nil {
			continue
		}
		results[i] = g.judge(a, now)
		if a.claim == nil && len(a.rows) == 0 {
			many.look(ctx, a, &results[i])
		}
	}
	many.Wait()
	return results, g.addReported(ctx, all, results)
}

// open decides what a receipt is, and whether the caller may see it. Who may not is told
// the same as for what there is not.
func (g *Gateway) open(c *Caller, text string) (*asked, *Problem) {
	cl, ok := g.o.Signer.open(c.Sender, text)
	switch {
	case ok && c.apps[cl.app]:
		return &asked{text: text, id: cl.id, claim: cl}, nil
	case ok, !c.may(Admin):
		return nil, noReceipt()
	}
	id, _, is := cutReceipt(text)
	if !is {
		id = text
	}
	if len(id) == 0 || len(id) > 64 {
		return nil, newProblem(codeNoReceipt, "no such receipt, and no id")
	}
	return &asked{text: text, id: id}, nil
}

// stage compares a record's place with the committed offsets.
func (g *Gateway) stage(ctx context.Context, cl *claim) (stage, error) {
	if cl.place.Offset < 0 || cl.topic == [16]byte{} {
		return incomparable, nil
	}
	known := false
	for i := range g.o.Lanes {
		known = known || g.o.Lanes[i].Name == cl.lane
	}
	if !known {
		return incomparable, nil
	}
	p, err := g.progress.of(ctx, cl.lane)
	switch {
	case err != nil:
		return incomparable, err
	case p.Topic != cl.topic:
		return incomparable, nil
	}
	if at, committed := p.Committed[cl.place.Partition]; !committed || at <= cl.place.Offset {
		return waiting, nil
	}
	return passed, nil
}

// readRows reads the rows of all: by their ids, and for what was passed without any by
// its place, where a worker writes about a record whose id it could not use.
func (g *Gateway) readRows(ctx context.Context, all []*asked) error {
	if err := g.read(ctx, all, func(a *asked) string { return a.id }); err != nil {
		return err
	}
	return g.read(ctx, all, func(a *asked) string {
		if len(a.rows) > 0 || a.claim == nil || a.stage != passed {
			return ""
		}
		return push.PlaceID(g.topicName(a.claim.lane), a.claim.place.Partition, a.claim.place.Offset)
	})
}

func (g *Gateway) topicName(lane string) string {
	for i := range g.o.Lanes {
		if g.o.Lanes[i].Name == lane {
			return g.o.Lanes[i].Topic
		}
	}
	return ""
}

// read reads the rows of the ids that idOf gives; "" = none for this one.
func (g *Gateway) read(ctx context.Context, all []*asked, idOf func(*asked) string) error {
	var ids []string
	var of []*asked
	for _, a := range all {
		if a == nil {
			continue
		}
		if id := idOf(a); id != "" {
			if ids == nil {
				ids, of = make([]string, 0, len(all)), make([]*asked, 0, len(all))
			}
			ids, of = append(ids, id), append(of, a)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := g.o.Rows.Read(ctx, ids)
	if err != nil {
		return err
	}
	for i, a := range of {
		if a.rows = rows[i]; a.claim != nil {
			// The same id for another user is another notification.
			a.rows, _ = push.OwnRows(rows[i], push.UserHash(a.claim.owner.key()))
		}
	}
	return nil
}

// fanoutLooks looks at some fan-outs side by side: a query may name a thousand. It is used
// by one goroutine.
type fanoutLooks struct {
	sync.WaitGroup
	g      *Gateway
	caller *Caller
	places chan struct{} // a place for each that is under way
}

// looksAtOnce is how many fan-outs of one request are looked at side by side.
const looksAtOnce = 16

func (g *Gateway) newFanoutLooks(c *Caller) *fanoutLooks {
	return &fanoutLooks{g: g, caller: c, places: make(chan struct{}, looksAtOnce)}
}

// look begins to look at a fan-out. What it finds is in place after Wait; if it finds none,
// what was there stays.
func (l *fanoutLooks) look(ctx context.Context, a *asked, into *found) {
	l.places <- struct{}{}
	l.Go(func() {
		defer func() { <-l.places }()
		if f := l.g.lookAtFanout(ctx, l.caller, a, time.Now()); f != nil {
			*into = *f
		}
	})
}

func noReceipt() *Problem {
	return newProblem(codeNoReceipt, "no such receipt of this sender, its apps and topics; a bare id needs the right admin")
}
