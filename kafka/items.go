package kafka

import (
	"context"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// decoder decodes the values of a batch. It runs before the tracker, which needs the
// ids. An item that cannot be decoded gets the verdict Dead and stays in the batch.
type decoder func(value []byte, m *push.Message) *push.Defect

// Name implements pipeline.Stage.
func (decoder) Name() pipeline.Step { return pipeline.StepDecode }

// Apply implements pipeline.Stage.
func (decode decoder) Apply(_ context.Context, b *pipeline.Batch) error {
	var last *push.Message
	for i := range push.Yielding(len(b.Items)) {
		it := &b.Items[i]
		if it.Verdict != push.Undecided {
			continue // already decided: it is too large
		}
		if it.Value == nil {
			it.Decide(push.Dead, push.EmptyValue, "")
		} else if d := decode(it.Value, &it.Message); d != nil {
			it.Decide(push.Dead, d.Reason, d.Field)
		} else {
			if last != nil {
				sameNames(&it.Message, last)
			}
			last = &it.Message
		}
	}
	return nil
}

// sameNames gives m the names of the message before it where they are the same, as most are
// in most topics. What stages compare is then in a cache already, and often the very
// same text.
func sameNames(m, before *push.Message) {
	for _, names := range [...][2]*string{{&m.App, &before.App}, {&m.Type, &before.Type}, {&m.SenderID, &before.SenderID},
		{&m.Campaign, &before.Campaign}, {&m.PushType, &before.PushType}, {&m.Locale, &before.Locale}} {
		if name := names[0]; *name == *names[1] {
			*name = *names[1]
		}
	}
}

// contained decodes a batch. A record that makes the decoder panic is dead. If there
// are so many that the decoder itself must be at fault, it returns an error.
func (decode decoder) contained(b *pipeline.Batch) error {
	return pipeline.Contain(context.Background(), decode, b, func(found pipeline.Poisoned) {
		b.Poisoned = &found
		for _, it := range found.Dead {
			it.Message = push.Message{} // it may be half decoded
		}
	})
}

// items makes items from records. Their values are not decoded yet.
func (t *topic) items(records []polledRecord) []pipeline.Item {
	items := make([]pipeline.Item, len(records))
	for i := range records {
		it, h := &items[i], &records[i]
		it.Partition, it.Offset = h.partition, h.offset
		at := push.At(h.timestamp)
		it.Timestamp, it.FirstSeen, it.Confirm = at, at, h.undated
		it.Key, it.Value, it.Trace, it.Size = h.key, h.value, h.trace, h.size
		if h.headers != nil {
			it.Attempt, it.Hops, it.Redrive, it.Devices = h.headers.attempt, h.headers.hops, h.headers.redrive, h.headers.devices
			it.Allowed, it.Paid = h.headers.allowed, h.headers.paid
			it.HandedAs = h.headers.state
			if !h.headers.firstSeen.IsZero() {
				it.FirstSeen = push.At(h.headers.firstSeen)
			}
			_, it.NotBefore = t.due(h)
		}
		if t.admitted && has(it.Trace, HeaderAdmitted) {
			it.Paid = true
		}
		if h.tooLarge {
			it.Decide(push.Dead, push.TooLarge, h.large)
		}
	}
	return items
}

// markReread marks items below the offset that was committed when the assignment
// began: their intents are read, and they are never sent.
func (a *assignment) markReread(items []pipeline.Item) {
	for i := range items {
		if items[i].Offset >= a.reread {
			return
		}
		items[i].Reread, items[i].Confirm = true, true
	}
}

func batchBytes(b *pipeline.Batch) (n int) {
	for i := range b.Items {
		it := &b.Items[i]
		n += keptBytes(it.Key, it.Value, it.Trace, it.Devices)
	}
	return n
}
