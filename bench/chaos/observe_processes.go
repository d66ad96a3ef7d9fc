//go:build unix

package chaos

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// footprint is what a worker takes of the machine.
func footprint(ctx context.Context, name string, p *fleet.Process) (invariants.Footprint, error) {
	m, err := p.Metrics(ctx)
	if err != nil {
		return invariants.Footprint{}, err
	}
	// Go returns what it has freed bit by bit, for minutes after a load.
	free := m.Sum("go_memstats_heap_idle_bytes") - m.Sum("go_memstats_heap_released_bytes")
	return invariants.Footprint{Process: name, At: time.Now(), Goroutines: int(m.Sum("go_goroutines")),
		FDs: int(m.Sum("process_open_fds")), Bytes: int64(m.Sum("process_resident_memory_bytes") - free)}, nil
}

// footprints are those of all workers.
func (w *world) footprints(ctx context.Context, suffix string) ([]invariants.Footprint, error) {
	return w.footprintsOf(ctx, suffix, func(*fleet.Process) bool { return true })
}

// What a worker took for a backlog it gives back to the system only after the
// next collection, which an idle process has every two minutes, and then bit by
// bit.
const (
	restPatience = 5 * time.Minute
	muchMemory   = 128 << 20 // half of what invariants allows
)

// footprintsAtRest are those of all workers, which have nothing to do, as soon
// as none has much more memory than before, or has had the time for it.
func (w *world) footprintsAtRest(ctx context.Context, before []invariants.Footprint) ([]invariants.Footprint, error) {
	for until := time.Now().Add(restPatience); ; hold(ctx, time.Second) {
		after, err := w.footprints(ctx, "")
		swollen := slices.ContainsFunc(after, func(f invariants.Footprint) bool {
			return slices.ContainsFunc(before, func(b invariants.Footprint) bool {
				return b.Process == f.Process && f.Bytes-b.Bytes > muchMemory
			})
		})
		if err != nil || !swollen || time.Now().After(until) {
			return after, err
		}
	}
}

// settled are those of the workers that are ready: what one has that is just
// starting is no measure of what it will need.
func (w *world) settled(ctx context.Context, suffix string) ([]invariants.Footprint, error) {
	return w.footprintsOf(ctx, suffix, func(p *fleet.Process) bool {
		ready, _, err := p.Ready(ctx)
		return err == nil && ready
	})
}

func (w *world) footprintsOf(ctx context.Context, suffix string, which func(*fleet.Process) bool) (list []invariants.Footprint, err error) {
	for _, s := range w.workers() {
		if p := s.process(); p != nil && p.Running() && which(p) {
			f, err := footprint(ctx, s.name+suffix, p)
			if err != nil {
				return nil, err
			}
			list = append(list, f)
		}
	}
	return list, nil
}

// canaries finds device tokens and the text of messages where they must not
// be: anywhere but on the wire and in the values of records.
type canaries struct {
	tokens map[string]bool
	leaks  []invariants.Leak
}

// texts are parts of every message of the crowd.
var texts = []string{"is on its way", "the warehouse in Rotterdam"}

// long are words that may be tokens.
var long = regexp.MustCompile(`[A-Za-z0-9_:%-]{60,}`)

func newCanaries(w *world) *canaries {
	c := &canaries{tokens: map[string]bool{}}
	for i := range w.people.Users {
		for _, d := range w.people.User(i).Devices {
			c.tokens[d.Token] = true
		}
	}
	return c
}

// search looks through one text.
func (c *canaries) search(where, text string) {
	for _, t := range texts {
		if strings.Contains(text, t) {
			c.leaks = append(c.leaks, invariants.Leak{Where: where + ": the text of a message"})
			break
		}
	}
	for _, word := range long.FindAllString(text, -1) {
		if c.tokens[word] {
			c.leaks = append(c.leaks, invariants.Leak{Where: where + ": a device token"})
			break
		}
	}
}

// headers looks through those of a record.
func (c *canaries) headers(topic string, hs []kgo.RecordHeader) {
	for _, h := range hs {
		c.search(fmt.Sprintf("header %s of a record of %s", h.Key, topic), string(h.Value))
	}
}

// processes looks through the logs of all processes and the metrics of those
// that run.
func (c *canaries) processes(ctx context.Context, w *world) error {
	for _, p := range w.fleet.Processes() {
		c.search("the log of "+p.Name, p.Log())
	}
	for _, s := range w.workers() {
		p := s.process()
		if p == nil || !p.Running() {
			continue
		}
		m, err := p.Metrics(ctx)
		if err != nil {
			return err
		}
		for name := range m {
			c.search("the metrics of "+p.Name, name)
		}
	}
	return nil
}

// rows looks through the status table.
func (c *canaries) rows(rows []invariants.Row) {
	for _, r := range rows {
		c.search("a status row", r.ID+" "+r.Device+" "+r.Reason)
	}
}
