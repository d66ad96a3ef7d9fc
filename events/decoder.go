package events

import (
	"encoding/json"
	"fmt"
)

// Decoder decodes records of push.events and drops copies, which Kafka may have
// of a record that a worker produced again. The zero Decoder is ready for use.
// Not safe for concurrent use.
type Decoder struct {
	seen map[string]map[int64]bool // numbers by source
}

// copiesWithin is how many events of the same source a copy may lag behind the
// original. A producer repeats at once, so 10,000, which are hours of events,
// are ample.
const copiesWithin = 10_000

// Decode returns the event in a record's value, or nil for a copy of one that it
// has returned. A state has no number and may be returned twice: the newest counts. The
// error is that of Parse.
func (d *Decoder) Decode(value []byte) (*Event, error) {
	e, err := Parse(value)
	switch {
	case err != nil:
		return nil, err
	case e.State != nil && e.Number == 0:
		return e, nil
	case d.isCopy(e.Source, e.Number):
		return nil, nil
	}
	return e, nil
}

// Parse returns the event in a record's value, which may be a copy. The error says
// why the value is not an event of this version; such a record should be skipped.
func Parse(value []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(value, &e); err != nil {
		return nil, fmt.Errorf("not an event: %w", err)
	}
	if e.Version != Version {
		return nil, fmt.Errorf("version %d; this program knows version %d", e.Version, Version)
	}
	return &e, nil
}

// isCopy reports whether a source's number has come before, and remembers it.
// Numbers that are too old for a copy are forgotten, so that the memory stays
// bounded for each source.
func (d *Decoder) isCopy(source string, number int64) bool {
	if d.seen == nil {
		d.seen = make(map[string]map[int64]bool)
	}
	numbers := d.seen[source]
	if numbers == nil {
		numbers = make(map[int64]bool)
		d.seen[source] = numbers
	}
	if numbers[number] {
		return true
	}
	numbers[number] = true
	if len(numbers) > 2*copiesWithin {
		for n := range numbers {
			if n < number-copiesWithin {
				delete(numbers, n)
			}
		}
	}
	return false
}
