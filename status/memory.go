package status

import (
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/push"
)

// Memory is the status store without a server: the demo and tests run on it.
// It upserts by (id, device, step, state) as Cassandra does, keeps times in
// milliseconds as Cassandra does, and costs about 200 bytes a row.
// All methods may be called at once.
type Memory struct {
	layouts Layouts
	parts   [memoryParts]memoryPart
}

const memoryParts = 16

// memoryPart holds the ids of one hash part, so that concurrent writers seldom
// contend for a lock.
type memoryPart struct {
	mu      sync.Mutex
	heads   map[string]int32 // id -> its newest row in rows
	rows    []memoryRow      // rows of one id are chained
	reasons map[string]string
}

// memoryRow is a row without its id, which is the key of heads.
type memoryRow struct {
	text      string // device, then provider id
	reason    string // shared between rows
	user      uint64
	place     uint64
	micros    int64 // write time, decides which of two equal keys stays
	next      int32 // the id's row before this one; -1 ends the chain
	step      int16
	deviceLen uint8
	state     push.State
	platform  push.Platform
}

// NewMemory makes an empty store. Its layouts decide only Bucket.
func NewMemory(layouts Layouts) (*Memory, error) {
	if err := layouts.Validate(); err != nil {
		return nil, err
	}
	m := &Memory{layouts: layouts}
	for i := range m.parts {
		m.parts[i].heads = make(map[string]int32)
		m.parts[i].reasons = make(map[string]string)
	}
	return m, nil
}

// Bucket implements pipeline.Status.
func (m *Memory) Bucket(id string) int64 { return m.layouts.Bucket(id) }

// Write implements pipeline.Status. It copies what it keeps and fails only
// when ctx has ended.
func (m *Memory) Write(ctx context.Context, rows []push.Row) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range rows {
		p := m.part(rows[i].ID)
		p.mu.Lock()
		p.upsert(&rows[i])
		p.mu.Unlock()
	}
	return nil
}

func (m *Memory) part(id string) *memoryPart {
	return &m.parts[xxhash.Sum64String(id)%memoryParts]
}

func (p *memoryPart) upsert(r *push.Row) {
	device := cut(r.Device, maxDevice)
	head, known := p.heads[r.ID]
	if !known {
		head = -1
	}
	for i := head; i >= 0; i = p.rows[i].next {
		old := &p.rows[i]
		if old.step == r.Step && old.state == r.State && old.text[:old.deviceLen] == device {
			if r.At.UnixMicro() >= old.micros {
				next := old.next
				*old = p.pack(r, device)
				old.next = next
			}
			return
		}
	}
	row := p.pack(r, device)
	row.next = head
	p.rows = append(p.rows, row)
	id := r.ID
	if !known {
		id = strings.Clone(id) // rows are cut from records and outlive them here
	}
	p.heads[id] = int32(len(p.rows) - 1)
}

func (p *memoryPart) pack(r *push.Row, device string) memoryRow {
	word := cut(r.Reason, maxReason)
	reason, ok := p.reasons[word]
	if !ok {
		reason = strings.Clone(word)
		p.reasons[reason] = reason
	}
	return memoryRow{
		text: device + cut(r.ProviderID, maxProviderID), deviceLen: uint8(len(device)), reason: reason,
		user: r.UserHash, place: r.Place, micros: r.At.UnixMicro(), step: r.Step, state: r.State, platform: r.Platform,
	}
}

func (p *memoryPart) history(id string) []push.Row {
	head, ok := p.heads[id]
	if !ok {
		return nil
	}
	var rows []push.Row
	for i := head; i >= 0; i = p.rows[i].next {
		row := &p.rows[i]
		rows = append(rows, push.Row{
			ID: id, Device: row.text[:row.deviceLen], Step: row.step, State: row.state,
			At: time.UnixMilli(row.micros / 1000).UTC(), Platform: row.platform,
			ProviderID: row.text[row.deviceLen:], Reason: row.reason, UserHash: row.user, Place: row.place,
		})
	}
	sortRows(rows)
	return rows
}

// Read returns the rows of each id, aligned with ids, ordered by device, step
// and state; nil for an id without rows. It fails only when ctx has ended.
func (m *Memory) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found := make([][]push.Row, len(ids))
	for i, id := range ids {
		p := m.part(id)
		p.mu.Lock()
		found[i] = p.history(id)
		p.mu.Unlock()
	}
	return found, nil
}

// Len is how many notifications and how many rows are stored.
func (m *Memory) Len() (notifications, rows int) {
	for i := range m.parts {
		p := &m.parts[i]
		p.mu.Lock()
		notifications += len(p.heads)
		rows += len(p.rows)
		p.mu.Unlock()
	}
	return notifications, rows
}

// All ranges over the notifications and their rows, in no order. Rows written
// meanwhile may or may not be seen. The body may call the store.
func (m *Memory) All() iter.Seq2[string, []push.Row] {
	return func(yield func(string, []push.Row) bool) {
		for i := range m.parts {
			p := &m.parts[i]
			p.mu.Lock()
			ids := make([]string, 0, len(p.heads))
			for id := range p.heads {
				ids = append(ids, id)
			}
			p.mu.Unlock()
			for _, id := range ids {
				p.mu.Lock()
				rows := p.history(id)
				p.mu.Unlock()
				if !yield(id, rows) {
					return
				}
			}
		}
	}
}
