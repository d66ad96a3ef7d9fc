package calls

import (
	"slices"
	"strings"
	"testing"
)

func TestWord(t *testing.T) {
	for in, want := range map[string]string{
		"BadDeviceToken": "BadDeviceToken", "RATE_LIMIT_EXCEEDED": "RATE_LIMIT_EXCEEDED", "A1": "A1", "": "",
		"timeout": "", "_X": "", "1A": "", "A b": "", "A\n": "", "A\x1b[m": "", "Ä": "", "A\u202e": "", "A-B": "",
		strings.Repeat("A", 65): strings.Repeat("A", 64), strings.Repeat("A", 64) + "\n": strings.Repeat("A", 64),
	} {
		if got := Word(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func TestStatusReasons(t *testing.T) {
	all := StatusReasons()
	if !slices.Contains(all, StatusReason(503)) || slices.Contains(all, StatusReason(599)) || len(all) > 70 {
		t.Errorf("%d: %v", len(all), all)
	}
}
