package dlq

import (
	"fmt"
	"testing"
)

// However much is replayed, no more than twice the bound is remembered, and never less
// than the latest of it.
func TestARecentIDIsKnownAndMemoryIsBounded(t *testing.T) {
	const most = 10
	r := recent{most: most}
	for i := range 1000 {
		if id := fmt.Sprint(i); r.has(id) {
			t.Fatalf("%s is known before it came", id)
		}
		r.add(fmt.Sprint(i))
		for j := max(0, i-most+1); j <= i; j++ {
			if !r.has(fmt.Sprint(j)) {
				t.Fatalf("after %d, %d is not known", i, j)
			}
		}
		if n := len(r.now) + len(r.before); n > 2*most {
			t.Fatalf("after %d, %d are kept", i, n)
		}
		if far := i - 2*most; far >= 0 && r.has(fmt.Sprint(far)) {
			t.Fatalf("after %d, %d is still known", i, far)
		}
	}
}
