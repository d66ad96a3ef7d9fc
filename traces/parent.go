package traces

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

// A traceparent is version-trace-parent-flags, in hex: 00-<32>-<16>-<2>. Later versions
// may go on behind another dash.
const (
	traceAt   = 3
	parentAt  = traceAt + 32 + 1
	flagsAt   = parentAt + 16 + 1
	shortest  = flagsAt + 2
	ofVersion = "00"
)

// parse reads a traceparent. ok is false for what is none: then the record has no caller.
func parse(text []byte) (parent trace.SpanContext, ok bool) {
	if len(text) < shortest || text[traceAt-1] != '-' || text[parentAt-1] != '-' || text[flagsAt-1] != '-' ||
		string(text[:2]) == "ff" || string(text[:2]) == ofVersion && len(text) != shortest || len(text) > shortest && text[shortest] != '-' {
		return parent, false
	}
	var version, flags [1]byte
	var c trace.SpanContextConfig
	for _, part := range []struct{ to, from []byte }{{version[:], text[:2]}, {c.TraceID[:], text[traceAt : parentAt-1]}, {c.SpanID[:], text[parentAt : flagsAt-1]}, {flags[:], text[flagsAt:shortest]}} {
		if _, err := hex.Decode(part.to, part.from); err != nil {
			return parent, false
		}
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	parent = trace.NewSpanContext(c)
	return parent, parent.IsValid()
}

// isSampled reports whether the caller's trace is sampled; known is false for what is no
// traceparent.
func isSampled(text []byte) (sampled, known bool) {
	parent, ok := parse(text)
	return ok && parent.IsSampled(), ok
}
