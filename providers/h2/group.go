package h2

import "sync"

// Group hands requests back to one done, one call at a time. What finishes
// during a call is collected for the next: under load groups form by
// themselves, without a goroutine or a timer. It may be used for any number of
// SubmitTo, also at once, and keeps its memory between them.
type Group struct {
	done func([]*Request)

	mu      sync.Mutex
	ready   []*Request
	spare   []*Request // memory of the last call
	noted   bool       // it is on somebody's list to flush
	calling bool
}

// NewGroup returns a Group for done; see Pool.Submit for what done may do.
func NewGroup(done func([]*Request)) *Group { return &Group{done: done} }

// add collects r. It returns true if the caller has to call flush.
func (g *Group) add(r *Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ready = append(g.ready, r)
	first := !g.noted
	g.noted = true
	return first
}

// flush calls done until nothing is left, unless another goroutine is doing so.
func (g *Group) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noted = false
	if g.calling {
		return
	}
	g.calling = true
	for len(g.ready) > 0 {
		batch := g.ready
		g.ready, g.spare = g.spare[:0], nil
		g.mu.Unlock()
		g.done(batch)
		clear(batch)
		g.mu.Lock()
		g.spare = batch
	}
	g.calling = false
}

// handback is what one goroutine is about to hand back: it collects under any
// lock, and flushes without one. Only its owner touches it.
type handback struct{ groups []*Group }

func (h *handback) add(r *Request) {
	g := r.group // once added, r may be handed back, and even be in flight again
	if g.add(r) {
		h.groups = append(h.groups, g)
	}
}

func (h *handback) flush() {
	for i, g := range h.groups {
		h.groups[i] = nil
		g.flush()
	}
	h.groups = h.groups[:0]
}
