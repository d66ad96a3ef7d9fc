package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// What RFC 9113 fixes, and what we ask for ourselves.
const (
	frameHeader = 9
	// maxFrame is the longest frame payload we take; a server that has not been
	// told otherwise must keep to it.
	maxFrame = 16 << 10
	// maxStream is the highest stream id there is.
	maxStream = 1<<31 - 1
	// maxWindow is the largest flow-control window there is.
	maxWindow = 1<<31 - 1
	// firstWindow is every window's size before anyone says otherwise.
	firstWindow = 65535
	// connWindow is what we let the server send over all streams before we
	// acknowledge. Nothing of it is ever buffered: a reader that decodes in
	// place holds one record.
	connWindow = 16 << 20
)

// appendFrameHeader appends the nine bytes in front of every payload.
func appendFrameHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendSetting(b []byte, id http2.SettingID, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, uint16(id)), value)
}

func appendPing(b []byte, flags http2.Flags, data uint64) []byte {
	return binary.BigEndian.AppendUint64(appendFrameHeader(b, 8, http2.FramePing, flags, 0), data)
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(b, 4, http2.FrameRSTStream, 0, stream), uint32(code))
}

func appendWindowUpdate(b []byte, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(b, 4, http2.FrameWindowUpdate, 0, stream), n)
}

// appendGoAway says that we take no stream of the server's (there are none)
// and why we leave.
func appendGoAway(b []byte, code http2.ErrCode) []byte {
	b = appendFrameHeader(b, 8, http2.FrameGoAway, 0, 0)
	return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 0), uint32(code))
}

// appendPreface opens a connection: the client's magic, our SETTINGS, and the
// connection's window.
func appendPreface(b []byte, streamWindow int) []byte {
	b = append(b, http2.ClientPreface...)
	const settings = 4
	b = appendFrameHeader(b, 6*settings, http2.FrameSettings, 0, 0)
	b = appendSetting(b, http2.SettingEnablePush, 0)
	b = appendSetting(b, http2.SettingHeaderTableSize, tableSize)
	b = appendSetting(b, http2.SettingInitialWindowSize, uint32(streamWindow))
	b = appendSetting(b, http2.SettingMaxHeaderListSize, maxHeaderList)
	return appendWindowUpdate(b, 0, connWindow-firstWindow)
}

// frame is one received frame; the payload is cut from the read buffer.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

// cutFrame takes the first frame off b. n is its whole length, 0 when it is
// not all there yet. A frame that is too long is an error as soon as its
// header is there.
func cutFrame(b []byte) (f frame, n int, err error) {
	if len(b) < frameHeader {
		return f, 0, nil
	}
	length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if length > maxFrame {
		return f, 0, peerError{http2.ErrCodeFrameSize, "frame too long"}
	}
	if len(b) < frameHeader+length {
		return f, 0, nil
	}
	f.kind, f.flags = http2.FrameType(b[3]), http2.Flags(b[4])
	f.stream = binary.BigEndian.Uint32(b[5:]) & maxStream
	f.payload = b[frameHeader : frameHeader+length]
	return f, frameHeader + length, nil
}

// unpad takes padding off a DATA or HEADERS payload.
func (f *frame) unpad() ([]byte, error) {
	p := f.payload
	if !f.flags.Has(http2.FlagDataPadded) { // the same bit in both
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, peerError{http2.ErrCodeProtocol, "padding longer than its frame"}
	}
	return p[1 : len(p)-int(p[0])], nil
}
