package rates

import (
	"context"
	"log/slog"
	"time"
)

// news is something to tell, once no lock is held: a change, or that Redis is away or
// back.
type news struct {
	change  Change // no cause = it is about Redis
	away    time.Duration
	back    bool
	members int // that shared the rate
	err     error
}

// say tells log and listener. Run's goroutine calls it, without mu.
func (r *Rate) say(n news) {
	switch c := n.change; {
	case c.Cause != "":
		level := slog.LevelInfo
		if c.Cause != CauseRound && c.Cause != CauseGrowth && (c.Cause != CauseAnnounced || c.To > 0 && (c.From == 0 || c.To < c.From)) {
			level = slog.LevelWarn
		}
		r.log.Log(context.Background(), level, "rate changed", "from", c.From, "to", c.To, "cause", string(c.Cause))
		r.tell(c)
	case n.back:
		r.log.Info("the rate is shared again", "away", n.away.Round(time.Millisecond))
	default:
		r.log.Warn("the rate cannot be shared: this worker goes on with its part of it", "members", n.members, "error", n.err)
	}
}
