package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// Mode is what a lane promises (docs/delivery.md).
type Mode string

// The modes of lanes.
const (
	AtLeastOnce     Mode = "at_least_once"
	AtMostOnce      Mode = "at_most_once"
	EffectivelyOnce Mode = "effectively_once"
)

// exactlyOnce is a word that callers may use for EffectivelyOnce, which is what they
// get, and are told: nobody can promise more.
const exactlyOnce = "exactly_once"

// parseMode reads a caller's word.
func parseMode(word string) (Mode, bool) {
	if word == exactlyOnce {
		return EffectivelyOnce, true
	}
	return Mode(word), slices.Contains([]Mode{AtLeastOnce, AtMostOnce, EffectivelyOnce}, Mode(word))
}

// message is one that has been checked and can be produced.
type message struct {
	id     string
	app    string
	owner  owner
	lane   *Lane
	record Record
}

// choice is what a body says to the gateway, and not to the workers.
type choice struct {
	service, mode, sender string
}

// accept checks a body as a worker would, and more, and makes the record of it. key is
// that of the request's Idempotency-Key; empty = none. Without either, and without an id
// of its own, a message gets a new id, unless it must have one.
func (g *Gateway) accept(c *Caller, body []byte, key string, mustHaveID bool, now time.Time) (*message, *Problem) {
	var m push.Message
	d := decode.Message(body, &m)
	nameless := d != nil && d.Reason == push.MissingField && d.Field == "id"
	if d != nil && !nameless {
		return nil, refused(d).of(strings.Clone(m.ID))
	}
	says, problem := read(body)
	if problem != nil {
		return nil, problem.of(strings.Clone(m.ID))
	}
	if says.sender != "" && says.sender != c.Sender {
		return nil, newProblem(codeForeignSender, "sender_id comes from the key: leave it out").at("/sender_id").of(strings.Clone(m.ID))
	}
	id, problem := g.identify(c, &m, key, mustHaveID, now)
	if problem != nil {
		return nil, problem.of(strings.Clone(m.ID))
	}
	// What is checked here is, byte for byte, what the worker will read.
	value := compose(body, id, c.Sender)
	if d := decode.Message(value, &m); d != nil {
		return nil, refused(d).of(id)
	}
	switch {
	case !c.apps[m.App]:
		return nil, newProblem(codeForeignApp, "this key is not for the app that the message names").at("/app").of(id)
	case !g.apps[m.App]:
		return nil, refused(&push.Defect{Reason: push.UnknownApp, Field: "app"}).of(id)
	}
	lane, problem := g.lane(says)
	if problem != nil {
		return nil, problem.of(id)
	}
	to := ownerOf(&m)
	return &message{id: id, app: strings.Clone(m.App), owner: owner{strings.Clone(to.user), to.device}, lane: lane,
		record: Record{Topic: lane.Topic, Key: []byte(to.key()), Value: value, At: now}}, nil
}

// refused is the problem of a defect, in the words of package explain.
func refused(d *push.Defect) *Problem { return refusal(d, explain.Reason(string(d.Reason), "")) }

// identify decides the id of a message.
func (g *Gateway) identify(c *Caller, m *push.Message, key string, mustHaveID bool, now time.Time) (string, *Problem) {
	switch {
	case m.ID != "" && key != "":
		return "", newProblem(codeIDAndKey, "the message has an id, and the request an Idempotency-Key: give one of them")
	case m.ID != "":
		if at, ok := mintedAt(m.ID); ok && at.After(now.Add(ahead)) {
			return "", newProblem(codeFutureID, "the time in the id is more than a minute ahead of the gateway's clock").at("/id")
		}
		return strings.Clone(m.ID), nil
	case mustHaveID:
		return "", refused(&push.Defect{Reason: push.MissingField, Field: "id"})
	case key != "":
		if at, ok := mintedAt(key); ok && at.After(now.Add(ahead)) {
			return "", newProblem(codeFutureID, "the time in the Idempotency-Key is more than a minute ahead of the gateway's clock")
		}
		return g.ids.derive(c.Sender, m.App, ownerOf(m), key, now), nil
	}
	id, err := newID(now)
	if err != nil {
		return "", newProblem(codeInternal, "no id could be made")
	}
	return id, nil
}

