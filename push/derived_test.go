package push_test

import (
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

func TestDerivedID(t *testing.T) {
	for id, want := range map[string]bool{
		"k-SsZfNlH2Zgu1XCd6kdA4SA1PPKSXo-ni": true, "k-" + strings.Repeat("_", 32): true,
		"": false, "k-": false, "k-SsZfNlH2Zgu1XCd6kdA4SA1PPKSXo-n": false, "x-SsZfNlH2Zgu1XCd6kdA4SA1PPKSXo-ni": false,
		"k-SsZfNlH2Zgu1XCd6kdA4SA1PPKSXo+ni": false, "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21": false,
	} {
		if push.DerivedID(id) != want {
			t.Errorf("%q is derived: %v", id, !want)
		}
	}
}
