package sim

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

// pipe is a connection from an address.
type pipe struct{ net.Conn }

func (pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// http2Conn dials, and hangs up.
func http2Conn(s *Server) func() (struct{}, error) {
	return func() (struct{}, error) {
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), s.ClientTLS())
		if err == nil {
			err = c.Close()
		}
		return struct{}{}, err
	}
}

// received waits until that many pushes have come.
func (w *wire) received(n uint64) {
	w.T.Helper()
	for w.server.Ledger().Totals().Received < n {
		time.Sleep(time.Millisecond)
	}
}

// Every act and every answer can be had in each of four ways: of a token or
// prefix, by chance, by a command, by a schedule.
func TestFourWays(t *testing.T) {
	for _, p := range []Provider{APNS, FCM} {
		var acts []Act
		for r := Reply(0); r < replyCount; r++ {
			if r.Provider() == p && r != FCMValidated {
				acts = append(acts, Act{Do: DoAnswer, Reply: r})
			}
		}
		for d := DoLapse; d < doCount; d++ {
			if a := (Act{Do: d, For: time.Minute}); a.Validate(p) == nil {
				acts = append(acts, a)
			}
		}
		for _, a := range acts {
			for way, set := range map[string]func(*stand){
				byToken: func(s *stand) {
					s.policy.devices.SetPrefix(APNS, goodToken[:8], Mark{Act: &a})
					s.policy.devices.SetPrefix(FCM, "", Mark{Act: &a})
				},
				byChance: func(s *stand) { s.policy.setFaults(p, Faults{Chances: []Chance{{1, a}}}) },
				byCommand: func(s *stand) {
					s.policy.orders.add(order{provider: p, act: a, times: 1, by: byCommand})
				},
				bySchedule: func(s *stand) {
					list := []Scheduled{{At: 0, Command: Command{Do: a.Do.String(), Provider: p.String(), Reply: a.Reply.String(), Times: 1, For: Interval(a.For)}}}
					if a.Do != DoAnswer {
						list[0].Command.Reply = ""
					}
					plan, err := list[0].Command.plan()
					if err != nil || list[0].validate() != nil {
						t.Fatalf("%s: %v", a.Do, err)
					}
					plan(&Server{policy: s.policy}, bySchedule)
				},
			} {
				s := newStand(t, nil)
				set(s)
				req := s.push()
				if p == FCM {
					req = s.send()
				}
				ans := s.do(req)
				events := s.policy.events.After(0, 0)
				switch {
				case a.Do >= DoOneStream: // the engine's
					if ans.act == nil || ans.act.Do != a.Do || ans.by != way {
						t.Errorf("%s %s by %s: got %+v by %s", p, a.Do, way, ans.act, ans.by)
					}
				case len(events) == 0 || events[len(events)-1].Do != a.Do.String() || events[len(events)-1].By != way || a.Do == DoAnswer && ans.Reply != a.Reply:
					t.Errorf("%s %s %s by %s: got %s, %+v", p, a.Do, a.Reply, way, ans.Reply, events)
				}
			}
		}
	}
}
