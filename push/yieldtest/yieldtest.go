// Package yieldtest finds out whether a loop lets other goroutines run.
package yieldtest

import (
	"runtime"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// others is how many goroutines count their turns. Go may take the processor from one in the
// middle of a turn, if the process itself had to wait for one, and the turn is lost. So what
// counts is who had the most.
const others = 4

// Often fails the test if do, which goes through n records, lets other goroutines run less
// often than after every push.Stretch of them. There is one processor meanwhile, so no test
// may run beside it. Go too takes the processor from do, every 10 ms: n must be so many that
// this is not often enough.
func Often(t *testing.T, n int, do func()) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	began, stop, ended := make(chan bool), make(chan bool), make(chan int, others) // closed by nobody, here, and nobody
	for range others {
		go func() {
			began <- true
			for turns := 0; ; turns++ {
				select {
				case <-stop:
					ended <- turns
					return
				default:
					runtime.Gosched()
				}
			}
		}()
	}
	for range others {
		<-began
	}
	do()
	close(stop)
	most := 0
	for range others {
		most = max(most, <-ended)
	}
	yields := n / push.Stretch
	if want := yields - 1 - early(yields); most < want {
		t.Errorf("others had %d turns during %d records, want %d", most, n, want)
	}
}

// early is how often do may go on without that each of the others had its turn: Go takes the
// next goroutine from the head of its global queue every 61st time, before those whose turn it
// is (runtime/proc.go, findRunnable), and that may be do each time.
func early(yields int) int { return (yields*(others+1) + 60) / 61 }
