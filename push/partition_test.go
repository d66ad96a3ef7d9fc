package push

import "testing"

// A place is the same whenever it is asked for, and no other record's.
func TestPlacesTellRecordsApart(t *testing.T) {
	seen := make(map[uint64]bool)
	for _, topic := range []string{"push.transactional", "push.transactional.retry.30s", "push.critical"} {
		for id := range int32(20) {
			p := Partition{Topic: topic, ID: id}
			for offset := range int64(10_000) {
				if offset > 5_000 {
					offset <<= 32
				}
				place := p.Place(offset)
				if place == 0 || seen[place] {
					t.Fatalf("%v/%d: place %x is zero or another record's", p, offset, place)
				}
				seen[place] = true
			}
		}
	}
	if got := (Partition{Topic: "t", ID: 3}).Place(7); got != (Partition{Topic: "t", ID: 3}).Place(7) {
		t.Errorf("another place the second time: %x", got)
	}
}

func BenchmarkPlace(b *testing.B) {
	p := Partition{Topic: "push.transactional", ID: 7}
	b.ReportAllocs()
	for i := range b.N {
		_ = p.Place(int64(i))
	}
}
