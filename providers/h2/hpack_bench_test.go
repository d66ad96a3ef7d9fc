package h2

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// answeredBlock is the block of an answer as Google's front ends send one, which nobody has to
// keep more of than its date. With limits it announces one, too.
func answeredBlock(limits bool, encoder *hpack.Encoder, to *bytes.Buffer) []byte {
	to.Reset()
	fields := [][2]string{{":status", "200"}, {"content-type", "application/json; charset=UTF-8"}, {"vary", "X-Origin"}, {"vary", "Referer"},
		{"date", "Thu, 26 Nov 2026 07:00:00 GMT"}, {"server", "scaffolding on HTTPServer2"}, {"x-xss-protection", "0"}, {"x-frame-options", "SAMEORIGIN"},
		{"x-content-type-options", "nosniff"}, {"accept-ranges", "none"}}
	if limits {
		fields = append(fields, [2]string{"ratelimit-policy", `"project";q=600000;w=60`}, [2]string{"ratelimit", `"project";r=412345;t=41`})
	}
	for _, f := range fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a Buffer takes all
	}
	return bytes.Clone(to.Bytes())
}

// BenchmarkAnswerHeaders is what it costs to read the headers of an answer and to keep some,
// by how many are wanted and whether the answer has more of them than a date.
func BenchmarkAnswerHeaders(b *testing.B) {
	two := []string{"retry-after", "date"}
	ten := append(two[:2:2], "ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
		"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
	for _, wanted := range [][]string{two, ten} {
		for _, limits := range []bool{false, true} {
			b.Run(fmt.Sprintf("wanted=%d/announced=%v", len(wanted), limits), func(b *testing.B) {
				p := &Pool{opt: Options{AnswerHeaders: wanted}}
				d, r := newDecoder(wanted), new(Request)
				var to bytes.Buffer
				encoder := hpack.NewEncoder(&to)
				first, then := answeredBlock(limits, encoder, &to), answeredBlock(limits, encoder, &to)
				head := &answerHead{r: r}
				read := func(block []byte) {
					p.resetHeader(&r.Answer)
					if err := d.decode(block, head); err != nil {
						b.Fatal(err)
					}
				}
				read(first)
				read(then)
				b.ReportAllocs()
				for b.Loop() {
					read(then)
				}
			})
		}
	}
}
