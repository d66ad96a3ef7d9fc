package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// pack puts the entries into as few records as MaxRecord allows. Each record is
// head with its number, and its part of the entries as the member name. One
// entry is under 8 KB, because each of its fields is bounded.
func pack[T any](head Event, name string, entries []T, number func() int64) (records [][]byte) {
	var b []byte
	var one bytes.Buffer
	encoder := json.NewEncoder(&one)
	for i := range entries {
		one.Reset()
		if err := encoder.Encode(&entries[i]); err != nil {
			panic("encoding an event: " + err.Error()) // a bug, as in encoded
		}
		e := bytes.TrimSuffix(one.Bytes(), []byte("\n"))
		if len(b)+len(e)+len(",]}") > MaxRecord {
			records, b = append(records, append(b, "]}"...)), nil
		}
		if b == nil {
			head.Number = number()
			b = encoded(head)
			b = append(b[:len(b)-len("}")], `,"`+name+`":[`...)
			b = slices.Grow(b, min(MaxRecord-len(b), (len(entries)-i)*(len(e)+8))) // most are about as long
		} else {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	return append(records, append(b, "]}"...))
}

// encoded returns v as JSON. An event holds nothing that JSON cannot express, and
// bytes that are not UTF-8 are replaced, so an error is a bug.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("encoding an event: " + err.Error())
	}
	return b
}

// countsOf returns the counts in a fixed order.
func countsOf(taken map[pipeline.Kind]int64) []Count {
	counts := make([]Count, 0, len(taken))
	for k, n := range taken {
		counts = append(counts, countOf(&k, n))
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.App, b.App), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason))
	})
	return counts
}

// countOf returns the count of n of a kind.
func countOf(k *pipeline.Kind, n int64) Count {
	c := Count{Lane: k.Lane, App: k.App, Type: k.Type, State: duplicateState, Reason: k.Reason, N: n}
	if k.Platform != push.NoPlatform {
		c.Provider = k.Platform.String()
	}
	if k.State != 0 {
		c.State = k.State.String()
	}
	return c
}

// names are the names that are kept apart, at most maxNames: others are counted as
// otherName. The zero value is empty.
type names struct {
	known map[string]*usedName
}

type usedName struct {
	text string
	at   time.Time // when it was last asked for
}

// name returns the name to count s under: a copy, which may be kept.
func (n *names) name(s string, now time.Time) string {
	if u := n.known[s]; u != nil {
		u.at = now
		return u.text
	}
	if len(n.known) >= maxNames {
		return otherName
	}
	if n.known == nil {
		n.known = make(map[string]*usedName)
	}
	u := &usedName{text: strings.Clone(s), at: now}
	n.known[u.text] = u
	return u.text
}

// forget drops the names that have not been used for nameAge.
func (n *names) forget(now time.Time) {
	for s, u := range n.known {
		if now.Sub(u.at) > nameAge {
			delete(n.known, s)
		}
	}
}
