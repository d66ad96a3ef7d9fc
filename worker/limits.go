package worker

import (
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// mostStandings is how many buckets of senders push.events is told of at a time.
const mostStandings = 20

// standings are how the fullest buckets of senders stood since the last call.
func (r *rules) standings(now time.Time) (l events.Limits) {
	list, more := r.fullest.Take(now, mostStandings)
	for i := range list {
		s := &list[i]
		l.Senders = append(l.Senders, events.SenderLimit{Rule: s.Rule.Name, Sender: s.Sender, Limit: s.Rule.Max, Window: s.Rule.Window.Seconds(),
			Fills: s.Full.Seconds(), Share: s.Greatest, Now: s.Now, Limited: s.Limited})
	}
	l.Omitted = more
	return l
}
