package lookup

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
)

// Everything is measured with few users, and what does not depend on the machine is right.
func TestRun(t *testing.T) {
	for _, shuffled := range []bool{false, true} {
		dir := t.TempDir()
		r, err := Run(t.Context(), Options{Users: 200_000, Segments: 4, ErrorRate: 1e-7, Lookups: 1 << 15, Shuffled: shuffled, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if r.ListBytes < 1_200_000 || r.ListBytes > 1_400_000 || r.FileBytes < 90_000 || r.FileBytes > 140_000 {
			t.Errorf("%d bytes of lists, %d of the file", r.ListBytes, r.FileBytes)
		}
		// n ln(1/p) / ln²2 bits, Bloom 1970: 33.5 for 1e-7
		if want := uint64(200_000 * 33.548 / 8); r.FilterBytes < want-100 || r.FilterBytes > want+100 || r.FiltersBytes != 4*r.FilterBytes || r.FilterHashes != 24 {
			t.Errorf("%+v", r)
		}
		if r.FilterOwnBytes < r.FilterBytes/5 || r.FilterOwnBytes > r.FilterBytes/3 || r.FilterMistaken > 3 || r.FilterMissTries != 1<<15 || r.Allocations != 0 || r.Memory == 0 {
			t.Errorf("%+v", r)
		}
		for name, v := range map[string]float64{"read": r.Read.Seconds, "seal": r.Seal.Seconds, "load": r.Load.Seconds, "hot": r.SegmentHot, "random": r.SegmentRandom,
			"group hot": r.GroupHot, "group random": r.GroupRandom, "enumerate": r.EnumerateNS, "filter": r.FilterFill.Seconds, "hit": r.FilterHit, "hot hit": r.FilterHitHot, "miss": r.FilterMiss} {
			if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
				t.Errorf("%s was not measured", name)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Every segment gets about as many users, and no pattern that would suit a bitmap.
func TestUsersAreSpread(t *testing.T) {
	o := Options{Segments: 4}
	var in, again [4]int
	last := -1
	for u := range uint64(100_000) {
		s := o.segmentOf(u)
		if in[s]++; s == last {
			again[s]++
		}
		last = s
	}
	for s := range in {
		if in[s] < 24_000 || in[s] > 26_000 || again[s] < 5_700 || again[s] > 6_800 {
			t.Errorf("segment %d: %d users, %d of them next to another one", s, in[s], again[s])
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		text string
	}{
		{Options{Users: 10, Segments: 4, ErrorRate: 1e-7}, "users"},
		{Options{Users: 1 << 33, Segments: 4, ErrorRate: 1e-7}, "users"},
		{Options{Users: 1000, Segments: 0, ErrorRate: 1e-7}, "segments"},
		{Options{Users: 1000, Segments: 4, ErrorRate: 1}, "error rate"},
	} {
		if _, err := Run(t.Context(), tt.o); err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%+v: %v", tt.o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{Users: 1000, Segments: 1, ErrorRate: 1e-7, Dir: t.TempDir()}); err == nil {
		t.Error("it was not interrupted")
	}
}
