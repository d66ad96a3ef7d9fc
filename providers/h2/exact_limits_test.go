package h2

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// rawFrame is a frame of any kind.
func rawFrame(kind http2.FrameType, flags http2.Flags, stream uint32, payload ...byte) []byte {
	return append(appendFrameHeader(nil, len(payload), kind, flags, stream), payload...)
}

// times repeats a frame n times.
func times(n int, frame []byte) []byte { return bytes.Repeat(frame, n) }

// join concatenates frames.
func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// oneSetting is a SETTINGS frame with one entry.
func oneSetting(id http2.SettingID, v uint32) []byte {
	return settings(http2.Setting{ID: id, Val: v})
}

// listOf is a header block with a status and a field, which together have the
// size n.
func listOf(n int) []byte {
	b := append([]byte{0x88}, 0, 1, 'x')
	return appendString(b, bytes.Repeat([]byte("v"), n-len(":status200x")-2*entryOverhead))
}

// blockOf are HEADERS and CONTINUATION frames of a block of n bytes: table size
// updates, which count towards nothing else, and a status.
func blockOf(n int) []byte {
	block := append(bytes.Repeat([]byte{0x20}, n-1), 0x88)
	half := len(block) / 2
	return join(rawFrame(http2.FrameHeaders, 0, 1, block[:half]...),
		rawFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, block[half:]...))
}

