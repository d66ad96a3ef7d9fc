//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// workers are those that are measured as one: members of one group.
type workers []*fleet.Process

// startWorkers starts n workers and waits until all are ready.
func (w *world) startWorkers(ctx context.Context, n int) (ws workers, err error) {
	w.pids[workerProcess] = nil
	for range n {
		p, err := w.StartWorker(servers.RowsVariable + "=" + w.rowsSocket())
		if err != nil {
			return nil, err
		}
		w.pids[workerProcess] = append(w.pids[workerProcess], p.PID())
		ws = append(ws, p)
	}
	for _, p := range ws {
		if err := p.AwaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return ws, nil
}

// metrics are what each of them counts.
func (ws workers) metrics(ctx context.Context) (all []fleet.Metrics, err error) {
	for _, p := range ws {
		m, err := p.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// ended is an error if one of them has ended.
func (ws workers) ended() error {
	for _, p := range ws {
		select {
		case <-p.Done():
			return fmt.Errorf("the worker has ended%s", p.Tail())
		default:
		}
	}
	return nil
}

// term ends all of them at once, in order.
func (ws workers) term(ctx context.Context) error {
	ends := make(chan error, len(ws)) // nobody closes it: it has room for all
	for _, p := range ws {
		go func() {
			code, err := p.Term(ctx)
			if err == nil && code != 0 {
				err = fmt.Errorf("the worker ended with status %d%s", code, p.Tail())
			}
			ends <- err
		}()
	}
	var all error
	for range ws {
		all = errors.Join(all, <-ends)
	}
	return all
}

// cpu is the processor time of all of them so far.
func (ws workers) cpu() (sum time.Duration, err error) {
	for _, p := range ws {
		used, err := usage.CPU(p.PID())
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// peak is the most memory that one of them had, in MiB.
func (ws workers) peak() (most int, err error) {
	for _, p := range ws {
		used, err := usage.PeakMemory(p.PID())
		if err != nil {
			return 0, err
		}
		most = max(most, int(used))
	}
	return most, nil
}

// summed is a metric's sum over all workers.
func summed(all []fleet.Metrics, name string, labels ...string) (sum float64) {
	for _, m := range all {
		sum += m.Sum(name, labels...)
	}
	return sum
}

// shares are what part of the pushes between two moments each worker sent.
func shares(start, end []fleet.Metrics) []float64 {
	const sent = "push_deliveries_total"
	all := summed(end, sent) - summed(start, sent)
	each := make([]float64, len(end))
	for i := range end {
		each[i] = (end[i].Sum(sent) - start[i].Sum(sent)) / max(1, all)
	}
	return each
}
