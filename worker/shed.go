package worker

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// thresholds are how much may wait in a lane before its classes are shed.
func thresholds(s configs.Shed) (t stages.Thresholds) {
	t[push.High], t[push.Medium], t[push.Low], t[push.Bulk] = int64(s.High), int64(s.Medium), int64(s.Low), int64(s.Bulk)
	return t
}

// pace measures a lane that sheds: how fast it goes, and how much waits. It implements
// stages.Pace.
type pace struct {
	source   *kafka.Source
	pipeline *pipeline.Pipeline // set before anything is measured or asked
	depth    prometheus.Gauge

	mu   sync.Mutex // guards rate
	rate stages.Rate
}

// Pace implements stages.Pace.
func (p *pace) Pace() (waiting []int64, perSecond float64) {
	for _, t := range p.pipeline.Trackers() {
		waiting = append(waiting, t.Waiting())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return waiting, p.rate.PerSecond()
}

// measure measures every second until ctx ends.
func (p *pace) measure(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	sent, behind := p.pipeline.Dispatched(), false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now, waits := p.pipeline.Dispatched(), p.show()
		p.mu.Lock()
		p.rate.Second(now-sent, behind && waits)
		p.mu.Unlock()
		sent, behind = now, waits
	}
}

// show sets the lane's depth, by the partition of this worker that has the most, and
// reports whether anything waits.
func (p *pace) show() (waits bool) {
	depth := int64(0)
	for _, t := range p.pipeline.Trackers() {
		waits = waits || t.Waiting() > 0
		if end, partitions, ok := p.source.End(t.Partition()); ok && !t.Draining() {
			depth = max(depth, t.Backlog(end)*int64(partitions))
		}
	}
	p.depth.Set(float64(depth))
	return waits
}
