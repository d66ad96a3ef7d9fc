package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// desk is SenderLimits that hold some ids, and lets all others go. It keeps what it
// was asked, call by call.
type desk struct {
	holds  map[string]Decision
	paid   bool   // what it holds has its token
	before func() // before it answers
	err    error
	calls  []string
}

func (d *desk) Decide(_ context.Context, reqs []*Request) error {
	if d.before != nil {
		d.before()
	}
	if d.err != nil {
		return d.err
	}
	var ids []string
	for _, r := range reqs {
		ids = append(ids, r.ID)
		if held, ok := d.holds[r.ID]; ok {
			held.Dimension = DimensionSender
			r.Decision, r.Paid = held, d.paid
			continue
		}
		r.Decision, r.Paid = Decision{Allowed: true}, true
	}
	d.calls = append(d.calls, strings.Join(ids, " "))
	return nil
}

var (
	late  = Decision{Rule: "sender"}
	later = Decision{Rule: "sender", Deferred: true, RetryAfter: time.Hour}
)

func holding(d Decision, ids ...string) *desk {
	holds := map[string]Decision{}
	for _, id := range ids {
		holds[id] = d
	}
	return &desk{holds: holds, paid: d.Deferred}
}

// sent is a request of a sender, to devices.
func sent(id string, devices ...uint32) *Request {
	r := to(id, "promo", 0, devices...)
	r.Sender, r.Segments = "shop", []string{"new"}
	return r
}

