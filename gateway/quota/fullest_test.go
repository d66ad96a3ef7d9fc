package quota

import (
	"context"
	"testing"
	"time"
)

// It is told how full windows were of whom somebody asked for, also of those that have
// ended, and what was refused because of which; then nothing until somebody asks again.
func TestFullest(t *testing.T) {
	o := Options{Default: Limits{Second: 50, Hour: 1000}, Senders: map[string]Limits{"b": {Day: 10}, "free": {}}}
	inFleet(t, o, func(f *fleet) {
		g, h := f.join(), f.join()
		defer g.close()
		defer h.close()
		if list, more := g.Fullest(9); len(list) != 0 || more != 0 {
			t.Errorf("of nobody: %+v, %d more", list, more)
		}
		g.take(30)
		h.take(15)
		time.Sleep(500 * time.Millisecond)
		g.take(20) // 5 of them in this second
		time.Sleep(2 * time.Second)
		g.take(1)
		time.Sleep(time.Second / 4)
		for name, n := range map[string]int{"b": 9, "free": 9} {
			if s := g.Of(name); s != nil {
				taken := s.Take(context.Background(), n)
				if taken.Len() != n {
					t.Fatalf("%s was admitted %d", name, taken.Len())
				}
			}
		}
		list, more := g.Fullest(9)
		want := []Fullness{
			{"a", Policy{"second", 50, time.Second}, 50, 1, 15},
			{"b", Policy{"day", 10, 24 * time.Hour}, 9, 9, 0},
			{"a", Policy{"hour", 1000, time.Hour}, 51, 51, 0},
		}
		if len(list) != len(want) || more != 0 {
			t.Fatalf("%+v, %d more, want %+v", list, more, want)
		}
		for i := range want {
			if list[i] != want[i] {
				t.Errorf("%+v, want %+v", list[i], want[i])
			}
		}
		if list, _ := g.Fullest(9); len(list) != 0 {
			t.Errorf("nobody has asked since: %+v", list)
		}
		g.take(1)
		if list, more := g.Fullest(1); len(list) != 1 || more != 1 || list[0] != (Fullness{"a", Policy{"hour", 1000, time.Hour}, 52, 52, 0}) {
			t.Errorf("the fullest alone: %+v, %d more", list, more)
		}
		g.take(1)
		list, _ = g.Fullest(9)
		for _, one := range list {
			if one.Refused != 0 {
				t.Errorf("what was refused is told again: %+v", one)
			}
		}
	})
}
