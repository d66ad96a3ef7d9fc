package push

import (
	"iter"
	"runtime"
)

// Stretch is after how many records, deliveries or rows a loop over a batch lets other
// goroutines run: 0.02 to 0.2 ms of work.
const Stretch = 64

// Yielding ranges over 0 to n-1 as `range n` does, and lets other goroutines run after
// every Stretch steps. Go itself would stop the loop after 10 ms only: where a backlog
// keeps all processors busy, some forty goroutines wait for one, and each of the ten to
// twenty that pass a one-time password on would wait for several such loops. So a loop that
// yields holds no lock that others need. A few records are no stretch: a lane in which
// little comes does not yield.
func Yielding(n int) iter.Seq[int] {
	return func(step func(int) bool) {
		for i := range n {
			if i > 0 && i%Stretch == 0 {
				runtime.Gosched()
			}
			if !step(i) {
				return
			}
		}
	}
}
