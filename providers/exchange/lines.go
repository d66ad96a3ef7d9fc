package exchange

import (
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// What loops read ahead, for push.Prefetching.

// usualValue is how much of a record's value is read ahead, in bytes: most messages are
// shorter, and what is behind it comes by itself, as it is read in order.
const usualValue = 1024

// linesToWrite sums a byte of each line that the request for d is written from: those of
// its message begin all over the value.
func linesToWrite(d *pipeline.Delivery) byte {
	m := &d.Item.Message
	sum := byte(d.Deadline) + byte(d.Item.Attempt) + push.Ends(d.Device.Token) + push.Ends(d.Device.Hash) +
		byte(len(m.ID)) + byte(len(m.CollapseKey)) + byte(len(m.Title)) + byte(len(m.Body)) + byte(len(m.ThreadID)) + byte(len(m.FCM))
	const line = 64
	for at := 0; at < min(len(d.Item.Value), usualValue); at += line {
		sum += d.Item.Value[at]
	}
	return sum
}

// linesToRead sums a byte of each line that an answer is read into.
func linesToRead(r *h2.Request) byte {
	d := r.Tag.(*Draft).delivery
	return byte(r.Outcome) + byte(r.Answer.Status) + byte(d.Result.Class) + byte(d.Verdict)
}