func inWords(reqs []*Request) string {
	var out []string
	for _, r := range reqs {
		word := words(r)
		switch {
		case r.Allowed && r.Sender != "" && !r.Paid:
			word += " and has no token"
		case r.Paid && !r.Allowed:
			word += " paid"
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

func decideWith(t testing.TB, l *Limiter, senders SenderLimits, reqs ...*Request) {
	t.Helper()
	if err := l.DecideWith(t.Context(), reqs, senders); err != nil {
		t.Fatal(err)
	}
}

// What its sender's limits suppress or put off spends nothing, whatever rule would
// have counted it: the one place there is goes to the next.
func TestWhatSendersHoldSpendsNothing(t *testing.T) {
	for _, rule := range []Rule{
		{Name: "one", Per: PerUser, Max: 1, Window: time.Hour},
		{Name: "one", Per: PerUser, Max: 1, Window: time.Hour, Algorithm: SlidingCounter},
		{Name: "one", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer},
		{Name: "one", Per: PerUserType, Max: 1, Calendar: Day, Algorithm: EventSet},
		{Name: "one", Per: PerSegment, Segments: []string{"new"}, Max: 1, Calendar: Day, Algorithm: FixedWindow},
		{Name: "one", Per: PerDeviceType, Max: 1, Calendar: Day, Algorithm: EventSet},
		{Name: "one", Per: PerDeviceType, Max: 1, Window: time.Hour},
	} {
		for _, held := range []Decision{late, later} {
			for _, logged := range []bool{false, true} {
				why := fmt.Sprintf("%s, %s %s, put off %t, in tables %t", rule.Per, rule.Algorithm, rule.Over, held.Deferred, logged)
				client, m := shardstest.Start(t), &tables{}
				l := limiter(t, client, rule)
				if logged {
					l = logging(t, client, m, rule)
				}
				first := sent("a", 1)
				decideWith(t, l, holding(held, "a"), first)
				if want := words(&Request{Decision: held}); words(first) != want || first.Dimension != DimensionSender || first.Paid != held.Deferred {
					t.Errorf("%s: %s of %q, paid %t, want %s", why, words(first), first.Dimension, first.Paid, want)
				}
				if _, writes := m.counts(); stored(t, client, "u") != nil || writes > 0 {
					t.Errorf("%s: state %x and %d rows are stored", why, stored(t, client, "u"), writes)
				}
				// In one batch with the next one, too.
				again, next, third := sent("a", 1), sent("b", 1), sent("c", 1)
				d := holding(held, "a")
				if decideWith(t, l, d, again, next, third); again.Allowed || !next.Allowed || third.Allowed || third.Dimension != Dimension(rule.Per) {
					t.Errorf("%s: %s, then %s, then %s of %q: the place is b's", why, words(again), words(next), words(third), third.Dimension)
				}
				if want := []string{"a", "b"}; !slices.Equal(d.calls, want) {
					t.Errorf("%s: asked about %q, want %q", why, d.calls, want)
				}
			}
		}
	}
}

// Some rules hold whole, and one device of a notification is refused: what comes back
// from its sender is judged anew, and the device is refused then too.
func TestARefusedDeviceStaysRefused(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, deviceDay(1))
	decideWith(t, l, nil, sent("first", 1))
	r := sent("a", 1, 2)
	r.State = stored(t, client, "u")
	if decideWith(t, l, holding(later, "a"), r); r.Allowed || !bytes.Equal(stored(t, client, "u"), r.State) {
		t.Errorf("put off: %s", words(r))
	}
	back := sent("a", 1, 2)
	back.At, back.Paid, back.State = start.Add(time.Hour), true, r.State
	d := &desk{}
	if decideWith(t, l, d, back); outcome(back) != "ok 1:device" || d.calls != nil {
		t.Errorf("come back: %s, its sender asked %q", outcome(back), d.calls)
	}
}

// Exempt requests ask their sender, in one call with the others and in their order,
// and have nothing to do with a state: not even one that cannot be read.
func TestExemptRequests(t *testing.T) {
	client, m := shardstest.Start(t), &tables{}
	l := logging(t, client, m, deviceDay(1), perUser(1, time.Hour))
	exempt := func(id string) *Request {
		r := sent(id, 1)
		r.Exempt, r.Owner, r.State = true, "broken", []byte{9}
		return r
	}
	reqs := []*Request{exempt("otp"), sent("a", 1), exempt("paid"), exempt("nobody's"), exempt("held"), sent("b", 1), exempt("retry")}
	reqs[2].Paid, reqs[3].Sender = true, ""
	d := holding(later, "held")
	if decideWith(t, l, d, reqs...); inWords(reqs) != "ok, ok, ok, ok, wait 1h0m0s paid, no device, ok" {
		t.Errorf("answers are %s", inWords(reqs))
	}
	if want := []string{"otp a held retry"}; !slices.Equal(d.calls, want) {
		t.Errorf("asked about %q, want %q", d.calls, want)
	}
	if stored(t, client, "broken") != nil {
		t.Error("an exempt request has spent something")
	}
	for _, said := range m.told {
		if strings.Contains(said, fmt.Sprint(logKey{"broken", 1}.hash())) {
			t.Errorf("an exempt request has asked the tables: %s", said)
		}
	}
}

// An id that was allowed stays allowed. Its sender's limits count attempts.
func TestARedeliveryAsksItsSender(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	decideWith(t, l, &desk{}, sent("a"))
	spent := stored(t, client, "u")
	for _, held := range []bool{false, true} {
		r, d := sent("a"), holding(later)
		if held {
			d = holding(later, "a")
		}
		r.State = spent
		if decideWith(t, l, d, r); r.Allowed == held || len(d.calls) != 1 || !bytes.Equal(stored(t, client, "u"), spent) {
			t.Errorf("held %t: %s, asked %q", held, words(r), d.calls)
		}
	}
}

// A token is taken once for a request, also when what comes after it fails: the order
// is the senders, the states in Redis, the rows in the tables.
func TestAnErrorKeepsTheToken(t *testing.T) {
	away := errors.New("connection reset")
	var client redis.UniversalClient
	for _, tt := range []struct {
		why   string
		fail  func(m *tables, d *desk)
		asked bool // before it failed
		state bool // written before
	}{
		{"tables away for reading", func(m *tables, _ *desk) { m.failing = "SELECT" }, false, false},
		{"senders' limits away", func(_ *tables, d *desk) { d.err = away }, false, false},
		{"redis away", func(_ *tables, d *desk) { d.before = func() { client.AddHook(&once{err: away}) } }, true, false},
		{"tables away for writing", func(m *tables, _ *desk) { m.failing = "INSERT" }, true, true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			client = shardstest.Start(t)
			m := &tables{}
			l := logging(t, client, m, deviceDay(5), perUser(5, time.Hour))
			d := holding(later, "b")
			tt.fail(m, d)
			a, b := sent("a", 1), sent("b", 1)
			if err := l.DecideWith(t.Context(), []*Request{a, b}, d); err == nil {
				t.Fatal("no error")
			}
			if a.Paid != tt.asked || b.held() != tt.asked || (stored(t, client, "u") != nil) != tt.state {
				t.Errorf("a has its token: %t, b is held: %t, state %x", a.Paid, b.held(), stored(t, client, "u"))
			}
			m.failing, d.err, d.before = "", nil, nil
			if b.held() { // it has its answer
				b = sent("c", 1)
			}
			decideWith(t, l, d, a, b)
			if all := strings.Join(d.calls, " "); !a.Allowed || strings.Count(all, "a") != 1 {
				t.Errorf("a: %s, asked about %q", words(a), all)
			}
		})
	}
}

// once fails the first pipeline.
type once struct {
	answers
	err error
}

func (o *once) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := o.err; err != nil {
			o.err = nil
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// Another worker has written meanwhile: what has its token may be refused then, and
// has it all the same, should it be put off; what is held stays so; and who finds
// room asks its sender before it is written.
func TestAConflictAfterTheSendersWereAsked(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(2, time.Hour))
	other := limiter(t, client, perUser(2, time.Hour))
	d := holding(late, "held")
	d.before = func() {
		d.before = nil
		decideWith(t, other, nil, sent("x"))
	}
	reqs := []*Request{sent("held"), sent("a"), sent("b")}
	if decideWith(t, l, d, reqs...); inWords(reqs) != "no sender, ok, no all paid" {
		t.Errorf("answers are %s", inWords(reqs))
	}
	if want := []string{"held a", "b"}; !slices.Equal(d.calls, want) {
		t.Errorf("asked about %q, want %q", d.calls, want)
	}

	// The states that were read are full, and a reset has emptied them since.
	full := stored(t, client, "u")
	if _, err := Forget(t.Context(), client, "u"); err != nil {
		t.Fatal(err)
	}
	d = holding(late)
	again, next := sent("y"), sent("otp")
	again.State, next.State, next.Priority = full, full, critical
	counting := perUser(2, time.Hour)
	counting.CountCritical = true
	if decideWith(t, limiter(t, client, counting), d, again, next); !again.Allowed || !slices.Equal(d.calls, []string{"otp", "y"}) {
		t.Errorf("after a reset: %s, asked %q", words(again), d.calls)
	}
}

// A thousand waiting for one user whose sender may send nothing are few calls, and
// none is asked about twice.
func TestSendersAreAskedAFewTimes(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	d, reqs := holding(later), []*Request{}
	for i := range 1000 {
		id := fmt.Sprint(i)
		d.holds[id] = later
		reqs = append(reqs, sent(id))
	}
	delete(d.holds, "700") // of the last turn
	delete(d.holds, "800")
	decideWith(t, l, d, reqs...)
	asked := strings.Fields(strings.Join(d.calls, " "))
	slices.Sort(asked)
	if len(d.calls) != maxTurns+1 || len(asked) != len(reqs) || len(slices.Compact(asked)) != len(reqs) {
		t.Errorf("%d calls about %d", len(d.calls), len(asked))
	}
	for i, r := range reqs {
		if want := map[int]string{700: "ok", 800: "no all"}[i]; want != "" && words(r) != want || want == "" && !r.held() {
			t.Errorf("%d: %s", i, words(r))
		}
	}
}

// What asks in the last turn has a token, and is held against the rules all the same.
func TestTheLastTurn(t *testing.T) {
	l, d := limiter(t, shardstest.Start(t), perUser(1, time.Hour)), holding(late, "0", "1", "2")
	var reqs []*Request
	for i := range 5 {
		reqs = append(reqs, sent(fmt.Sprint(i)))
	}
	if decideWith(t, l, d, reqs...); inWords(reqs) != "no sender, no sender, no sender, ok, no all paid" {
		t.Errorf("answers are %s, asked %q", inWords(reqs), d.calls)
	}
}

// One user has much of two senders in a batch, and one of them may send nothing. The
// other one pays for what goes, and not for what the user's rules refuse.
func TestTheLastTurnCostsOtherSendersNothing(t *testing.T) {
	const empty = maxTurns + 5
	l, d := limiter(t, shardstest.Start(t), perUser(1, time.Hour)), holding(later)
	var reqs []*Request
	for i := range 60 {
		r := sent(fmt.Sprint(i))
		if reqs = append(reqs, r); i < empty {
			r.Sender, d.holds[r.ID] = "empty", later
		}
	}
	decideWith(t, l, d, reqs...)
	for i, r := range reqs {
		if r.held() != (i < empty) || r.Allowed != (i == empty) || i > empty && r.Paid {
			t.Errorf("%d: %s, held %t, paid %t", i, words(r), r.held(), r.Paid)
		}
	}
}

// A user of many senders that may send nothing: they are asked a few times all the same.
func TestManySendersThatHold(t *testing.T) {
	l, d := limiter(t, shardstest.Start(t), perUser(1, time.Hour)), holding(later)
	var reqs []*Request
	for i := range 50 {
		r := sent(fmt.Sprint(i))
		r.Sender, d.holds[r.ID] = r.ID, later
		reqs = append(reqs, r)
	}
	delete(d.holds, "40")
	// Another user, of whom nothing is held and the second is one too many.
	first, second := sent("first"), sent("second")
	first.Owner, second.Owner = "other", "other"
	decideWith(t, l, d, append(slices.Clone(reqs), first, second)...)
	if !first.Allowed || second.Allowed || second.Paid {
		t.Errorf("another user: %s, then %s, paid %t: a token for what goes alone", words(first), words(second), second.Paid)
	}
	reqs = append(reqs, first)
	asked := strings.Fields(strings.Join(d.calls, " "))
	slices.Sort(asked)
	if len(d.calls) != 2*maxTurns+1 || len(asked) != len(reqs) || len(slices.Compact(asked)) != len(reqs) {
		t.Errorf("%d calls about %d", len(d.calls), len(asked))
	}
	for i, r := range reqs {
		if r.Allowed != (i == 40 || r == first) || r.held() == r.Allowed {
			t.Errorf("%d: %s", i, words(r))
		}
	}
}

// Whatever the rules, the users and what senders hold: the answers and the states are
// those of a batch without what was held. And ten times the same changes nothing.
func TestWhatIsHeldIsNotThere(t *testing.T) {
	clients := [2]redis.UniversalClient{shardstest.Start(t), shardstest.Start(t)}
	rapid.Check(t, func(rt *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(someRule), 1, 3).Draw(rt, "rules")
		var limiters [2]*Limiter
		for i := range rules {
			rules[i].Name = fmt.Sprint("rule", i)
		}
		for i, client := range clients {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				rt.Fatal(err)
			}
			limiters[i] = limiter(t, client, rules...)
		}
		now, serial := start, 0
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "seconds")) * time.Second)
			d := holding(later)
			var with, without []*Request
			for range rapid.IntRange(1, 12).Draw(rt, "batch") {
				serial++
				r := &Request{Owner: rapid.SampledFrom(someOwners).Draw(rt, "owner"), ID: fmt.Sprint(serial), At: now, Sender: "shop",
					Type: rapid.SampledFrom(someTypes).Draw(rt, "type"), Priority: rapid.Uint8Range(1, 4).Draw(rt, "priority"),
					Devices: []Device{{Hash: uint32(rapid.IntRange(1, 2).Draw(rt, "device"))}}}
				if r.State = stored(t, clients[0], r.Owner); rapid.IntRange(0, 2).Draw(rt, "held") == 0 {
					d.holds[r.ID] = later
				}
				with = append(with, r)
			}
			decideWith(t, limiters[0], d, with...)
			var kept []*Request
			for _, r := range with {
				if !r.held() {
					plain := *r
					plain.Devices, plain.State = slices.Clone(r.Devices), stored(t, clients[1], r.Owner)
					kept, without = append(kept, r), append(without, &plain)
				}
			}
			if len(without) > 0 {
				decideWith(t, limiters[1], nil, without...)
			}
			for i, r := range kept {
				if r.Decision != without[i].Decision || !slices.Equal(r.Devices, without[i].Devices) {
					rt.Fatalf("%s: %+v, without what is held %+v", r.ID, r.Decision, without[i].Decision)
				}
			}
			states := map[string][]byte{}
			for _, o := range someOwners {
				if states[o] = stored(t, clients[0], o); !bytes.Equal(states[o], stored(t, clients[1], o)) {
					rt.Fatalf("the state of %s differs", o)
				}
			}
			answers := make([]bool, len(with))
			for i, r := range with {
				answers[i] = r.Allowed
			}
			for range 10 {
				for _, r := range with {
					r.Paid = false
				}
				decideWith(t, limiters[0], d, with...)
				for i, r := range with {
					if answers[i] && !r.Allowed {
						rt.Fatalf("%s was allowed before: %+v", r.ID, r.Decision)
					}
				}
			}
			for o, state := range states {
				if !bytes.Equal(state, stored(t, clients[0], o)) {
					rt.Fatalf("the same batch again changes the state of %s", o)
				}
			}
		}
	})
}
