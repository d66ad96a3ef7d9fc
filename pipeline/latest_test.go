package pipeline_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// lives is what a Latest is told of items, and what of that was not in order.
type lives struct {
	mu    sync.Mutex
	of    map[*pipeline.Item]*life // nil = it is told of none
	items []*pipeline.Item         // by their places, from 1 on
	wrong []string
}

// life is what was told of one item.
type life struct{ written, handedOver, ended bool }

// told notes what is told of items that are in flight.
func (l *lives) told(what string, items []*pipeline.Item, note func(*life)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		switch is := l.of[it]; {
		case is == nil:
			l.wrong = append(l.wrong, it.ID+" is "+what+" before it begins")
		case is.ended:
			l.wrong = append(l.wrong, it.ID+" is "+what+" after its end")
		case what != "ended" && (it.CollapseKey == "" || it.Derived):
			l.wrong = append(l.wrong, it.ID+" is "+what+" without a key of its sender's")
		default:
			note(is)
		}
	}
}

func (l *lives) Begin(items []pipeline.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[*pipeline.Item]*life)
	}
	for i := range items {
		if l.of[&items[i]] != nil {
			l.wrong = append(l.wrong, items[i].ID+" begins twice")
		}
		l.of[&items[i]] = new(life)
		l.items = append(l.items, &items[i])
		items[i].Place = uint32(len(l.items))
	}
}

func (l *lives) End(places []uint32) {
	var items []*pipeline.Item
	l.mu.Lock()
	for _, place := range places {
		items = append(items, l.items[place-1])
	}
	l.mu.Unlock()
	l.told("ended", items, func(is *life) { is.ended = true })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		if is := l.of[it]; is != nil && is.written && !is.handedOver {
			l.wrong = append(l.wrong, it.ID+" is carried on, and its key was not opened")
		}
	}
}

func (l *lives) HandedOver(_ context.Context, items []*pipeline.Item) error {
	l.told("handed over", items, func(is *life) { is.handedOver = true })
	return nil
}

func (l *lives) Accepted(_ context.Context, items []*pipeline.Item) error {
	l.told("noted", items, func(*life) {})
	return nil
}

// written notes a record that carries an item on: whoever reads it asks by a key that was
// opened before the item has ended here.
func (l *lives) written(h *pipeline.Handover) {
	switch h.To {
	case pipeline.ToRetry, pipeline.ToDefer, pipeline.ToHold, pipeline.ToDLQ:
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if is := l.of[h.Item]; l.of != nil && h.Item.CollapseKey != "" && !h.Item.Derived {
		if is == nil || is.ended {
			l.wrong = append(l.wrong, fmt.Sprintf("%s is written to %d: %+v", h.Item.ID, h.To, is))
			return
		}
		is.written = true
	}
}

// applied checks a batch that comes to a stage.
func (l *lives) applied(b *pipeline.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range b.Items {
		if is := l.of[&b.Items[i]]; l.of != nil && (is == nil || is.ended) {
			l.wrong = append(l.wrong, fmt.Sprintf("%s is in a stage: %+v", b.Items[i].ID, is))
		}
	}
}

// check checks that all that was in order, and that everything has ended.
func (l *lives) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 {
		t.Errorf("told of items out of order, %d times: %v", len(l.wrong), l.wrong[:min(5, len(l.wrong))])
	}
	if len(l.of) == 0 {
		t.Error("nothing is told of any item")
	}
	open := 0
	for _, is := range l.of {
		if !is.ended {
			open++
		}
	}
	if open > 0 {
		t.Errorf("%d of %d items never ended: what comes under their keys is noted for ever", open, len(l.of))
	}
}

// keys gives records collapse keys: of a third of them their senders', of others derived ones.
func keys(i int, it *pipeline.Item) {
	switch i % 6 {
	case 1, 4:
		it.CollapseKey = "k"
	case 2:
		it.CollapseKey, it.Derived = push.DerivedCollapseKey(it.ID), true
	}
}

// slowKeys is a world whose Redis takes long to open keys.
type slowKeys struct {
	*world
	opens time.Duration
	asked []*pipeline.Item // guarded by world.mu
}

func (s *slowKeys) HandedOver(ctx context.Context, items []*pipeline.Item) error {
	s.mu.Lock()
	s.asked = append(s.asked, items...)
	s.mu.Unlock()
	time.Sleep(s.opens)
	return s.world.HandedOver(ctx, items)
}

// The rows of what is handed over do not wait until its keys are open: who stops meanwhile
// would send it twice. Its end does. What is not of the same group may wait its turn behind it.
func TestRowsDoNotWaitForKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 30)
		s := &slowKeys{world: w, opens: time.Minute}
		pr := &slow{w: w, wait: time.Millisecond, answer: func(*pipeline.Delivery) push.Result {
			return push.Result{Class: push.Again, Reason: "ServiceUnavailable"}
		}}
		p := w.pipelineTo(t, 300, pr, pr)
		p.Options().Stages[0], p.Options().Latest = oneDevice{}, s
		stop := w.starts(t, p)
		time.Sleep(s.opens / 2)
		w.mu.Lock()
		if len(s.asked) == 0 {
			t.Error("no key is opened")
		}
		for _, it := range s.asked {
			if len(w.rows[it.ID]) == 0 || w.retried[it.ID] == 0 || w.seen[it.ID] != 0 {
				t.Errorf("while its key is opened, %s has %d rows, %d records, and ended %d times", it.ID, len(w.rows[it.ID]), w.retried[it.ID], w.seen[it.ID])
			}
		}
		w.mu.Unlock()
		w.wait(t)
		stop()
		pr.out.Wait()
		w.lives.check(t)
	})
}
