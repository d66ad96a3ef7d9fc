package fanout

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Memory is notes that end with the process, for trials and tests.
type Memory struct {
	mu       sync.Mutex
	messages map[uuid.UUID]*noted // guarded by mu
}

// noted is what is known of a message.
type noted struct {
	job    *Job
	parts  map[int]Counts
	orders orders
}

// NewMemory returns notes of nothing.
func NewMemory() *Memory { return &Memory{messages: make(map[uuid.UUID]*noted)} }

// of is what is known of a message. The caller holds mu.
func (m *Memory) of(message uuid.UUID) *noted {
	n := m.messages[message]
	if n == nil {
		n = &noted{parts: make(map[int]Counts)}
		m.messages[message] = n
	}
	return n
}

// Begin implements Notes.
func (m *Memory) Begin(_ context.Context, j *Job) (*Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of(j.Message)
	if n.job == nil {
		value, err := EncodeJob(j)
		if err != nil {
			return nil, err
		}
		if n.job, err = DecodeJob(value); err != nil {
			return nil, err
		}
	}
	return n.job, nil
}

// Ended implements Notes.
func (m *Memory) Ended(_ context.Context, message uuid.UUID, part int) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ended := m.of(message).parts[part]
	return ended, nil
}

// End implements Notes.
func (m *Memory) End(_ context.Context, message uuid.UUID, part int, c *Counts) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(message).parts[part] = *c
	return nil
}

// State implements Notes.
func (m *Memory) State(_ context.Context, message uuid.UUID) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(message).orders.state(), nil
}

// Order implements Records.
func (m *Memory) Order(_ context.Context, message uuid.UUID, s State, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(message).orders.order(s, at)
	return nil
}

// Look implements Records.
func (m *Memory) Look(_ context.Context, message uuid.UUID) (*Progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.of(message)
	if n.job == nil {
		return nil, nil
	}
	p := &Progress{Job: n.job, State: n.orders.state()}
	ended := make(map[int]bool, len(n.parts))
	for part, c := range n.parts {
		ended[part] = c.Stopped
		p.Add(&c)
	}
	p.Ended, p.Settled = slices.Sorted(maps.Keys(ended)), n.job.settled(ended)
	return p, nil
}

var (
	_ Notes   = (*Memory)(nil)
	_ Records = (*Memory)(nil)
)