// lane is where a message goes.
func (g *Gateway) lane(says choice) (*Lane, *Problem) {
	first := g.first[says.service]
	switch {
	case says.service == "":
		return nil, newProblem(codeNoService, "the message names no service_type; there are "+strings.Join(g.services, ", ")).at("/service_type")
	case first == nil:
		return nil, newProblem(codeNoLane, "there is no such service_type; there are "+strings.Join(g.services, ", ")).at("/service_type")
	case says.mode == "":
		return first, nil
	}
	mode, known := parseMode(says.mode)
	if !known {
		return nil, newProblem(codeBadMode, "want at_least_once, at_most_once or exactly_once").at("/mode")
	}
	lane := g.routes[route{says.service, mode}]
	if lane == nil {
		return nil, newProblem(codeNoLane, fmt.Sprintf("service type %s has no lane with mode %s", says.service, mode)).at("/mode")
	}
	return lane, nil
}

// The members of a body that are not part of the record.
const (
	memberService = "service_type"
	memberMode    = "mode"
	memberSender  = "sender_id"
	memberID      = "id"
)

// read reads what a body says to the gateway. The decoder has found the body readable.
func read(body []byte) (says choice, problem *Problem) {
	members(body, func(name string, _, value []byte) {
		var to *string
		switch name {
		case memberService:
			to = &says.service
		case memberMode:
			to = &says.mode
		case memberSender:
			to = &says.sender
		default:
			return
		}
		if err := json.Unmarshal(value, to); err != nil && problem == nil { // null leaves it empty
			problem = refused(&push.Defect{Reason: push.WrongType, Field: name})
		}
	})
	return says, problem
}

// compose makes the record's value of a body: id and sender_id are ours, what the body
// says to the gateway is left out, and all else stays as it is.
func compose(body []byte, id, sender string) []byte {
	out := make([]byte, 0, len(body)+len(id)+len(sender)+32)
	out = append(out, `{"id":`...)
	out = appendQuoted(out, id)
	out = append(out, `,"sender_id":`...)
	out = appendQuoted(out, sender)
	members(body, func(name string, whole, _ []byte) {
		switch name {
		case memberID, memberSender, memberService, memberMode:
			return
		}
		out = append(append(out, ','), whole...)
	})
	return append(out, '}')
}

func appendQuoted(out []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always encode
	}
	return append(out, text...)
}

// members calls each with the members of the object that text is, in order: the name,
// all of the member, and its value. Text must be one that decode.Message can read.
func members(text []byte, each func(name string, whole, value []byte)) {
	i := 0
	for i < len(text) && text[i] != '{' {
		i++
	}
	for i++; i < len(text); {
		switch text[i] {
		case '"':
			start := i
			i = endOfString(text, i)
			name := nameOf(text[start:i])
			for i < len(text) && (text[i] == ':' || blank(text[i])) {
				i++
			}
			at := i
			i = endOfValue(text, i)
			each(name, text[start:i], text[at:i])
		case '}':
			return
		default:
			i++
		}
	}
}

func nameOf(quoted []byte) string {
	inside := quoted[1 : len(quoted)-1]
	if !slices.Contains(inside, '\\') {
		return string(inside)
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is readable
	return name
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// endOfString is behind the string that begins at i.
func endOfString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// endOfValue is behind the value that begins at i.
func endOfValue(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			if i = endOfString(text, i); depth == 0 {
				return i
			}
			continue
		case c == '{', c == '[':
			depth++
		case (c == '}' || c == ']') && depth == 0, (c == ',' || blank(c)) && depth == 0:
			return i
		case c == '}', c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return i
}
