package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/inbox"
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

// message is one that has been checked and can be produced. It shares no memory with the
// body that it came in.
type message struct {
	id     string
	app    string
	owner  owner
	lane   *lane
	record Record
	fanout uuid.UUID // by which fan-outs know it; zero = it is for one receiver
	clicks bool      // its notifications have click tokens
	named  bool      // its id is the caller's
	sum    uint64    // of its body
	sums   []uint64  // those that may be kept of it in place of sum; nil = no other one
}

// choice is what a body says to the gateway, and not to the workers. It may share the
// body's memory.
type choice struct {
	service, mode, sender []byte
	clicks                bool
}

// check is how the messages of one request are checked.
type check struct {
	caller  *Caller
	key     string // of the request's Idempotency-Key; empty = none
	haveIDs bool   // each message must have an id of its own
	many    bool   // they are for many receivers each
	now     time.Time
	read    push.Message // memory for the one that is checked
}

// accept checks a body as a worker would, and more, and makes the record of it, in out.
// Without an Idempotency-Key and an id of its own a message gets a new id, unless it must
// have one.
func (g *Gateway) accept(k *check, body []byte, out *message) *Problem {
	c, m := k.caller, &k.read
	d := decode.Message(body, m)
	nameless := d != nil && d.Reason == push.MissingField && d.Field == "id"
	if d != nil && !nameless {
		return refused(d).of(strings.Clone(m.ID))
	}
	says, problem := read(body)
	if problem == nil && len(says.sender) > 0 && string(says.sender) != c.Sender {
		problem = newProblem(codeForeignSender, "sender_id comes from the key: leave it out").at("/sender_id")
	}
	if problem != nil {
		return problem.of(strings.Clone(m.ID))
	}
	id, problem := k.identify(g.ids)
	if problem != nil {
		return problem.of(strings.Clone(m.ID))
	}
	to := ownerOf(m)
	if to.user == "" {
		id = strings.Clone(id) // a sum with nothing is no copy
	} else {
		texts := id + to.user // one piece of memory for both
		id, to.user = texts[:len(id)], texts[len(id):]
	}
	value := compose(body, id, c.Sender, len(to.key()))
	// A worker must be able to read the value. Without an id it is checked as a whole: the
	// body was read no further than to that. With one, the value has the body's members but
	// for those that were read here, and an id and a sender that are good, so that only its
	// length may be too much.
	if nameless {
		d = decode.Message(value, m)
	} else if len(value) > decode.MaxValue {
		d = &push.Defect{Reason: push.TooLarge}
	}
	if d != nil {
		return refused(d).of(id)
	}
	app, known := g.apps[m.App]
	switch {
	case !c.apps[m.App]:
		return newProblem(codeForeignApp, "this key is not for the app that the message names").at("/app").of(id)
	case !known:
		return refused(&push.Defect{Reason: push.UnknownApp, Field: "app"}).of(id)
	}
	// The name may be written with escapes; to look whether it can be there is cheap.
	if (bytes.Contains(m.Data, []byte(inbox.NoticeMember)) || bytes.IndexByte(m.Data, '\\') >= 0) && hasData(value, inbox.NoticeMember) {
		return newProblem(codeInvalidField, inbox.NoticeMember+" is the fleet's: it says that a text is read elsewhere").at("/data/" + inbox.NoticeMember).of(id)
	}
	l, problem := g.lane(&says)
	if problem != nil {
		return problem.of(id)
	}
	if says.clicks {
		if value, problem = g.clickable(k, value, id, to); problem != nil {
			return problem.of(id)
		}
	}
	all := append(value, to.key()...)
	*out = message{id: id, app: app, owner: to, lane: l, clicks: says.clicks, named: !nameless || k.key != "", sum: sumOf(body),
		record: Record{Topic: l.Topic, Key: all[len(value):], Value: all[:len(value):len(value)], At: k.now}}
	return nil
}

// refused is the problem of a defect, in the words of package explain.
func refused(d *push.Defect) *Problem { return refusal(d, explain.Reason(string(d.Reason), "")) }

