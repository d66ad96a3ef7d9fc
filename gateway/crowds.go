package gateway

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// A topic can have millions of subscribers, so of a large one a part is counted: the users
// in some of the slices, which a hash of their ids draws.
const (
	crowdMost = 10_000         // subscribers who are read for one count, and the rest of a slice
	crowdRows = 10 * crowdMost // the same with those who have left, whose rows stay
	crowdAge  = time.Minute
)

// SubscriberCounts is how many have subscribed to a topic, by how.
type SubscriberCounts struct {
	Topic string `json:"topic"`
	Push  int64  `json:"push"`
	Pull  int64  `json:"pull"`
	// Whole says that all were counted; else these are estimates, by a part of all users.
	Whole bool      `json:"whole"`
	At    time.Time `json:"at"` // when they were counted
}

// countSubscribers answers GET /v1/topics/{topic}/counts.
func (g *Gateway) countSubscribers(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
	if problem != nil {
		return problem
	}
	a, problem := g.countsOf(ctx, t)
	if problem != nil {
		return problem
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// countsOf is how many subscribers a topic has, or had within the last minute.
func (g *Gateway) countsOf(ctx context.Context, t *subscriptions.Topic) (*SubscriberCounts, *Problem) {
	a, problem, err := g.crowds.of(ctx, t.Name, func() (SubscriberCounts, *Problem) { return g.crowd(ctx, t) })
	switch {
	case err != nil:
		return nil, g.topicsProblem(err)
	case problem != nil:
		return nil, problem
	}
	return &a, nil
}

// crowd counts the subscribers of a topic, slice by slice.
func (g *Gateway) crowd(ctx context.Context, t *subscriptions.Topic) (SubscriberCounts, *Problem) {
	a := SubscriberCounts{Topic: t.Name, Whole: true, At: time.Now()}
	var push, pull int64 // of the slice that is being read
	var place subscriptions.Position
	for read, slice := 0, 0; ; {
		list, next, end, err := g.o.Topics.Run(ctx, t.Name, t.Layout, 0, subscriptions.Slices-1, place, subscriptions.MaxPage)
		if err != nil {
			return a, g.topicsProblem(err)
		}
		for i := range list {
			if s := subscriptions.Slice(list[i].User); s != slice {
				a.Push, a.Pull, push, pull = a.Push+push, a.Pull+pull, 0, 0
				if a.Push+a.Pull >= crowdMost || read+i >= crowdRows {
					return a.scaled(s), nil
				}
				slice = s
			}
			switch list[i].Mode {
			case subscriptions.Push:
				push++
			case subscriptions.Pull:
				pull++
			}
		}
		read, place = read+len(list), next
		if end {
			a.Push, a.Pull = a.Push+push, a.Pull+pull
			return a, nil
		}
	}
}

// scaled are the counts of as many slices as estimates for all of them.
func (a SubscriberCounts) scaled(slices int) SubscriberCounts {
	scale := func(n int64) int64 { return int64(math.Round(float64(n) * subscriptions.Slices / float64(slices))) }
	a.Push, a.Pull, a.Whole = scale(a.Push), scale(a.Pull), false
	return a
}
