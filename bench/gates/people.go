//go:build linux

package gates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

const (
	app      = "shop"
	maxUsers = 10_000_000
	hotUsers = 100
)

// people are the users: those of the usual traffic, and behind them the hot
// ones. The number of a user is its place.
type people struct {
	*crowd.Crowd
	ids      []string
	usual    int
	segments *segments.Group
}

func newPeople(usual int) (*people, error) {
	all, err := crowd.New(crowd.Options{Seed: 1, App: app, Users: usual + hotUsers, Devices: 1})
	if err != nil {
		return nil, fmt.Errorf("making up users: %w", err)
	}
	p := &people{Crowd: all, ids: make([]string, all.Users), usual: usual}
	var text strings.Builder // one string for all: the garbage collector has less to look at
	ends := make([]int, all.Users)
	for i := range p.ids {
		text.WriteString("u" + strconv.Itoa(i)) // as the crowd names them
		ends[i] = text.Len()
	}
	from := 0
	for i, end := range ends {
		p.ids[i], from = text.String()[from:end], end
	}
	p.segments, err = p.buildSegments()
	return p, err
}

// kindOfHot says what stops a hot user: a third of them get one type only, a
// third are new.
type kindOfHot int

const (
	stoppedByType kindOfHot = iota
	stoppedBySegment
	stoppedByUser
	kindsOfHot
)

func (p *people) hot(user int) (kind kindOfHot, is bool) {
	return kindOfHot(user-p.usual) % kindsOfHot, user >= p.usual
}

// The group and its segments, as rules name them.
const (
	groupName     = "lifecycle"
	newSegment    = "new"
	activeSegment = "active"
)

// isNew is a quarter of the users; the others are active.
func (p *people) isNew(user int) bool {
	if kind, hot := p.hot(user); hot {
		return kind == stoppedBySegment
	}
	return user%4 == 0
}

func (p *people) buildSegments() (*segments.Group, error) {
	var b segments.Builder
	if err := b.AddGroup(groupName, true, segments.ByRecord); err != nil {
		return nil, err
	}
	members := map[string][]uint32{}
	for i := range p.ids {
		name := activeSegment
		if p.isNew(i) {
			name = newSegment
		}
		members[name] = append(members[name], uint32(i))
	}
	for _, name := range []string{newSegment, activeSegment} {
		if err := b.AddUsers(groupName, name, segments.UsersOf(members[name]...)); err != nil {
			return nil, err
		}
	}
	set, err := b.Build(1, time.Now())
	if err != nil {
		return nil, fmt.Errorf("building segments: %w", err)
	}
	return set.Group(groupName), nil
}

// segmentsOf looks up the segment of a user as stages.Limits wants it.
func (p *people) segmentsOf(names []string, _ string, u *push.User) []string {
	if !u.Profile.HasNumber {
		return names
	}
	switch name, _ := p.segments.Of(u.Profile.Number); name { // naming it group/segment here would allocate
	case newSegment:
		return append(names, groupName+"/"+newSegment)
	case activeSegment:
		return append(names, groupName+"/"+activeSegment)
	}
	return names
}

// register lets a registry bring all users into Redis.
func (p *people) register(ctx context.Context, client shards.Client, progress func(string, ...any)) error {
	filling, done := context.WithCancel(ctx)
	defer done()
	var failed error
	complete := false
	o := users.DefaultRegistryOptions()
	o.Progress = func(at users.Progress) {
		failed, complete = at.Err, at.Err == nil && at.Ready == shards.Users && at.Lag == 0
		if failed != nil || complete {
			done()
			return
		}
		progress("filling Redis: %d records left", at.Lag)
	}
	from := func() users.Follower { return &history{people: p} }
	registry, err := users.NewRegistry(client, users.RegistryTopics{Follower: from(), Rescan: from(), Log: closed{}, Quarantine: closed{}},
		o, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := registry.Run(filling); !complete {
		return fmt.Errorf("filling Redis: %w", errors.Join(failed, ctx.Err(), err))
	}
	return nil
}

// history is the push.users of the people, made up as it is read: one partition,
// with three parts a user. It implements users.Follower.
type history struct {
	people *people
	next   int64
}

const (
	partsOfUser = 3
	mostPolled  = 10_000
)

// Spans implements users.Follower.
func (h *history) Spans(context.Context) ([]users.Span, error) {
	return []users.Span{{End: int64(partsOfUser * len(h.people.ids))}}, nil
}

// Seek implements users.Follower.
func (h *history) Seek(_ context.Context, offsets []int64) error {
	h.next = offsets[0]
	return nil
}

// Poll implements users.Follower.
func (h *history) Poll(ctx context.Context) ([]users.Fetched, error) {
	end := min(h.next+mostPolled, int64(partsOfUser*len(h.people.ids)))
	if h.next == end {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	run := users.Fetched{Next: end}
	for ; h.next < end; h.next++ {
		r, err := h.people.part(int(h.next)/partsOfUser, int(h.next)%partsOfUser)
		if err != nil {
			return nil, err
		}
		if r.Value != nil {
			run.Records = append(run.Records, users.FetchedRecord{Record: r, Offset: h.next})
		}
	}
	return []users.Fetched{run}, nil
}

// part is one of a user's: a device, a profile, and for every fourth preferences
// that forbid nothing of what comes.
func (p *people) part(i, part int) (r users.Record, err error) {
	switch id := p.ids[i]; {
	case part == 0:
		d := &p.User(i).Devices[0]
		r.Key = record.DeviceKey(id, d.Hash)
		r.Value, err = record.DeviceValue(d)
	case part == 1:
		r.Key = record.ProfileKey(id)
		r.Value, err = record.ProfileValue(&push.Profile{Locale: "en-GB", Zone: "Europe/London", Country: "GB", Number: uint32(i), HasNumber: true})
	case i%4 == 0:
		r.Key = record.PreferencesKey(id)
		r.Value, err = record.PreferencesValue(&push.Preferences{Types: []string{"newsletter"}})
	}
	return r, err
}

// closed is a log that takes nothing: the registry has nothing to say of these
// people. It implements users.Log.
type closed struct{}

// Append implements users.Log.
func (closed) Append(context.Context, []users.Record) error {
	return errors.New("the registry found something wrong with the users")
}
