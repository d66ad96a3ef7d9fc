package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the plain implementation of the rules: it keeps everything that was
// allowed.
type model struct {
	rules   []Rule
	allowed map[string][]Request // by owner
}

// decide returns the rules that deny; none = allowed.
func (m *model) decide(r Request) (denying []string) {
	for _, a := range m.allowed[r.Owner] {
		if a.ID == r.ID {
			return nil
		}
	}
	for _, rule := range m.rules {
		if !about(rule, r.Type) {
			continue
		}
		n := 0
		for _, a := range m.allowed[r.Owner] {
			if r.At.Sub(a.At) < rule.Window && about(rule, a.Type) && (rule.Per == PerUser || a.Type == r.Type) {
				n++
			}
		}
		if n >= rule.Max {
			denying = append(denying, rule.Name)
		}
	}
	if denying == nil {
		m.allowed[r.Owner] = append(m.allowed[r.Owner], r)
	}
	return denying
}

func about(rule Rule, kind string) bool {
	for _, t := range rule.Types {
		if t == kind {
			return true
		}
	}
	return len(rule.Types) == 0
}

// Whatever the rules, the order, the batches and the age of the states, the
// limiter answers like the model, and no window ever holds too many.
func TestLimiterAgreesWithTheModel(t *testing.T) {
	client := open(t)
	kinds := []string{"order", "promo", "chat"}
	rapid.Check(t, func(rt *rapid.T) {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			rt.Fatal(err)
		}
		rules := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) Rule {
			return Rule{
				Per:   rapid.SampledFrom([]Per{PerUser, PerUserType}).Draw(rt, "per"),
				Types: rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 0, 2, rapid.ID[string]).Draw(rt, "types"),
				Max:   rapid.IntRange(1, 4).Draw(rt, "max"),
				// Longer than the time within which an id can repeat in this
				// test, because ids are not remembered for longer than the
				// window.
				Window: time.Duration(rapid.IntRange(10, 30).Draw(rt, "window")) * time.Minute,
			}
		}), 1, 3).Draw(rt, "rules")
		for i := range rules {
			rules[i].Name = fmt.Sprint("rule", i)
		}
		l, err := New(client, rules)
		if err != nil {
			rt.Fatal(err)
		}
		m := &model{rules: rules, allowed: map[string][]Request{}}
		owners := []string{"ann", "bob", "device-hash"}
		snapshots := map[string][][]byte{"ann": {nil}, "bob": {nil}, "device-hash": {nil}}
		now, serial := start, 0
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds")) * time.Second)
			reqs := make([]*Request, rapid.IntRange(1, 12).Draw(rt, "batch"))
			states := map[string][]byte{}
			for _, o := range owners {
				states[o] = rapid.SampledFrom(snapshots[o]).Draw(rt, "state")
			}
			for i := range reqs {
				// Together less than the skew by which a repeated batch goes
				// back.
				now = now.Add(time.Duration(rapid.IntRange(0, 5_000).Draw(rt, "ms")) * time.Millisecond)
				// Some ids repeat.
				id := rapid.IntRange(max(0, serial-8), serial).Draw(rt, "id")
				serial++
				owner := rapid.SampledFrom(owners).Draw(rt, "owner")
				reqs[i] = &Request{Owner: owner, ID: fmt.Sprintf("%s-%d", owner, id),
					Type: kinds[id%len(kinds)], State: states[owner], At: now}
			}
			// Sometimes twice, like a stage that is repeated after an error.
			for range rapid.IntRange(1, 2).Draw(rt, "repeats") {
				if err := l.Decide(t.Context(), reqs); err != nil {
					rt.Fatal(err)
				}
				for i, r := range reqs {
					// With an old state, another one of the denying rules may
					// be named first.
					want := m.decide(*r)
					if r.Allowed != (want == nil) || r.Allowed != (r.Rule == "") || !r.Allowed && !slices.Contains(want, r.Rule) {
						rt.Fatalf("request %d of %s (%s, %v): rule %q, the model says %q", i, r.Owner, r.Type, r.At.Sub(start), r.Rule, want)
					}
				}
			}
			for _, o := range owners {
				snapshots[o] = append(snapshots[o], stored(t, client, o))
			}
		}
		for owner, allowed := range m.allowed {
			checkWindows(rt, rules, owner, allowed)
		}
	})
}

// checkWindows checks every window that ends at an allowed notification.
func checkWindows(t *rapid.T, rules []Rule, owner string, allowed []Request) {
	for _, rule := range rules {
		for _, end := range allowed {
			if !about(rule, end.Type) {
				continue
			}
			n := 0
			for _, a := range allowed {
				age := end.At.Sub(a.At)
				if age >= 0 && age < rule.Window && about(rule, a.Type) && (rule.Per == PerUser || a.Type == end.Type) {
					n++
				}
			}
			if n > rule.Max {
				t.Fatalf("%s: %d within %v, rule %s allows %d", owner, n, rule.Window, rule.Name, rule.Max)
			}
		}
	}
}
