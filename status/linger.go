package status

import (
	"container/heap"
	"time"
)

// promptly is how long the rows of a prompt call linger at the most.
const promptly = 10 * time.Millisecond

// lingers reports whether the batch waits for more rows, and not for its back-off.
func (b *batch) lingers() bool { return b.index >= 0 && b.attempts == 0 }

// schedule makes b due after a delay.
func (g *merger) schedule(b *batch, rest time.Duration) {
	b.due = time.Now().Add(rest)
	heap.Push(g.timersOf(b), b)
	g.tell(b)
}

// timersOf are those in which the batch waits, or would.
func (g *merger) timersOf(b *batch) *dueHeap {
	if b.attempts == 0 {
		return &g.fresh
	}
	return &g.failed
}

// tell wakes the clock: it may wait for another batch than the one that is due next.
func (g *merger) tell(b *batch) {
	if b.index == 0 {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// hasten lets a lingering batch go promptly, because of its newest row.
func (g *merger) hasten(b *batch) {
	if b.prompt {
		return
	}
	b.prompt = true
	if due := time.Now().Add(promptly); due.Before(b.due) {
		b.due = due
		heap.Fix(&g.fresh, b.index)
		g.tell(b)
	}
}

// ripen lets go what is due next, as long as too many rows linger: the more rows come
// the sooner batches are full enough, and the more of them a crash would repeat.
func (g *merger) ripen() {
	for g.lingering > g.opts.lingering {
		g.ripe(g.fresh[0])
	}
}

// ripe makes a batch that waits for its time ready.
func (g *merger) ripe(b *batch) {
	g.uncount(b)
	heap.Remove(g.timersOf(b), b.index)
	g.push(b)
}

// uncount is for a batch that leaves its timers.
func (g *merger) uncount(b *batch) {
	if b.lingers() {
		g.lingering -= b.rows.len()
	}
}

// expire makes every due batch ready, and returns the time until the next one
// is due.
func (g *merger) expire() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, next := time.Now(), time.Hour
	for _, h := range []*dueHeap{&g.fresh, &g.failed} {
		for len(*h) > 0 {
			if rest := (*h)[0].due.Sub(now); rest > 0 {
				next = min(next, rest)
				break
			}
			g.ripe((*h)[0])
		}
	}
	return next
}

// dueHeap orders batches by the time they are due.
type dueHeap []*batch

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	b := x.(*batch)
	b.index = len(*h)
	*h = append(*h, b)
}

func (h *dueHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	b.index = -1
	return b
}
