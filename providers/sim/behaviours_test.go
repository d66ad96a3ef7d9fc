package sim

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// seen is what a client of a behaviour got of one frame.
func seen(f http2.Frame) string {
	switch f := f.(type) {
	case *http2.GoAwayFrame:
		return fmt.Sprintf("GOAWAY(%d,%s) %s", f.LastStreamID, f.ErrCode, f.DebugData())
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("RST(%d,%s)", f.StreamID, f.ErrCode)
	case *http2.SettingsFrame:
		if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
			return fmt.Sprint("STREAMS=", n)
		}
	}
	return ""
}

// expect reads until a frame is seen as want.
func (w *wire) expect(want string) {
	w.T.Helper()
	var all []string
	w.Must(w.Conn.SetReadDeadline(time.Now().Add(wiretest.Liveness)))
	for {
		f, err := w.ReadFrame()
		if err != nil {
			w.T.Fatalf("got %q, then %v; want %q", all, err, want)
		}
		s := seen(f)
		if s == want {
			return
		}
		if s != "" {
			all = append(all, s)
		}
	}
}

// ends reads until the connection ends.
func (w *wire) ends() error {
	w.T.Helper()
	w.Must(w.Conn.SetReadDeadline(time.Now().Add(wiretest.Liveness)))
	for {
		if _, err := w.ReadFrame(); err != nil {
			var timeout interface{ Timeout() bool }
			if errors.As(err, &timeout) && timeout.Timeout() {
				w.T.Fatal("the connection did not end")
			}
			return err
		}
	}
}

func (w *wire) order(c Command) {
	w.T.Helper()
	w.Must(w.server.Command(c))
}

// header is that of a request, as it is encoded.
func header(r *Request) (fields []hpack.HeaderField) {
	for _, f := range append([]Field{{Name: ":method", Value: r.Method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: r.Path}}, r.Fields...) {
		fields = append(fields, hpack.HeaderField{Name: f.Name, Value: f.Value})
	}
	return fields
}

// request sends a whole request.
func (w *wire) request(r *Request) (id uint32) {
	w.T.Helper()
	id = w.ID
	w.ID += 2
	w.Must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.Block(header(r)...), EndHeaders: true}))
	w.Must(w.WriteData(id, true, r.Body))
	return id
}

// authenticated connects and has one push accepted.
func authenticated(t *testing.T, o Options) (*wire, *Request) {
	w := dialWire(t, o)
	s := newStand(t, nil)
	s.clock = time.Now()
	p := s.push()
	all(set("apns-expiration", ""), content(`{"aps":{"alert":"x"},"pf_id":"first"}`))(s, p)
	id := w.request(p)
	w.Flush()
	w.Until(wiretest.Ended(id))
	return w, p
}

// googleClient connects as a client of FCM.
func googleClient(t *testing.T, r Rules) *wire {
	w := dialWire(t, Options{Rules: r, Faults: RouteSet{FCM: Faults{Latency: time.Hour}}})
	for range 3 {
		w.fcm()
	}
	w.Flush()
	return w
}

func (w *wire) fcm() {
	w.request(&Request{Method: "POST", Path: "/v1/projects/p/messages:send", Body: []byte(`{}`)})
}

// answered gives a policy's answers to a run of pushes of APNs.
func answered(s *stand, n int, change ...func(*stand, *Request)) (got []Reply) {
	req := s.push()
	all(change...)(s, req)
	for range n {
		got = append(got, s.do(req).Reply)
	}
	return got
}

func sent(s *stand, n int, change ...func(*stand, *Request)) (got []Reply) {
	req := s.send()
	all(change...)(s, req)
	for range n {
		got = append(got, s.do(req).Reply)
	}
	return got
}

