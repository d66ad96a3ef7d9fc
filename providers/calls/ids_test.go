package calls

import (
	"fmt"
	"testing"
)

func TestIDs(t *testing.T) {
	for in, want := range map[string]string{"": "", "a-1%": "a-1%", "a b": "", "a\x7f": "", "\xff": "", "12345678": "12345", "12345\n": "12345"} {
		for _, ids := range []*IDs{nil, new(IDs)} {
			if got := ids.Keep([]byte(in), 5); got != want {
				t.Errorf("%q became %q", in, got)
			}
		}
	}
}

// Names stay what they were while others follow, and whatever becomes of the bytes that
// they were read from. One that is longer than a piece of memory is kept whole.
func TestIDsStay(t *testing.T) {
	var ids IDs
	var got, want []string
	from := make([]byte, 0, 3*idsAtOnce)
	for i := range 3000 {
		want = append(want, fmt.Sprintf("projects/p/messages/%0*d", i%90, i))
		if i%1000 == 500 {
			want[i] = fmt.Sprintf("%0*d", 2*idsAtOnce, i)
		}
		from = append(from[:0], want[i]...)
		got = append(got, ids.Keep(from, cap(from)))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("name %d is %.100q now, and was %.100q", i, got[i], want[i])
		}
	}
}

func TestIDsShareMemory(t *testing.T) {
	var ids IDs
	name := []byte("8f14e45f-ceea-467f-a8f3-9a1b0d6f2c11")
	const names = 1000
	each := testing.AllocsPerRun(10, func() {
		for range names {
			ids.Keep(name, 64)
		}
	}) / names
	if each > 0.02 {
		t.Errorf("%.3f allocations a name", each)
	}
	if n := ids.text.Cap(); n > 2*idsAtOnce {
		t.Errorf("one name keeps %d bytes", n)
	}
}