// Each limit on what a server may send is exact: the limit itself is accepted,
// and one more ends the connection with the right code.
func TestLimitsOfAConnectionAreExact(t *testing.T) {
	const (
		protocol = http2.ErrCodeProtocol
		size     = http2.ErrCodeFrameSize
		flow     = http2.ErrCodeFlowControl
		calm     = http2.ErrCodeEnhanceYourCalm
		open     = http2.FlagHeadersEndHeaders
	)
	status := rawFrame(http2.FrameHeaders, open, 1, 0x88)
	continued := func(n int) []byte {
		return join(rawFrame(http2.FrameHeaders, 0, 1, 0x88), times(n-1, rawFrame(http2.FrameContinuation, 0, 1)),
			rawFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1))
	}
	data := func(n int) []byte { return rawFrame(http2.FrameData, 0, 1, make([]byte, n)...) }
	padded := func(n byte) []byte {
		return join(status, rawFrame(http2.FrameData, http2.FlagDataPadded, 1, append([]byte{n}, make([]byte, 10)...)...))
	}
	for why, row := range map[string]struct {
		fine, bad []byte
		code      http2.ErrCode
	}{
		"the smallest frame size":           {oneSetting(http2.SettingMaxFrameSize, 1<<14), oneSetting(http2.SettingMaxFrameSize, 1<<14-1), protocol},
		"the largest frame size":            {oneSetting(http2.SettingMaxFrameSize, 1<<24-1), oneSetting(http2.SettingMaxFrameSize, 1<<24), protocol},
		"the largest initial window":        {oneSetting(http2.SettingInitialWindowSize, maxWindow), oneSetting(http2.SettingInitialWindowSize, maxWindow+1), flow},
		"who pushes":                        {oneSetting(http2.SettingEnablePush, 0), oneSetting(http2.SettingEnablePush, 1), protocol},
		"length of SETTINGS":                {settings(), rawFrame(http2.FrameSettings, 0, 0, make([]byte, 7)...), size},
		"what acknowledges SETTINGS":        {rawFrame(http2.FrameSettings, http2.FlagSettingsAck, 0), rawFrame(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6)...), size},
		"stream of SETTINGS":                {settings(), rawFrame(http2.FrameSettings, 0, 1), protocol},
		"length of PING":                    {appendPing(nil, 0, 1), rawFrame(http2.FramePing, 0, 0, make([]byte, 9)...), size},
		"stream of PING":                    {appendPing(nil, 0, 1), rawFrame(http2.FramePing, 0, 1, make([]byte, 8)...), protocol},
		"the connection's window":           {appendWindowUpdate(nil, 0, maxWindow-firstWindow), appendWindowUpdate(nil, 0, maxWindow-firstWindow+1), flow},
		"a WINDOW_UPDATE that updates":      {appendWindowUpdate(nil, 0, 1), appendWindowUpdate(nil, 0, 0), protocol},
		"length of WINDOW_UPDATE":           {appendWindowUpdate(nil, 1, 1), rawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 5)...), size},
		"a window that is granted anew":     {join(appendWindowUpdate(nil, 1, 1000), oneSetting(http2.SettingInitialWindowSize, maxWindow-1000)), join(appendWindowUpdate(nil, 1, 1000), oneSetting(http2.SettingInitialWindowSize, maxWindow-999)), flow},
		"length of a frame":                 {rawFrame(0xee, 0, 0, make([]byte, maxFrame)...), rawFrame(0xee, 0, 0, make([]byte, maxFrame+1)...), size},
		"padding of DATA":                   {padded(10), padded(11), protocol},
		"priority in HEADERS":               {rawFrame(http2.FrameHeaders, open|http2.FlagHeadersPriority, 1, 0, 0, 0, 0, 1, 0x88), rawFrame(http2.FrameHeaders, open|http2.FlagHeadersPriority, 1, 0, 0, 0, 0), protocol},
		"bytes in CONTINUATION":             {blockOf(maxBlock), blockOf(maxBlock + 1), calm},
		"number of CONTINUATION frames":     {continued(16), continued(17), calm},
		"what goes on in CONTINUATION":      {continued(1), rawFrame(http2.FrameContinuation, 0, 1), protocol},
		"a header block in one piece":       {continued(2), join(rawFrame(http2.FrameHeaders, 0, 1, 0x88), appendReset(nil, 1, http2.ErrCodeCancel)), protocol},
		"a header block on one stream":      {continued(2), join(rawFrame(http2.FrameHeaders, 0, 1, 0x88), rawFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 3)), protocol},
		"padding of HEADERS":                {rawFrame(http2.FrameHeaders, open|http2.FlagHeadersPadded, 1, 2, 0x88, 0, 0), rawFrame(http2.FrameHeaders, open|http2.FlagHeadersPadded, 1, 4, 0x88, 0, 0), protocol},
		"a stream for HEADERS":              {continued(1), rawFrame(http2.FrameHeaders, 0, 0, 0x88), protocol},
		"a header list":                     {rawFrame(http2.FrameHeaders, open, 1, listOf(maxHeaderList)...), rawFrame(http2.FrameHeaders, open, 1, listOf(maxHeaderList+1)...), calm},
		"a stream's window":                 {join(status, times(3, data(maxFrame)), data(maxFrame-1)), join(status, times(4, data(maxFrame))), flow},
		"frames that get nowhere":           {times(maxScore, rawFrame(0xee, 0, 0)), times(maxScore+1, rawFrame(0xee, 0, 0)), calm},
		"answers of ours that are not read": {join(times(2, settings()), times((maxControl-2*9)/17, appendPing(nil, 0, 1))), times(maxControl/17+1, appendPing(nil, 0, 1)), calm}, // acknowledgements of 9 and 17 bytes: just maxControl
		"the highest stream that was open":  {appendReset(nil, 1, http2.ErrCodeCancel), appendReset(nil, 3, http2.ErrCodeCancel), protocol},
		"streams of ours":                   {appendWindowUpdate(nil, 1, 1), append(appendFrameHeader(nil, 1, http2.FrameData, 0, 2), 0), protocol},
		"no stream at all":                  {appendReset(nil, 1, http2.ErrCodeCancel), appendReset(nil, 0, http2.ErrCodeCancel), protocol},
		"length of GOAWAY":                  {rawFrame(http2.FrameGoAway, 0, 0, make([]byte, 8)...), rawFrame(http2.FrameGoAway, 0, 0, make([]byte, 7)...), size},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := answerTo(t, row.fine); err != nil {
					t.Errorf("within the limit: %v", err)
				}
				var broken peerError
				if err := answerTo(t, row.bad); !errors.As(err, &broken) || broken.code != row.code {
					t.Errorf("beyond it: %v, want %v", err, row.code)
				}
			})
		})
	}
}

// answerTo makes a connection with one request in flight read frames.
func answerTo(t *testing.T, frames []byte) error {
	t.Helper()
	h := newHalted(t)
	r := post("/a")
	r.Body = nil // the windows are full
	h.fill(r)
	h.send()
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	used, err := h.c.frames(frames, nil)
	if err == nil && used != len(frames) {
		t.Errorf("%d of %d bytes read", used, len(frames))
	}
	return err
}

