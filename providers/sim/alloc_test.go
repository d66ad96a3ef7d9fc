package sim

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// burst is requests that were encoded before, to be sent again and again with
// new stream numbers.
type burst struct {
	w       *wire
	frames  []byte
	numbers []int // where those stand, two a request
	in      []byte
}

// newBurst encodes n pushes to one device. Ids and path are not put into the
// header table, as a sender does it.
func newBurst(w *wire, n int) *burst {
	stand := newStand(w.T, nil)
	stand.clock = time.Now()
	push := stand.push()
	b := &burst{w: w, in: make([]byte, 64<<10)}
	encode := func(id uint32) {
		fields := header(push)
		for i, f := range fields {
			fields[i].Sensitive = f.Name == ":path" || f.Name == "apns-id" || f.Name == "apns-expiration"
		}
		b.numbers = append(b.numbers, w.Out.Len()+5)
		w.Must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.Block(fields...), EndHeaders: true}))
		b.numbers = append(b.numbers, w.Out.Len()+5)
		w.Must(w.WriteData(id, true, push.Body))
	}
	encode(1) // fills the header table
	w.Flush()
	w.Until(wiretest.Ended(1))
	b.numbers, w.ID = nil, 3
	for range n {
		encode(w.ID)
	}
	b.frames = bytes.Clone(w.Out.Bytes())
	w.Out.Reset()
	return b
}

// send sends them all and waits for their answers.
func (b *burst) send() {
	for i := 0; i < len(b.numbers); i += 2 {
		binary.BigEndian.PutUint32(b.frames[b.numbers[i]:], b.w.ID)
		binary.BigEndian.PutUint32(b.frames[b.numbers[i+1]:], b.w.ID)
		b.w.ID += 2
	}
	_, err := b.w.Conn.Write(b.frames)
	b.w.Must(err)
	b.w.Must(b.w.Conn.SetReadDeadline(time.Now().Add(wiretest.Liveness)))
	have := 0
	for left := len(b.numbers) / 2; left > 0; {
		n, err := b.w.Conn.Read(b.in[have:])
		b.w.Must(err)
		have += n
		at := 0
		const header = 9 // of every frame
		for have-at >= header {
			h := b.in[at:]
			length := header + (int(h[0])<<16 | int(h[1])<<8 | int(h[2]))
			if have-at < length {
				break
			}
			if kind := http2.FrameType(h[3]); kind == http2.FrameGoAway || kind == http2.FrameRSTStream {
				b.w.T.Fatalf("the server answered with %v", kind)
			} else if http2.Flags(h[4]).Has(http2.FlagDataEndStream) && kind != http2.FrameSettings {
				left--
			}
			at += length
		}
		have = copy(b.in, b.in[at:have])
	}
}

// In steady state a request costs no memory of the heap, with and without
// policies, at once and later.
func TestRequestsAllocateNothing(t *testing.T) {
	for why, o := range map[string]Options{
		"raw":       {Raw: true, CountOnly: true},
		"validated": {CountOnly: true},
		"lifelike":  {CountOnly: true, Rules: Rules{OneStream: true, AdaptiveStreams: true, UpdatesPerAddress: true, PerDevice: Limit{1 << 30, time.Hour}}},
		"later":     {CountOnly: true, Faults: RouteSet{APNS: Faults{Latency: 2 * time.Millisecond}}},
		"whole":     {},
	} {
		t.Run(why, func(t *testing.T) {
			const requests = 200
			b := newBurst(dialWire(t, o), requests)
			for range 5 {
				b.send() // buffers grow
			}
			// Less than one in two is none: under the race detector sync.Pool loses a
			// quarter of what it is given.
			if each := testing.AllocsPerRun(10, b.send) / requests; each > 0.5 {
				t.Errorf("%.2f allocations a request", each)
			}
			if got := b.w.server.Ledger().Totals(); got.Refused > 0 || got.Accepted != 1+16*requests {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The same of the policies by themselves, whoever they are of.
func TestAnswersAllocateNothing(t *testing.T) {
	for why, change := range map[string]func(*Options){
		"validated": func(o *Options) { o.CountOnly = true },
		"raw":       func(o *Options) { o.Raw, o.CountOnly = true, true },
	} {
		s := newStand(t, change)
		nameless := s.push()
		nameless.Fields = slices.DeleteFunc(nameless.Fields, func(f Field) bool { return f.Name == "apns-id" })
		for name, req := range map[string]*Request{"apns": s.push(), "apns without apns-id": nameless, "fcm": s.send()} {
			var ans Answer
			answer := func() {
				if s.policy.Answer(req, &ans); !ans.Reply.Accepted() {
					t.Fatalf("%s, %s: %s", why, name, ans.Reply)
				}
			}
			answer()
			if n := testing.AllocsPerRun(1000, answer); n != 0 {
				t.Errorf("%s, %s: %v allocations a request", why, name, n)
			}
		}
	}
}
