package limits

import (
	"strings"
	"testing"
)

// What is read ahead of a request may be of any length, and may be missing.
func TestLinesOfRequestsOfAnyLength(t *testing.T) {
	for n := range 200 {
		text := strings.Repeat("x", n)
		for _, devices := range [][]Device{nil, {{Hash: 1}}} {
			b := &batch{reqs: []*Request{{Owner: text, ID: text, Type: text, Devices: devices}}, users: []user{{state: []byte(text)}}}
			b.lines(0)
		}
	}
}
