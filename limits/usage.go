package limits

import (
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

// Use is how a rule stands for a user.
type Use struct {
	Dimension Dimension
	Rule      string
	Device    uint32 // of a rule of devices, its hash
	Current   int    // what counts now
	Limit     int
	Room      bool      // for one more
	ResetAt   time.Time // when nothing counts any more, should nothing be added; zero = nothing does
}

// Usage says how every rule stands that a request would be held against: those
// of devices for each of its Devices. It goes by the request's State and asks no
// Redis. An unknown version of the state is an error.
func (l *Limiter) Usage(r *Request) ([]Use, error) {
	j, err := l.judge(r)
	if err != nil {
		return nil, err
	}
	c := newCandidate(r)
	j.setZone(r)
	var uses []Use
	add := func(c *candidate) {
		for i := range j.applied {
			var d Request
			j.explain(&d, c, &j.applied[i])
			_, next := j.ask(&j.applied[i], c)
			uses = append(uses, Use{d.Dimension, d.Rule, c.extra, d.Current, d.Limit, next == c.at, d.ResetAt})
		}
	}
	for i := range r.Devices {
		d := c
		d.flags |= deviceFlag
		d.extra = r.Devices[i].Hash
		j.apply(r, &d.event, true)
		add(&d)
	}
	j.apply(r, &c.event, false)
	add(&c)
	return uses, nil
}

// Preview answers a request as Decide would, from its State, and stores nothing.
func (l *Limiter) Preview(r *Request) error {
	j, err := l.judge(r)
	if err != nil {
		return err
	}
	j.answer(r)
	return nil
}

// judge is one of a request's own, with its state loaded.
func (l *Limiter) judge(r *Request) (*judge, error) {
	j := newJudge(l.rules)
	if err := j.load(r.State, l.keep, r.At.UnixMilli()); err != nil {
		return nil, fmt.Errorf("limits: key %s: %w", shards.LimiterKey(shards.UserShard(r.Owner), r.Owner), err)
	}
	return &j, nil
}
