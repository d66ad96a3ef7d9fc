package dlq

import (
	"context"
	"time"
)

// redriveGroups is the most groups that are redriven in a second.
const redriveGroups = 20

// pacer limits the rate: never more in any second than the rate plus one group,
// and lost time is not made up. It is for one goroutine.
type pacer struct {
	each  time.Duration // of one record
	group int           // how many go at once
	began time.Time
	next  time.Time // when the next group may go
	count int
}

func newPacer(rate float64) pacer {
	return pacer{each: time.Duration(float64(time.Second) / rate), group: min(max(1, int(rate/redriveGroups)), 1000)}
}

// wait returns when n more may go, or with ctx's error.
func (p *pacer) wait(ctx context.Context, n int) error {
	if d := time.Until(p.next); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	p.count += n
	p.next = now.Add(time.Duration(n) * p.each)
	return nil
}

// rate is the average so far.
func (p *pacer) rate() float64 {
	return float64(p.count) / max(p.next.Sub(p.began), p.each).Seconds()
}
