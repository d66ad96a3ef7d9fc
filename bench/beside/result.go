//go:build linux

package beside

import (
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/latency"
)

// Messages are the single ones that were sent in a time, and what was used in it. Latency is from when a message was due to be
// sent until a provider had received it, of each message, and quantiles are exact; nil of none.
type Messages struct {
	Seconds   float64            `json:"seconds"`
	Samples   int                `json:"samples"`
	P50       *float64           `json:"p50_ms"`
	P99       *float64           `json:"p99_ms"`
	Max       *float64           `json:"max_ms"`
	CPU       map[string]float64 `json:"cpu_cores"`       // of each process
	Others    float64            `json:"others_cores"`    // busy with something else
	Compiling float64            `json:"compiling_cores"` // on which Java compiled: part of what its servers used
}

// Result is what was seen.
type Result struct {
	Idle   Messages `json:"idle"`   // on a fleet that does nothing else
	Beside Messages `json:"beside"` // from the request to send to many until it was pushed to all
	// P50Ratio and P99Ratio are beside by idle; nil where one of them is.
	P50Ratio *float64 `json:"p50_ratio"`
	P99Ratio *float64 `json:"p99_ratio"`

	// Of all single messages of the run, those of the warm-up included.
	Sent        int `json:"sent"`        // and accepted by the gateway
	Refused     int `json:"refused"`     // by the gateway; must be 0
	Undelivered int `json:"undelivered"` // accepted, and not received by a provider; must be 0

	Subscribers    int      `json:"subscribers"`
	Emitted        int      `json:"emitted"`         // records of the lane
	EmittedSeconds *float64 `json:"emitted_seconds"` // until all were; nil = they were not
	Pushed         int      `json:"pushed"`          // accepted by providers
	PushedAll      bool     `json:"pushed_all"`      // before the time was over
	Rate           float64  `json:"pushes_per_second"`

	// What it was run with.
	SameLane          bool    `json:"same_lane"`
	MessagesPerSecond int     `json:"messages_per_second"`
	WarmUp            float64 `json:"warm_up"`
	LagTime           float64 `json:"lag_time_seconds"`
	FanoutRate        int     `json:"fanout_rate"` // 0 = no bound
	Latency           float64 `json:"latency_ms"`
	Workers           int     `json:"workers"`
	Partitions        int     `json:"partitions"`
	Cores             int     `json:"cores"`
	Go                string  `json:"go"`

	first error // why a message was refused, or which one is missing
}

// Err says which of the single messages are missing, if any are.
func (r *Result) Err() error {
	if r.Refused+r.Undelivered == 0 {
		return nil
	}
	return fmt.Errorf("of the single messages %d were refused, and of %d that were accepted %d have not arrived. The first: %w", r.Refused, r.Sent, r.Undelivered, r.first)
}

// messages notes how long they took.
func (r *Result) messages(all []latency.Wait, missing []latency.Sent, refused error, idle, beside *span) {
	if r.first = refused; refused == nil && len(missing) > 0 {
		r.first = errors.New(missing[0].ID + " was not received by a provider")
	}
	r.Idle, r.Beside = idle.messages(all), beside.messages(all)
	r.P50Ratio, r.P99Ratio = ratio(r.Beside.P50, r.Idle.P50), ratio(r.Beside.P99, r.Idle.P99)
}

func ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	times := *a / *b
	return &times
}

// messages are those that were sent in the time.
func (s *span) messages(all []latency.Wait) Messages {
	var list []latency.Wait
	for _, w := range all {
		if !w.At.Before(s.from) && w.At.Before(s.to) {
			list = append(list, w)
		}
	}
	m := Messages{Seconds: s.Took.Seconds(), Samples: len(list), P50: latency.Quantile(list, 0.5), P99: latency.Quantile(list, 0.99), Max: latency.Quantile(list, 1),
		CPU: make(map[string]float64), Others: s.Others, Compiling: s.Compiling}
	for name, used := range s.CPU {
		m.CPU[name] = used.Seconds() / s.Took.Seconds()
	}
	return m
}

// fanout notes how far it came.
func (r *Result) fanout(f *fanout, s *span) {
	r.Emitted, r.Pushed, r.PushedAll = f.emitted, f.pushed, f.done()
	if !f.ended.IsZero() {
		took := f.ended.Sub(f.began).Seconds()
		r.EmittedSeconds = &took
	}
	r.Rate = float64(f.pushed) / max(time.Millisecond, s.to.Sub(f.began)).Seconds()
}
