package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
)

// Firsts keeps for a while where the first record of each message is, so that a repeat
// gets the first receipt and is not written again. It is an aid: what it does not know is
// written again with the same id, and workers find that it is a copy.
type Firsts interface {
	// Find appends what is kept under each name, in their order; "" = nothing, or it was not
	// known in time. It waits for a small part of a second at the most.
	Find(ctx context.Context, names [][16]byte, found []string) []string
	// Keep keeps a value under a name that has none. It returns at once, with a copy of it.
	Keep(name [16]byte, value []byte)
}

// looking is memory for what a request looks for.
type looking struct {
	entries []*entry
	names   [][16]byte
	found   []string
	value   []byte // that is to be kept
}

func (l *looking) release() {
	clear(l.entries)
	clear(l.found)
	l.entries, l.names, l.found = l.entries[:0], l.names[:0], l.found[:0]
}

// recall looks for messages that were accepted before. Only those can have been whose id
// is the caller's: what was given a new id is new.
func (g *Gateway) recall(ctx context.Context, s *sending) {
	if s.firsts = g.o.Firsts; s.firsts == nil {
		return
	}
	l := &s.looking
	for _, e := range s.entries {
		if e.goes() {
			if e.name = nameOf(s.caller.Sender, &e.message); e.named {
				l.entries, l.names = append(l.entries, e), append(l.names, e.name)
			}
		}
	}
	if len(l.names) == 0 {
		return
	}
	began := time.Now()
	l.found = s.firsts.Find(ctx, l.names, l.found)
	for i, value := range l.found {
		if value != "" {
			g.repeated(ctx, s, l.entries[i], value)
		}
	}
	s.spent += time.Since(began)
}

// repeated decides what a message is of which something is kept: a repeat of what was
// accepted, or another message with its id. What cannot be read is not known, nor is what
// went to a topic that is not there any more.
func (g *Gateway) repeated(ctx context.Context, s *sending, e *entry, value string) {
	sum, first, ok := parseFirst(&e.message, value)
	if !ok || !first.plausible(s.now) {
		return
	}
	l := g.lanes[first.lane]
	switch {
	case l != nil && e.fanout == uuid.UUID{} && g.remade(ctx, l, first.topic):
	case sum != e.sum && !slices.Contains(e.sums, sum):
		g.o.Metrics.refused(codeIDTaken)
		e.problem = newProblem(codeIDTaken, "another message with this id, or with this Idempotency-Key, was accepted at "+
			first.at.Format(time.RFC3339Nano)+" and stands; this one was not sent").of(e.id)
	default:
		g.repeats(e, first)
	}
}

// repeats makes a message a repeat of what was accepted first.
func (g *Gateway) repeats(e *entry, first *claim) {
	label := first.lane
	if g.lanes[label] == nil {
		label = "other" // it was configured once
	}
	g.o.Metrics.sent(label, "repeated")
	e.first = first
}

// plausible reports whether a gateway can have kept what was read: it is signed.
func (c *claim) plausible(now time.Time) bool {
	return keyName.MatchString(c.lane) && keyName.MatchString(c.service) && !c.at.After(now.Add(ahead)) && c.at.After(now.Add(-mostKept))
}

// mostKept is the longest that anything is kept (gateway.repeats), and some more.
const mostKept = 31 * 24 * time.Hour

// remade reports whether a lane's topic is another one than it was.
func (g *Gateway) remade(ctx context.Context, l *lane, was [16]byte) bool {
	topic, known := g.progress.knownTopic(l.Name)
	if !known {
		ctx, cancel := context.WithTimeout(ctx, g.o.Times.Confirm/2)
		defer cancel()
		topic = g.progress.topicOf(ctx, l.Name)
	}
	return topic != was && topic != [16]byte{} && was != [16]byte{}
}

// keep keeps where the first record of a message is. The message must not change while
// that is said. It returns the memory that it was given, for the next one.
func (s *sending) keep(e *entry, at Place, memory []byte) []byte {
	if s.firsts == nil {
		return memory
	}
	c := s.claimOf(e, at)
	memory = formatFirst(memory[:0], e.sum, &c)
	s.firsts.Keep(e.name, memory)
	return memory
}