// identify decides the id of the message that was read. It may share its memory.
func (k *check) identify(ids idKeys) (string, *Problem) {
	m, key, now := &k.read, k.key, k.now
	switch {
	case m.ID != "" && key != "":
		return "", newProblem(codeIDAndKey, "the message has an id, and the request an Idempotency-Key: give one of them")
	case m.ID != "":
		if at, ok := push.MintedAt(m.ID); ok && at.After(now.Add(ahead)) {
			return "", newProblem(codeFutureID, "the time in the id is more than a minute ahead of the gateway's clock").at("/id")
		}
		return m.ID, nil
	case k.haveIDs:
		return "", refused(&push.Defect{Reason: push.MissingField, Field: "id"})
	case key != "":
		if at, ok := push.MintedAt(key); ok && at.After(now.Add(ahead)) {
			return "", newProblem(codeFutureID, "the time in the Idempotency-Key is more than a minute ahead of the gateway's clock")
		}
		return ids.derive(k.caller.Sender, m.App, ownerOf(m), key, now), nil
	}
	id, err := newID(now)
	if err != nil {
		return "", newProblem(codeInternal, "no id could be made")
	}
	return id, nil
}

// lane is where a message goes.
func (g *Gateway) lane(says *choice) (*lane, *Problem) {
	first := g.first[string(says.service)]
	switch {
	case len(says.service) == 0:
		return nil, newProblem(codeNoService, "the message names no service_type; there are "+strings.Join(g.services, ", ")).at("/service_type")
	case first == nil:
		return nil, newProblem(codeNoLane, "there is no such service_type; there are "+strings.Join(g.services, ", ")).at("/service_type")
	case len(says.mode) == 0:
		return first, nil
	}
	mode, known := parseMode(string(says.mode))
	if !known {
		return nil, newProblem(codeBadMode, "want at_least_once, at_most_once or exactly_once").at("/mode")
	}
	l := g.routes[route{string(says.service), mode}]
	if l == nil {
		return nil, newProblem(codeNoLane, fmt.Sprintf("service type %s has no lane with mode %s", says.service, mode)).at("/mode")
	}
	return l, nil
}

// The members of a body that are not part of the record.
const (
	memberService = "service_type"
	memberMode    = "mode"
	memberSender  = "sender_id"
	memberClicks  = "clicks"
	memberID      = "id"
	memberData    = "data"
)

// read reads what a body says to the gateway. The decoder has found the body readable.
func read(body []byte) (says choice, problem *Problem) {
	members(body, func(name, _, value []byte) {
		var to *[]byte
		switch string(name) {
		case memberService:
			to = &says.service
		case memberMode:
			to = &says.mode
		case memberSender:
			to = &says.sender
		case memberClicks:
			if says.clicks = value[0] == 't'; value[0] != 't' && value[0] != 'f' && value[0] != 'n' && problem == nil {
				problem = refused(&push.Defect{Reason: push.WrongType, Field: memberClicks})
			}
			return
		default:
			return
		}
		switch {
		case value[0] == '"':
			*to = unescaped(value)
		case value[0] != 'n' && problem == nil: // null leaves it empty
			problem = refused(&push.Defect{Reason: push.WrongType, Field: string(name)})
		}
	})
	return says, problem
}

// compose makes the record's value of a body: id and sender_id are ours, what the body
// says to the gateway is left out, and all else stays as it is. It has room for so many
// bytes more.
func compose(body []byte, id, sender string, more int) []byte {
	out := make([]byte, 0, len(body)+len(id)+len(sender)+len(`{"id":"","sender_id":""}`)+more)
	out = append(out, `{"id":`...)
	out = appendQuoted(out, id)
	out = append(out, `,"sender_id":`...)
	out = appendQuoted(out, sender)
	members(body, func(name, whole, _ []byte) {
		switch string(name) {
		case memberID, memberSender, memberService, memberMode, memberClicks:
			return
		}
		out = append(append(out, ','), whole...)
	})
	return append(out, '}')
}

// appendQuoted appends a string of JSON.
func appendQuoted(out []byte, s string) []byte {
	if verbatim(s) {
		return append(append(append(out, '"'), s...), '"')
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always encode
	}
	return append(out, text...)
}

// verbatim reports whether a string of JSON can have a text as it is.
func verbatim(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// members calls each with the members of the object that text is, in order: the name,
// all of the member, and its value. Text must be one that decode.Message can read.
func members(text []byte, each func(name, whole, value []byte)) {
	i := 0
	for i < len(text) && text[i] != '{' {
		i++
	}
	for i++; i < len(text); {
		switch text[i] {
		case '"':
			start := i
			i = endOfString(text, i)
			name := unescaped(text[start:i])
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

// unescaped is what a string of JSON says, in its own memory if it has no escapes.
func unescaped(quoted []byte) []byte {
	inside := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // it is readable
	return []byte(text)
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
