package sim

import (
	"net/http"
	"sync/atomic"
	"time"
)

// dates writes the Date header of answers, once a second. Safe for concurrent
// use.
type dates struct {
	skew    time.Duration
	present atomic.Pointer[date]
}

// date is one second as a header has it.
type date struct {
	second int64 // since 1970
	text   string
}

// at is the value of the header at a simulated time.
func (d *dates) at(now time.Time) string {
	second := now.Add(d.skew).Unix()
	if p := d.present.Load(); p != nil && p.second == second {
		return p.text
	}
	p := &date{second, time.Unix(second, 0).UTC().Format(http.TimeFormat)}
	d.present.Store(p)
	return p.text
}