// Anything before a server's SETTINGS is an error, even its acknowledgement of
// ours.
func TestFirstFrameIsSettings(t *testing.T) {
	for why, row := range map[string]struct {
		first []byte
		fine  bool
	}{
		"SETTINGS":        {settings(), true},
		"acknowledgement": {rawFrame(http2.FrameSettings, http2.FlagSettingsAck, 0), false},
		"PING":            {appendPing(nil, 0, 1), false},
		"unknown":         {rawFrame(0xee, 0, 0), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHalted(t)
			h.c.settled = false
			h.c.mu.Lock()
			defer h.c.mu.Unlock()
			_, err := h.c.frames(row.first, nil)
			var broken peerError
			if (err == nil) != row.fine || !row.fine && (!errors.As(err, &broken) || broken.code != http2.ErrCodeProtocol) {
				t.Errorf("%s first: %v", why, err)
			}
		})
	}
}

// The limits of one stream are exact too: one step over, and the stream is
// reset and its request ends, but the connection goes on.
func TestLimitsOfAStreamAreExact(t *testing.T) {
	const (
		end  = http2.FlagHeadersEndStream
		head = http2.FlagHeadersEndHeaders
	)
	status := func(flags http2.Flags, s string) []byte {
		return rawFrame(http2.FrameHeaders, flags|head, 1, appendString([]byte{0x08}, []byte(s))...) // :status as a literal
	}
	for why, row := range map[string]struct {
		fine, bad []byte
		code      http2.ErrCode
		lost      Outcome // of the request that is reset
	}{
		"its window":                {appendWindowUpdate(nil, 1, maxWindow-firstWindow), appendWindowUpdate(nil, 1, maxWindow-firstWindow+1), http2.ErrCodeFlowControl, Ambiguous},
		"an update that updates":    {appendWindowUpdate(nil, 1, 1), appendWindowUpdate(nil, 1, 0), http2.ErrCodeFlowControl, Ambiguous},
		"the lowest final status":   {status(end, "200"), status(end, "199"), http2.ErrCodeProtocol, Ambiguous},
		"the lowest status":         {status(0, "100"), status(0, "099"), http2.ErrCodeProtocol, Ambiguous},
		"the highest interim one":   {status(0, "199"), status(end, "100"), http2.ErrCodeProtocol, Ambiguous},
		"no other protocol":         {status(0, "102"), status(0, "101"), http2.ErrCodeProtocol, Ambiguous},
		"trailers that end":         {join(status(0, "200"), rawFrame(http2.FrameHeaders, end|head, 1, 0x0f, 0x12, 0)), join(status(0, "200"), rawFrame(http2.FrameHeaders, head, 1, 0x0f, 0x12, 0)), http2.ErrCodeProtocol, Answered},
		"trailers without a status": {join(status(0, "200"), rawFrame(http2.FrameHeaders, end|head, 1, 0x0f, 0x12, 0)), join(status(0, "200"), status(end, "200")), http2.ErrCodeProtocol, Answered},
		"a body behind its status":  {join(status(0, "200"), rawFrame(http2.FrameData, 0, 1, 'x')), rawFrame(http2.FrameData, 0, 1, 'x'), http2.ErrCodeProtocol, Ambiguous},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for frames, fine := range map[string]bool{string(row.fine): true, string(row.bad): false} {
					h := newHalted(t)
					r := post("/a")
					r.Body = nil
					h.fill(r)
					h.send()
					h.read([]byte(frames))
					reset := bytes.Contains(h.c.control, appendReset(nil, 1, row.code))
					if fine && (reset || r.Outcome == Ambiguous || r.Answer.Broken) {
						t.Errorf("within the limit: reset %v, %v, %v", reset, r.Outcome, r.Err)
					}
					if !fine && (!reset || r.Outcome != row.lost || r.Answer.Broken != (row.lost == Answered)) {
						t.Errorf("beyond it: reset %v with %v, %v, %v", reset, row.code, r.Outcome, r.Err)
					}
				}
			})
		})
	}
}
