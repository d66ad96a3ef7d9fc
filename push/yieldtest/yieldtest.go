// Package yieldtest finds out whether a loop lets other goroutines run.
package yieldtest

import (
	"runtime"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// Often fails the test if do, which goes through n records, lets another goroutine run less
// often than three times in four stretches of push.Stretch: the garbage collector takes some of
// the turns that do gives away. There is one processor meanwhile, so no test
// may run beside it. Go too takes the processor from do, every 10 ms: n must be so many that
// this is not often enough.
func Often(t *testing.T, n int, do func()) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	began, stop, ended := make(chan bool), make(chan bool), make(chan int) // closed by nobody, here, and nobody
	go func() {
		turns := 0
		for began <- true; ; turns++ {
			select {
			case <-stop:
				ended <- turns
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	<-began
	do()
	close(stop)
	if turns, want := <-ended, n/push.Stretch*3/4; turns < want {
		t.Errorf("others had %d turns during %d records, want %d", turns, n, want)
	}
}