// claimOf is what the receipt of a message says that is at a place.
func (s *sending) claimOf(e *entry, at Place) claim {
	c := claim{id: e.id, mode: e.lane.Mode, lane: e.lane.Name, service: e.lane.ServiceType, app: e.app, owner: e.owner, topic: e.topic, place: at, at: s.now}
	if e.fanout != (uuid.UUID{}) {
		c.topic = e.fanout
	}
	return c
}

// nameOf is the name under which the first record of a message is kept. An id is the
// sender's own; that of a message to many also depends on who they are. It tells neither.
func nameOf(sender string, m *message) [16]byte {
	b := appendText(make([]byte, 0, 128), sender)
	b = append(appendText(b, m.id), m.fanout[:]...)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

// sumBytes is how many bytes the sum of a body takes before what is kept of a message.
const sumBytes = 8

// formatFirst appends what is kept of a message: the sum of its body, and what its receipt
// says but for the app and the receiver, who are a repeat's own.
func formatFirst(out []byte, sum uint64, c *claim) []byte {
	bare := *c
	bare.app, bare.owner = "", owner{}
	return appendClaim(binary.BigEndian.AppendUint64(out, sum), &bare)
}

// parseFirst reads what formatFirst made, for a repeat of it.
func parseFirst(m *message, value string) (sum uint64, c *claim, ok bool) {
	if len(value) < sumBytes+2 || value[sumBytes] != claimVersion {
		return 0, nil, false
	}
	b := []byte(value)
	c, ok = parseClaim(m.id, b[sumBytes:])
	if !ok || m.fanout != (uuid.UUID{}) && c.topic != m.fanout {
		return 0, nil, false
	}
	c.app, c.owner = m.app, m.owner
	return binary.BigEndian.Uint64(b), c, true
}

// sumOf is a sum of what a body says, in whatever order and spaces its members are. Its id
// and its sender are not in it, nor is what means as much as nothing: null, an empty text,
// and no clicks. The decoder has found the body readable.
func sumOf(body []byte) (sum uint64) {
	members(body, func(name, _, value []byte) {
		switch n := string(name); {
		case n == memberID, n == memberSender, string(value) == `""`, n == memberClicks && value[0] == 'f':
			return
		case n == memberMode:
			if mode, known := parseMode(string(unescaped(value))); known {
				value = appendQuoted(nil, string(mode))
			}
		}
		sum += memberSum(name, value, 0)
	})
	return sum
}

// deepest is how far inside one another values are summed up part by part.
const deepest = 16

// memberSum is the sum of one member; 0 = it is null.
func memberSum(name, value []byte, depth int) uint64 {
	if value[0] == 'n' {
		return 0
	}
	return joined(xxhash.Sum64(name), value[0], valueSum(value, depth))
}

// valueSum is the sum of a value: of an object whatever the order of its members, of an array
// in the order of its elements.
func valueSum(value []byte, depth int) (sum uint64) {
	switch {
	case value[0] == '"':
		return xxhash.Sum64(unescaped(value))
	case value[0] == '{' && depth < deepest:
		members(value, func(name, _, value []byte) { sum += memberSum(name, value, depth+1) })
		return sum
	case value[0] == '[' && depth < deepest:
		elements(value, func(element []byte) { sum = joined(sum, element[0], valueSum(element, depth+1)) })
		return sum
	}
	return xxhash.Sum64(value)
}

func joined(a uint64, kind byte, b uint64) uint64 {
	var all [17]byte
	binary.BigEndian.PutUint64(all[:], a)
	all[8] = kind
	binary.BigEndian.PutUint64(all[9:], b)
	return xxhash.Sum64(all[:])
}

// elements calls each with the elements of an array that is readable, in order.
func elements(array []byte, each func(element []byte)) {
	for i := 1; i < len(array); {
		if c := array[i]; c == ',' || c == ']' || blank(c) {
			i++
			continue
		}
		at := i
		if i = endOfValue(array, i); i == at {
			return // it is not readable
		}
		each(array[at:i])
	}
}
