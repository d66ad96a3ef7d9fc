package limits

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

// Use is how much of a rule a user has used.
type Use struct {
	Dimension Dimension
	Rule      string
	Device    uint32 // the device's hash, if the rule is one of devices
	Current   int    // what counts now
	Limit     int
	Room      bool      // for one more
	ResetAt   time.Time // when nothing counts any more, should nothing be added; zero = nothing does
	FreeAt    time.Time // when there is room for one more, should nothing be added: the request's time if there is; zero = never
}

// Usage returns the use of every rule that applies to the request, and of rules of
// devices one for each of its Devices. It goes by the request's State and does not ask
// Redis; it reads what CountDevicesIn names. An unknown version of the state is an
// error.
func (l *Limiter) Usage(ctx context.Context, r *Request) ([]Use, error) {
	j, err := l.judge(ctx, r)
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
			u := Use{Dimension: d.Dimension, Rule: d.Rule, Device: c.extra, Current: d.Current, Limit: d.Limit, Room: next == c.at, ResetAt: d.ResetAt}
			if next != never {
				u.FreeAt = time.UnixMilli(next).In(r.At.Location())
			}
			uses = append(uses, u)
		}
	}
	for i := range r.Devices {
		d := c
		d.flags |= deviceFlag
		d.extra = r.Devices[i].Hash
		j.apply(r, &d.event, true)
		log := j.logs[logKey{r.Owner, d.extra}]
		j.exchange(log)
		add(&d)
		j.exchange(log)
	}
	j.apply(r, &c.event, false)
	add(&c)
	return uses, nil
}

// Preview answers a request as Decide would, from its State and as Usage
// reads, and stores nothing.
func (l *Limiter) Preview(ctx context.Context, r *Request) error {
	j, err := l.judge(ctx, r)
	if err != nil {
		return err
	}
	j.answer(r)
	return nil
}

// judge returns a judge for this request alone, with its state loaded.
func (l *Limiter) judge(ctx context.Context, r *Request) (*judge, error) {
	j := newJudge(l.rules)
	if err := j.load(r.State, l.keep, r.At.UnixMilli()); err != nil {
		return nil, &StateError{shards.LimiterKey(shards.UserShard(r.Owner), r.Owner), err}
	}
	if l.log != nil {
		var err error
		if j.logs, err = l.log.open(ctx, &j, []*Request{r}); err != nil {
			return nil, err
		}
	}
	return &j, nil
}
