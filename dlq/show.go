package dlq

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// View is a dead letter with all that is known about it.
type View struct {
	Letter
	Contents
}

// Contents is what is in a dead letter's record.
type Contents struct {
	StatusID string  `json:"status_id"` // id of its status rows; empty = unknown
	Key      string  `json:"key"`       // masked, unless it is the user's id
	Headers  []Field `json:"headers"`   // in their order; producers' own are masked
	Bytes    int     `json:"bytes"`     // of the value
	Fields   []Field `json:"fields"`    // of the value, masked
}

// ShowOptions say how a dead letter is shown.
type ShowOptions struct {
	Reveal   bool          // with value, key and headers in the clear
	Progress func(Reading) // as in ListOptions
}

// Show is all dead letters of a notification's ID, open or not, or the one at a
// place (topic/partition/offset), as Letter.Place has it. None is not an error.
func (q *Queues) Show(ctx context.Context, word string, o ShowOptions) ([]View, error) {
	views := []View{}
	take := func(r *record) { views = append(views, r.view(time.Now(), o.Reveal)) }
	var err error
	if topic, place, ok := cutTopic(word); ok {
		err = q.at(ctx, topic, place, take)
	} else {
		err = q.each(ctx, &Filter{Marked: true}, o.Progress, func(r *record) error {
			if r.message.ID == word || r.statusID() == word {
				take(r)
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return views, nil
}

// at hands out the dead letter at this place, if it is there.
func (q *Queues) at(ctx context.Context, topic string, place kafka.Place, take func(*record)) error {
	lanes, err := q.Lanes(topic)
	if err != nil {
		return err
	}
	o, err := q.open(ctx, &lanes[0], false)
	if err != nil {
		return err
	}
	defer o.Close()
	there, err := o.Since(ctx, time.Time{})
	if err != nil {
		return err
	}
	if r, ok := there[place.Partition]; !ok || place.Offset < r.From || place.Offset >= r.To {
		return nil
	}
	return o.Read(ctx, kafka.Extent{place.Partition: {From: place.Offset, To: place.Offset + 1}}, func(d *kafka.DeadLetter) error {
		r := o.record(d)
		take(&r)
		return nil
	})
}

// headerLongest is how many bytes of a header's value are shown.
const headerLongest = 512

func (r *record) view(now time.Time, reveal bool) View {
	v := View{r.letter(now, reveal), Contents{StatusID: strings.Clone(r.statusID()), Key: r.key(reveal), Bytes: len(r.Value), Headers: []Field{}, Fields: []Field{}}}
	for _, h := range r.Headers {
		text := string(h.Value)
		// Producers' own headers may contain anything.
		if ours := strings.HasPrefix(h.Key, "pf-") || h.Key == "traceparent"; !ours && !reveal {
			text = fmt.Sprintf("<%d bytes>", len(h.Value))
		}
		v.Headers = append(v.Headers, Field{h.Key, text[:min(len(text), headerLongest)]})
	}
	if r.Value != nil {
		v.Fields = maskedFields(r.Value)
	}
	return v
}

// key is the record's key. It should be the user's id, and may be a token.
func (r *record) key(reveal bool) string {
	if reveal || string(r.Key) == r.message.UserID && r.defect == nil {
		return string(r.Key)
	}
	return fmt.Sprintf("<%d bytes>", len(r.Key))
}