func same(t *testing.T, got []Reply, want ...Reply) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Every behaviour, as a client meets it; each leaves its number in the events
// (except that of plain acceptance).
func TestBehaviours(t *testing.T) {
	for n, play := range [26]func(*testing.T) *Events{
		1: func(t *testing.T) *Events {
			s := newStand(t, nil)
			same(t, answered(s, 1), APNSAccepted)
			s.policy.orders.add(order{provider: APNS, act: Act{Do: DoAnswer, Reply: APNSAccepted}, times: 1, by: byCommand})
			same(t, answered(s, 1), APNSAccepted)
			return s.policy.events
		},
		2: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{Rules: Rules{OneStream: true}})
			w.order(Command{Do: "one_stream", Provider: "apns"})
			w.expect("STREAMS=1")
			w.Must(w.server.SetFaults(APNS, Faults{Latency: 2 * time.Second}))
			set("authorization", "")(nil, p)
			first := w.request(p)
			w.request(p)
			w.Flush()
			w.expect(fmt.Sprintf("GOAWAY(%d,REFUSED_STREAM) %s", first, tooManyAlone))
			w.ends()
			return w.server.Events()
		},
		3: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{Rules: Rules{AdaptiveStreams: true}})
			w.Must(w.server.SetFaults(APNS, Faults{Latency: 2 * time.Second}))
			w.request(p)
			excess := w.request(p)
			bad := *p
			bad.Path = "/3/device/zz"
			rejected := w.request(&bad)
			w.Flush()
			w.expect("STREAMS=1")
			w.expect(fmt.Sprintf("RST(%d,REFUSED_STREAM)", excess))
			w.Until(wiretest.Ended(rejected))
			w.request(p)
			w.Flush()
			w.expect("STREAMS=1000")
			return w.server.Events()
		},
		4: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{Rules: Rules{BadTokens: Limit{2, time.Minute}}})
			p.Path = "/3/device/zz"
			for range 3 {
				w.request(p)
			}
			w.Flush()
			w.expect(fmt.Sprintf(`GOAWAY(%d,ENHANCE_YOUR_CALM) {"reason":"BadDeviceToken"}`, w.ID-2))
			w.ends()
			return w.server.Events()
		},
		5: func(t *testing.T) *Events {
			s := newStand(t, nil)
			s.policy.devices.Dead(APNS, goodToken, time.UnixMilli(1_700_000_000_000))
			if ans := s.do(s.push()); string(ans.Body) != `{"reason":"Unregistered","timestamp":1700000000000}` {
				t.Errorf("got %s", ans.Body)
			}
			return s.policy.events
		},
		6: func(t *testing.T) *Events {
			s := newStand(t, nil)
			s.policy.orders.add(order{provider: APNS, act: Act{Do: DoLapse, For: time.Minute}, times: 1, by: byCommand})
			same(t, answered(s, 2), APNSAccepted, APNSAccepted)
			s.clock = s.clock.Add(time.Minute)
			same(t, answered(s, 1), APNSUnregistered)
			return s.policy.events
		},
		7: func(t *testing.T) *Events {
			s := newStand(t, func(o *Options) {
				o.Faults.APNS.Chances = []Chance{{1, Act{Do: DoAnswer, Reply: APNSBadDeviceToken}}}
			})
			same(t, answered(s, 2), APNSBadDeviceToken, APNSBadDeviceToken)
			return s.policy.events
		},
		8: func(t *testing.T) *Events {
			s := newStand(t, nil)
			req := s.push()
			s.clock = s.clock.Add(61 * time.Minute)
			old := s.do(req).Reply
			set("authorization", s.providerToken(s.shop, s.clock))(s, req)
			same(t, []Reply{old, s.do(req).Reply}, APNSExpiredProviderToken, APNSExpiredProviderToken)
			return s.policy.events
		},
		9: func(t *testing.T) *Events {
			s := newStand(t, func(o *Options) { o.Rules.UpdatesPerAddress = true })
			var three []*Request // on a connection each, with a token each
			for i := range 3 {
				req := s.push()
				req.Conn.address = addressOf(pipe{}.RemoteAddr())
				set("authorization", s.providerToken(s.shop, s.clock.Add(time.Duration(i)*time.Second)))(s, req)
				three = append(three, req)
			}
			same(t, []Reply{s.do(three[0]).Reply, s.do(three[1]).Reply, s.do(three[2]).Reply, s.do(three[0]).Reply, s.do(three[1]).Reply},
				APNSAccepted, APNSAccepted, APNSTooManyProviderTokenUpdates, APNSAccepted, APNSAccepted)
			return s.policy.events
		},
		10: func(t *testing.T) *Events {
			s := newStand(t, nil)
			same(t, answered(s, 1, set("authorization", "")), APNSMissingProviderToken)
			return s.policy.events
		},
		11: func(t *testing.T) *Events {
			s := newStand(t, func(o *Options) { o.Rules.PerDevice = Limit{2, time.Minute} })
			same(t, answered(s, 3), APNSAccepted, APNSAccepted, APNSTooManyRequests)
			same(t, answered(s, 1, path("/3/device/aa")), APNSAccepted)
			s.clock = s.clock.Add(time.Minute)
			same(t, answered(s, 1), APNSAccepted)
			return s.policy.events
		},
		12: func(t *testing.T) *Events {
			s := newStand(t, nil)
			same(t, answered(s, 1, content(padded(4097))), APNSPayloadTooLarge)
			return s.policy.events
		},
		13: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{})
			w.order(Command{Do: "answer", Provider: "apns", Reply: "ServiceUnavailable", For: Interval(time.Hour)})
			for range 2 {
				w.request(p)
			}
			last := w.request(p)
			w.Flush()
			w.Until(wiretest.Ended(last))
			w.Must(w.server.SetClock(time.Hour, 1))
			if got := w.server.Ledger().Totals().Providers["apns"].Replies["ServiceUnavailable"]; got != 3 {
				t.Errorf("%d in the outage, want 3", got)
			}
			return w.server.Events()
		},
		14: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{})
			w.Must(w.server.SetFaults(APNS, Faults{Latency: 2 * time.Second}))
			processed := w.request(p)
			p.Body = []byte(`{"aps":{"alert":"x"},"pf_id":"second"}`)
			w.request(p)
			w.Flush()
			w.received(3)
			w.order(Command{Do: "drain", Provider: "apns", Unprocessed: 1})
			w.expect(fmt.Sprintf(`GOAWAY(%d,NO_ERROR) {"reason":"Shutdown"}`, processed))
			w.Until(wiretest.Ended(processed))
			w.ends()
			if e, _ := w.server.Ledger().Entry("second", DeviceHash(APNS, goodToken)); e.Accepted != 0 || e.Dropped != 1 {
				t.Errorf("above the last stream: %+v", e)
			}
			return w.server.Events()
		},
		15: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{})
			w.Must(w.server.SetFaults(APNS, Faults{Latency: time.Hour}))
			p.Body = []byte(`{"aps":{"alert":"x"},"pf_id":"second"}`)
			w.request(p)
			w.Flush()
			w.received(2)
			w.order(Command{Do: "kill", Provider: "apns"})
			if err := w.ends(); errors.Is(err, io.EOF) {
				t.Errorf("got %v, want a reset", err)
			}
			w.Must(w.server.Close())
			if e, _ := w.server.Ledger().Entry("second", DeviceHash(APNS, goodToken)); e.Accepted != 1 || e.Dropped != 1 {
				t.Errorf("killed in flight: %+v", e)
			}
			return w.server.Events()
		},
		16: func(t *testing.T) *Events {
			w, p := authenticated(t, Options{})
			w.order(Command{Do: "hang", Provider: "apns"})
			hung, other := w.request(p), w.request(p)
			w.Flush()
			w.Until(func(f http2.Frame) bool {
				if f.Header().StreamID == hung {
					t.Error("the hung stream was answered")
				}
				return wiretest.Ended(other)(f)
			})
			w.order(Command{Do: "deaf", Provider: "apns"})
			w.Must(w.WritePing(false, [8]byte{}))
			last := w.request(p)
			w.Flush()
			w.Until(func(f http2.Frame) bool {
				if wiretest.Of[*http2.PingFrame](f) {
					t.Error("the ping was answered")
				}
				return wiretest.Ended(last)(f)
			})
			w.order(Command{Do: "black_hole", Provider: "apns"})
			return w.server.Events()
		},
		17: func(t *testing.T) *Events {
			w, _ := authenticated(t, Options{Rules: Rules{Dials: Limit{1, time.Minute}, DialsRefused: time.Minute}})
			client := http2Conn(w.server)
			if _, err := client(); err == nil {
				t.Error("the second connection was taken")
			}
			w.Must(w.server.SetClock(2*time.Minute, 1))
			if _, err := client(); err != nil {
				t.Errorf("two minutes later: %v", err)
			}
			return w.server.Events()
		},
		18: func(t *testing.T) *Events {
			s := newStand(t, nil)
			s.policy.orders.add(order{provider: FCM, act: Act{Do: DoAnswer, Reply: FCMAccepted}, times: 1, by: byCommand})
			same(t, sent(s, 1), FCMAccepted)
			return s.policy.events
		},
		19: func(t *testing.T) *Events {
			s := newStand(t, nil)
			same(t, sent(s, 1, path("/v1/projects/nobody/messages:send")), FCMNotFound)
			return s.policy.events
		},
		20: func(t *testing.T) *Events {
			s := newStand(t, nil)
			same(t, sent(s, 1, content(`{"message":{}}`)), FCMNoRecipient)
			return s.policy.events
		},
		21: func(t *testing.T) *Events {
			s := newStand(t, func(o *Options) {
				o.Rules.ProjectQuota, o.Rules.QuotaRetryAfter = Limit{2, time.Minute}, true
			})
			s.clock = windowEnd(time.Minute, s.clock, s.policy.offset) // a new window
			s.bearer = "Bearer " + s.accessToken(s.shop)
			same(t, sent(s, 1, content(`{}`)), FCMNoRecipient) // it counts
			same(t, sent(s, 2), FCMAccepted, FCMProjectQuota)
			if ans := s.do(s.send()); ans.value("retry-after") != "60" {
				t.Errorf("Retry-After %q, want 60: the window has just begun", ans.value("retry-after"))
			}
			s.clock = s.clock.Add(time.Minute)
			same(t, sent(s, 1), FCMAccepted)
			return s.policy.events
		},
		22: func(t *testing.T) *Events {
			s := newStand(t, func(o *Options) { o.Rules.DeviceQuota = Limit{1, time.Minute} })
			same(t, sent(s, 2), FCMAccepted, FCMDeviceQuota)
			return s.policy.events
		},
		23: func(t *testing.T) *Events {
			s := newStand(t, func(o *Options) { o.Faults.FCM.BadGateway = 1 })
			same(t, sent(s, 1), FCMBadGateway)
			return s.policy.events
		},
		24: func(t *testing.T) *Events {
			s := newStand(t, nil)
			same(t, sent(s, 1, set("authorization", "Bearer x")), FCMUnauthenticated)
			return s.policy.events
		},
		25: func(t *testing.T) *Events {
			for why, tt := range map[string]struct {
				rules Rules
				do    func(*wire)
				want  string
			}{
				"streams": {Rules{Streams: 3}, func(w *wire) {
					w.Must(w.WriteSettingsAck())
					w.Must(w.WriteSettingsAck())
					w.fcm()
				}, "GOAWAY(5,PROTOCOL_ERROR) " + tooManyStreams},
				"pings": {Rules{Pings: Limit{1, time.Minute}}, func(w *wire) {
					w.Must(w.WritePing(false, [8]byte{}))
					w.Must(w.WritePing(false, [8]byte{}))
				}, "GOAWAY(5,ENHANCE_YOUR_CALM) " + tooManyPings},
				"drain": {Rules{}, func(w *wire) {
					w.received(3)
					w.order(Command{Do: "drain", Provider: "fcm"})
				}, "GOAWAY(5,NO_ERROR) "},
			} {
				t.Run(why, func(t *testing.T) {
					w := googleClient(t, tt.rules)
					tt.do(w)
					w.Flush()
					w.expect(tt.want)
				})
			}
			w := dialWire(t, Options{Rules: Rules{Idle: 3 * time.Minute}})
			w.fcm()
			w.Flush()
			w.Until(wiretest.Ended(1))
			w.Must(w.server.SetClock(3*time.Minute, 1000))
			w.expect("GOAWAY(1,NO_ERROR) " + timedOut)
			w.ends()
			return w.server.Events()
		},
	} {
		if play == nil {
			continue
		}
		t.Run(fmt.Sprintf("%d %s", n, strings.ReplaceAll(Behaviours[n], ",", "")), func(t *testing.T) {
			t.Parallel()
			if events := play(t).Of(n); len(events) == 0 {
				t.Error("no event of it")
			}
		})
	}
}
