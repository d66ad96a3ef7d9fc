package calls

import (
	"bytes"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// The headers that announce a limit, by their place in what Limits.Read is handed. The first
// two are of draft-ietf-httpapi-ratelimit-headers as it is now, the next three of its first
// eight versions, the rest what many servers had before.
const (
	limitNow = iota
	limitPolicy
	draftLimit
	draftLeft
	draftReset
	oldLimit
	oldLeft
	oldReset
	limitHeaders // how many there are
)

// LimitHeaders are the names of the headers that announce a limit, in the order in which
// Limits.Read wants their values.
func LimitHeaders() []string {
	return []string{
		limitNow: "ratelimit", limitPolicy: "ratelimit-policy",
		draftLimit: "ratelimit-limit", draftLeft: "ratelimit-remaining", draftReset: "ratelimit-reset",
		oldLimit: "x-ratelimit-limit", oldLeft: "x-ratelimit-remaining", oldReset: "x-ratelimit-reset",
	}
}

// mostLeft bounds what a provider is believed to take in a window: more is nonsense.
const mostLeft = 1e12

// Announced is what a provider says before its limit is hit: it takes Left more until a
// window Ends, from now on. Ends is above 0 and at most LongestWait: as servers say it in
// whole seconds, it may be wrong by one.
type Announced struct {
	Left int
	Ends time.Duration
}

// Limits hands on what a route's answers announce. The zero value hands on nothing; it is
// safe for concurrent use.
type Limits struct {
	listener atomic.Pointer[func(now time.Time, left int, ends time.Duration)]
}

// Listen has each announcement handed to tell, by the bounds of Announced. It is called on a
// connection's reader, and must not block.
func (l *Limits) Listen(tell func(now time.Time, left int, ends time.Duration)) {
	l.listener.Store(&tell)
}

// Heard looks at an answer: values are those of LimitHeaders, date that of Date. An answer
// that announces nothing costs a few nanoseconds, and none is believed beyond the bounds of
// Announced.
func (l *Limits) Heard(values [][]byte, date []byte) {
	if len(values) < limitHeaders || len(values[limitNow])+len(values[draftLeft])+len(values[oldLeft]) == 0 {
		return
	}
	tell := l.listener.Load()
	if tell == nil {
		return
	}
	now := time.Now()
	if a, ok := readAnnounced(values, date, now); ok {
		(*tell)(now, a.Left, a.Ends)
	}
}

// readAnnounced is the announcement of an answer; of several the one that leaves the least a
// second.
func readAnnounced(values [][]byte, date []byte, now time.Time) (least Announced, ok bool) {
	consider := func(left, limit int64, ends time.Duration) {
		if left < 0 || left > mostLeft || limit > 0 && left > limit || ends <= 0 || ends > LongestWait {
			return
		}
		a := Announced{int(left), ends}
		if !ok || float64(a.Left)*least.Ends.Seconds() < float64(least.Left)*a.Ends.Seconds() {
			least, ok = a, true
		}
	}
	eachLimit(values[limitNow], func(name []byte, left, seconds int64) {
		consider(left, quotaOf(values[limitPolicy], name), inSeconds(seconds))
	})
	for _, at := range [][3]int{{draftLimit, draftLeft, draftReset}, {oldLimit, oldLeft, oldReset}} {
		if len(values[at[1]]) == 0 {
			continue
		}
		left, isLeft := number(values[at[1]])
		if ends, isEnd := reset(values[at[2]], date, now); isLeft && isEnd {
			limit, _ := number(values[at[0]])
			consider(left, limit, ends)
		}
	}
	return least, ok
}

// inSeconds is so many seconds as a duration; too many are one more than the most.
func inSeconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), int64(LongestWait/time.Second)+1)) * time.Second
}

// epochFrom is the least number of a reset that is a time and no wait, and millisFrom the
// least that is one in milliseconds.
const (
	epochFrom  = 1e9
	millisFrom = 1e12
)

// reset is how long a window goes on: it is given in seconds, or as the time of its end, which
// is measured against the server's own clock where date gives one.
func reset(value, date []byte, now time.Time) (time.Duration, bool) {
	n, ok := number(value)
	if !ok {
		return 0, false
	}
	if n < epochFrom {
		return inSeconds(n), true
	}
	if server, err := http.ParseTime(string(date)); err == nil {
		now = server
	}
	if n < millisFrom {
		n *= 1000
	}
	if n > 1e15 {
		return 0, false
	}
	return time.UnixMilli(n).Sub(now), true
}

// number is the number that a value is, or begins with: some append a policy to it.
func number(value []byte) (int64, bool) {
	if end := bytes.IndexAny(value, ",;"); end >= 0 {
		value = value[:end]
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	return n, err == nil
}

// mostLimits bounds how many limits of one answer are read.
const mostLimits = 8

// eachLimit calls do with the items of a RateLimit header that say both how much is left (r)
// and for how long (t): `"burst";r=100;t=2, "daily";r=50000;t=3600`.
func eachLimit(list []byte, do func(name []byte, left, seconds int64)) {
	for range mostLimits {
		name, of, rest := item(list)
		left, isLeft := parameter(of, 'r')
		seconds, isEnd := parameter(of, 't')
		if isLeft && isEnd {
			do(name, left, seconds)
		}
		if list = rest; len(list) == 0 {
			return
		}
	}
}

// quotaOf is what a RateLimit-Policy allows by that name (q); 0 = it does not say.
func quotaOf(list, name []byte) int64 {
	for range mostLimits {
		policy, of, rest := item(list)
		if bytes.Equal(policy, name) {
			q, _ := parameter(of, 'q')
			return q
		}
		if list = rest; len(list) == 0 {
			return 0
		}
	}
	return 0
}

// item cuts the first item off a list of structured fields (RFC 9651): its name as it is
// written, and its parameters. Commas and semicolons within a string do not end it.
func item(list []byte) (name, parameters, rest []byte) {
	quoted, semicolon := false, -1
	end := len(list)
scan:
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ';' && semicolon < 0:
			semicolon = i
		case c == ',':
			end = i
			break scan
		}
	}
	if end < len(list) {
		rest = list[end+1:]
	}
	if semicolon < 0 {
		return bytes.TrimSpace(list[:end]), nil, rest
	}
	return bytes.TrimSpace(list[:semicolon]), list[semicolon:end], rest
}

// parameter is the whole number of a parameter with a name of one letter.
func parameter(of []byte, name byte) (int64, bool) {
	quoted := false
	for i := 0; i < len(of); i++ {
		switch c := of[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted || c != ';':
		default:
			p := bytes.TrimLeft(of[i+1:], " \t")
			if len(p) > 1 && p[0] == name && p[1] == '=' {
				return number(p[2:])
			}
		}
	}
	return 0, false
}
