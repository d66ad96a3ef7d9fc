package engine

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/net/http2"
)

// Encoding of frames. Header blocks use HPACK's static table and literals
// only: they depend on nothing, so an answer can be encoded long before it is
// sent.

const headerSize = 9 // of every frame

func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// appendSettings is the server's preface: its settings, and a window that
// never closes.
func appendSettings(b []byte, streams int) []byte {
	var p []byte
	for _, s := range [...]struct {
		id    http2.SettingID
		value uint32
	}{
		{http2.SettingHeaderTableSize, headerTable},
		{http2.SettingMaxConcurrentStreams, uint32(streams)},
		{http2.SettingInitialWindowSize, streamWindow},
		{http2.SettingMaxFrameSize, maxFrame},
		{http2.SettingMaxHeaderListSize, 8000},
	} {
		p = binary.BigEndian.AppendUint16(p, uint16(s.id))
		p = binary.BigEndian.AppendUint32(p, s.value)
	}
	b = appendFrame(b, http2.FrameSettings, 0, 0, p)
	return appendWindowUpdate(b, 0, connWindow-firstWindow)
}

func appendWindowUpdate(b []byte, stream, n uint32) []byte {
	return appendFrame(b, http2.FrameWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, n))
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	return appendFrame(b, http2.FrameRSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode, debug string) []byte {
	p := binary.BigEndian.AppendUint32(nil, last)
	p = binary.BigEndian.AppendUint32(p, uint32(code))
	return appendFrame(b, http2.FrameGoAway, 0, 0, append(p, debug...))
}

// appendLimit is a SETTINGS frame that only changes the number of streams.
func appendLimit(b []byte, streams int) []byte {
	p := binary.BigEndian.AppendUint16(nil, uint16(http2.SettingMaxConcurrentStreams))
	return appendFrame(b, http2.FrameSettings, 0, 0, binary.BigEndian.AppendUint32(p, uint32(streams)))
}

// Indices of HPACK's static table.
const (
	indexStatus      = 8 // :status 200; the name stands for all
	indexContentType = 31
	indexDate        = 33
	indexRetryAfter  = 53
)

var indexedStatus = map[int]byte{200: 8, 400: 12, 404: 13, 500: 14}

// appendHeaders is the HEADERS frame of an answer. Without a body it ends the
// stream.
func appendHeaders(b []byte, stream uint32, ans *Answer) []byte {
	flags := http2.FlagHeadersEndHeaders
	if len(ans.Body) == 0 {
		flags |= http2.FlagHeadersEndStream
	}
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, flags, stream, nil)
	if i, ok := indexedStatus[ans.Status]; ok {
		b = append(b, 0x80|i)
	} else {
		b = append(b, indexStatus, 3)
		b = strconv.AppendInt(b, int64(ans.Status), 10)
	}
	for i := range ans.Fields {
		f := &ans.Fields[i]
		switch f.Name {
		case "content-type":
			b = appendInteger(b, 4, indexContentType)
		case "date":
			b = appendInteger(b, 4, indexDate)
		case "retry-after":
			b = appendInteger(b, 4, indexRetryAfter)
		default:
			b = appendLiteral(append(b, 0), f.Name)
		}
		b = appendLiteral(b, f.Value)
	}
	n := len(b) - start - 9
	b[start], b[start+1], b[start+2] = byte(n>>16), byte(n>>8), byte(n)
	return b
}

func appendLiteral(b []byte, s string) []byte { return append(appendInteger(b, 7, uint(len(s))), s...) }

// appendInteger encodes n in a prefix of some bits, whose other bits are 0
// (RFC 7541, 5.1).
func appendInteger(b []byte, bits, n uint) []byte {
	limit := uint(1)<<bits - 1
	if n < limit {
		return append(b, byte(n))
	}
	b = append(b, byte(limit))
	for n -= limit; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}
