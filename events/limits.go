package events

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Limits is how limits stood at one worker, or gateway, since From of their record (member "limits"),
// told about each ten seconds if there is anything to tell.
type Limits struct {
	Senders []SenderLimit `json:"senders,omitempty"` // the fullest first
	// Users are those that rules limited, of recipients or of senders, by rule.
	Users   []LimitedUsers `json:"users,omitempty"`
	Omitted int            `json:"omitted,omitempty"` // entries besides
}

// LimitedUsers is about how many users a rule suppressed something of, or put it off.
type LimitedUsers struct {
	Rule   string  `json:"rule"`
	Sketch *Sketch `json:"sketch"`
}

// SenderLimit is the bucket of a sender by a rule. A share of 1 is a bucket without tokens,
// and what is above it is owed: so many wait for their turn. All workers take from the same
// bucket. What does not fill is a fixed window, which begins and ends with the clock (of
// UTC) and is empty then: so are the limits of gateways.
type SenderLimit struct {
	Rule    string  `json:"rule"`
	Sender  string  `json:"sender"`
	Limit   int     `json:"limit"`             // notifications in a window
	Window  float64 `json:"window"`            // seconds
	Fills   float64 `json:"fills,omitempty"`   // seconds in which an empty bucket fills, if nothing is taken: its share falls by 1
	Share   float64 `json:"share"`             // the greatest
	Now     float64 `json:"now"`               // at the time of the record, after this worker's last answer
	Limited int64   `json:"limited,omitempty"` // how often it put something off, or refused it, at this worker
}

// limitsRoom is for entries of Limits, without what is around them.
const limitsRoom = MaxRecord - 1<<10

// Limits returns the record that tells how limits stood since the last one, with the users
// that were limited; nil = there is nothing to tell. If it cannot be produced, the caller
// reports it by Missed. l stays as it is.
func (e *Collector) Limits(l Limits, now time.Time) (record []byte) {
	e.mu.Lock()
	since := e.limitsSince
	e.limitsSince = now
	limited := e.limited
	e.limited = nil
	e.mu.Unlock()
	room := limitsRoom
	l.Senders = fittingOf(l.Senders, &l.Omitted, &room, func(s *SenderLimit) {
		for _, f := range []*float64{&s.Window, &s.Fills, &s.Share, &s.Now} {
			*f = math.Round(1e4*finite(*f)) / 1e4
		}
	})
	l.Users = fittingOf(usersOf(limited), &l.Omitted, &room, func(*LimitedUsers) {})
	if len(l.Senders)+len(l.Users) == 0 {
		return nil
	}
	return encoded(Event{Version: Version, Source: e.source, Number: e.next(), From: since.UTC(), At: now.UTC(), Limits: &l})
}

// maxLimiting bounds the rules whose users are told apart between two records: a
// configuration has few.
const maxLimiting = 200

func usersOf(limited map[string]*Sketch) []LimitedUsers {
	list := make([]LimitedUsers, 0, len(limited))
	for rule, s := range limited {
		list = append(list, LimitedUsers{rule, s})
	}
	slices.SortFunc(list, func(a, b LimitedUsers) int { return cmp.Compare(a.Rule, b.Rule) })
	return list
}

// limitedUser is a user and the rule that limited it, as an index of the group's.
type limitedUser struct {
	rule uint16
	at   sketchPlace
}

// limitingRule is the rule of a limit that a row names.
func limitingRule(r *push.Row) (rule string, is bool) {
	switch r.State {
	case push.StateSuppressed, push.StateHeld:
		if rule, is = strings.CutPrefix(r.Reason, string(push.Limited)+":"); !is {
			rule, is = strings.CutPrefix(r.Reason, string(push.LimitWaits)+":")
		}
	}
	return rule, is
}

// limit notes the user of a row that a limit suppressed or put off.
func (g *group) limit(r *push.Row) {
	rule, is := limitingRule(r)
	if !is {
		return
	}
	i := slices.Index(g.limiting, rule)
	if i < 0 {
		if len(g.limiting) == maxLimiting {
			return
		}
		i = len(g.limiting)
		g.limiting = append(g.limiting, rule)
	}
	g.limited = append(g.limited, limitedUser{uint16(i), placeOfHash(r.UserHash)})
}

// addLimited adds the group's users to those of their rules. The caller holds the lock.
func (g *group) addLimited() {
	if len(g.limited) == 0 {
		return
	}
	e := g.events
	sketches := make([]*Sketch, len(g.limiting))
	for i, rule := range g.limiting {
		s := e.limited[rule]
		if s == nil && len(e.limited) < maxLimiting {
			if e.limited == nil {
				e.limited = make(map[string]*Sketch)
			}
			s = new(Sketch)
			e.limited[strings.Clone(rule)] = s
		}
		sketches[i] = s
	}
	for _, u := range g.limited {
		if s := sketches[u.rule]; s != nil {
			s.raise(u.at)
		}
	}
}
