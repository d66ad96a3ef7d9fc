//go:build unix

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Metrics are the samples of one scrape, by their name with labels, as they
// are written: push_deduped_total{lane="main"}.
type Metrics map[string]float64

// Metrics scrapes /metrics.
func (p *Process) Metrics(ctx context.Context) (Metrics, error) {
	status, body, err := p.get(ctx, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", p.Name, err)
	}
	m := make(Metrics)
	for line := range strings.SplitSeq(body, "\n") {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading the metrics of %s: line %q", p.Name, line)
		}
		m[line[:i]] = value
	}
	return m, nil
}

// Sum adds up all samples of one name whose labels contain all of these, each
// written as lane="main".
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
	for sample, value := range m {
		rest, ok := strings.CutPrefix(sample, name)
		if ok && (rest == "" || rest[0] == '{') && containsAll(rest, labels) {
			sum += value
		}
	}
	return sum
}

// AwaitMetric waits until the sum of a metric's samples with these labels is
// as wanted.
func (p *Process) AwaitMetric(ctx context.Context, wanted func(float64) bool, name string, labels ...string) error {
	return p.await(ctx, "another "+name, func() (bool, error) {
		m, err := p.Metrics(ctx)
		if err != nil {
			return false, err
		}
		got := m.Sum(name, labels...)
		return wanted(got), fmt.Errorf("it is %v", got)
	})
}
