package gates_test

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

func TestStalls(t *testing.T) {
	var s gates.Stalls
	at := func(sec int) time.Time { return startTime.Add(time.Duration(sec) * time.Second) }
	want := func(what string, open, ended []gates.Stall) {
		t.Helper()
		gotOpen, gotEnded := s.Declared()
		if !reflect.DeepEqual(gotOpen, open) || !reflect.DeepEqual(gotEnded, ended) {
			t.Errorf("%s: got declared %v, want %v; got ended %v, want %v", what, gotOpen, open, gotEnded, ended)
		}
	}
	first := s.Declare(at(1), "status", "first")
	second := s.Declare(at(5), "status", "second")
	other := s.Declare(at(3), "redis", "")
	first(at(6))
	first(at(7)) // again: nothing
	status := gates.Stall{Name: "status", Detail: "first", Since: at(1)}
	over := func(s gates.Stall, sec int) gates.Stall { s.Until = at(sec); return s }
	want("one of two with one name is over", []gates.Stall{status, {Name: "redis", Since: at(3)}}, []gates.Stall{over(status, 6)})
	want("asked again", []gates.Stall{status, {Name: "redis", Since: at(3)}}, nil)
	second(at(8))
	other(at(8))
	want("all are over", nil, []gates.Stall{over(status, 8), {Name: "redis", Since: at(3), Until: at(8)}})

	line, none := gates.Line{Route: fcmShop, Charge: "retry"}, gates.Line{Route: fcmShop}
	part := func(ids ...int32) (ps []push.Partition) {
		for _, id := range ids {
			ps = append(ps, push.Partition{Topic: "t", ID: id})
		}
		return ps
	}
	one := s.DeclareLine(at(10), "retry_budget", line, part(2, 1, 1))
	two := s.DeclareLine(at(11), "retry_budget", line, part(2, 3))
	s.DeclareLine(at(12), "route_paused", none, nil)(at(13))
	stall := gates.Stall{Name: "retry_budget", Detail: "fcm/shop", Line: line, Since: at(10), Partitions: part(1, 2, 3)}
	want("of a line", []gates.Stall{stall}, []gates.Stall{{Name: "route_paused", Detail: "fcm/shop", Line: none, Since: at(12), Until: at(13)}})
	one(at(14))
	stall.Partitions = part(2, 3)
	ended := stall
	ended.Partitions, ended.Until = part(1, 2), at(14)
	want("whom it still holds up", []gates.Stall{stall}, []gates.Stall{ended})
	two(at(15))

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				over, also := s.Declare(at(i), "status", ""), s.DeclareLine(at(i), "route_paused", line, part(int32(i)))
				s.Declared()
				over(at(i))
				also(at(i))
			}
		})
	}
	all.Wait()
	if open, _ := s.Declared(); len(open) != 0 {
		t.Errorf("stalls left open: %v", open)
	}
}

func TestWhomAStallExcuses(t *testing.T) {
	asked := push.Partition{Topic: "t", ID: 1}
	line := gates.Line{Route: fcmShop, Charge: "retry"}
	for _, row := range []struct {
		why   string
		stall gates.Stall
		want  bool
	}{
		{"a store holds up all", gates.Stall{Name: "status"}, true},
		{"a line those whose records are next in it", gates.Stall{Line: line, Partitions: []push.Partition{{Topic: "t", ID: 0}, asked}}, true},
		{"and no other", gates.Stall{Line: line, Partitions: []push.Partition{{Topic: "t", ID: 0}, {Topic: "other", ID: 1}}}, false},
		{"nor when none waits in it", gates.Stall{Line: line}, false},
	} {
		if got := row.stall.Excuses(asked); got != row.want {
			t.Errorf("%s: got %v, want %v", row.why, got, row.want)
		}
	}
}
