package kafka

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// scripted is a connection whose reads return in piece by piece.
type scripted struct {
	net.Conn
	in       []byte
	rng      *rand.Rand
	writeErr error
}

func (c *scripted) Write(b []byte) (int, error) { return len(b), c.writeErr }

func (c *scripted) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.in[:min(len(c.in), 1+c.rng.IntN(40))])
	c.in = c.in[n:]
	return n, nil
}

func (c *scripted) Close() error { return nil }

func requestBytes(key, version int16, correlation int32) []byte {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, correlation)
}

func answerBytes(key, version int16, correlation int32, code int16, padding int) []byte {
	answer := kmsg.ResponseForKey(key)
	answer.SetVersion(version)
	switch r := answer.(type) {
	case *kmsg.HeartbeatResponse:
		r.ErrorCode, r.ThrottleMillis = code, 1<<20
	case *kmsg.SyncGroupResponse:
		r.ErrorCode, r.ThrottleMillis, r.MemberAssignment = code, 1<<20, make([]byte, padding)
	case *kmsg.JoinGroupResponse:
		r.ErrorCode, r.ThrottleMillis, r.MemberID = code, 1<<20, string(make([]byte, padding))
	case *kmsg.ConsumerGroupHeartbeatResponse:
		r.ErrorCode, r.ThrottleMillis = code, 1<<20
	case *kmsg.FetchResponse:
		r.Topics = []kmsg.FetchResponseTopic{{Topic: string(make([]byte, padding))}}
	}
	body := binary.BigEndian.AppendUint32(nil, uint32(correlation))
	if answer.IsFlexible() && key != int16(kmsg.ApiVersions) {
		body = append(body, 0)
	}
	body = answer.AppendTo(body)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestAnswersAreReadInEveryVersionAndPiece(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		script := &scripted{rng: rng}
		expelled := false
		m := newMembership(time.Second, time.Minute, func(int) { expelled = true })
		c := &watchedConn{Conn: script, member: m, pending: make(map[int32]sentRequest)}
		correlation := int32(0)
		for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.Heartbeat, kmsg.SyncGroup, kmsg.ConsumerGroupHeartbeat, kmsg.Metadata, kmsg.JoinGroup} {
			top := key.Request().MaxVersion()
			for version := int16(0); version <= top; version++ {
				_, watched := throttledSince[key]
				for _, code := range []int16{0, kerr.RebalanceInProgress.Code, kerr.NotCoordinator.Code, kerr.UnknownMemberID.Code} {
					correlation++
					m.mu.Lock()
					m.member, m.id, m.answered, m.unfenced, expelled = true, "", time.Time{}, false, false
					m.mu.Unlock()
					if _, err := c.Write(requestBytes(key.Int16(), version, correlation)); err != nil {
						t.Fatal(err)
					}
					if (len(c.pending) == 1) != watched {
						t.Fatalf("%s v%d: got %d pending", key.Name(), version, len(c.pending))
					}
					script.in = append(script.in, answerBytes(key.Int16(), version, correlation, code, rng.IntN(3000))...)
					if rng.IntN(2) == 0 { // after it in the same packet
						correlation++
						if _, err := c.Write(requestBytes(kmsg.Metadata.Int16(), 1, correlation)); err != nil {
							t.Fatal(err)
						}
						script.in = append(script.in, answerBytes(kmsg.Metadata.Int16(), 1, correlation, 0, 0)...)
					}
					if _, err := io.ReadAll(c); err != nil {
						t.Fatal(err)
					}
					beat := key == kmsg.Heartbeat || key == kmsg.ConsumerGroupHeartbeat
					if renewed := !m.answered.IsZero(); renewed != (beat && (code == 0 || code == kerr.RebalanceInProgress.Code)) {
						t.Fatalf("seed %d: %s v%d answered with %d: renewed %v", seed, key.Name(), version, code, renewed)
					}
					if expelled != (watched && code == kerr.UnknownMemberID.Code) {
						t.Fatalf("seed %d: %s v%d answered with %d: expelled %v", seed, key.Name(), version, code, expelled)
					}
					if len(c.pending)+len(m.joins)+len(c.prefix)+c.skip != 0 {
						t.Fatalf("seed %d: %s v%d left %d pending, %d joins, %d bytes, %d to skip", seed, key.Name(), version, len(c.pending), len(m.joins), len(c.prefix), c.skip)
					}
				}
			}
		}
	}
}

func TestRequestsNameTheirMember(t *testing.T) {
	for key := range throttledSince {
		for version := int16(0); version <= key.Request().MaxVersion(); version++ {
			req := key.Request()
			req.SetVersion(version)
			leads := false
			switch r := req.(type) {
			case *kmsg.JoinGroupRequest:
				r.Group, r.MemberID, r.Protocols = "g", "m", []kmsg.JoinGroupRequestProtocol{{Name: "p", Metadata: make([]byte, 300)}}
			case *kmsg.SyncGroupRequest:
				leads = version%2 == 0
				r.Group, r.MemberID = "g", "m"
				if leads {
					r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "other", MemberAssignment: make([]byte, 300)}}
				}
			case *kmsg.HeartbeatRequest:
				r.Group, r.MemberID = "g", "m"
			case *kmsg.ConsumerGroupHeartbeatRequest:
				r.Group, r.MemberID = "g", "m"
			}
			b := kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, 7)
			if r, ok := (&watchedConn{}).requestOf(b); !ok || r.member != "m" || r.leads != leads {
				t.Errorf("%s v%d: read %t, member %q, leads %t", key.Name(), version, ok, r.member, r.leads)
			}
			for n := range len(b) - requestHeader {
				r := request{key: key, version: version}
				if r.read(b[requestHeader : requestHeader+n]); r.member != "" || r.leads {
					t.Errorf("%s v%d: a member is read from %d bytes of %d", key.Name(), version, n, len(b)-requestHeader)
				}
			}
		}
	}
}

func TestARequestWithoutAnAnswerWaitsForNothing(t *testing.T) {
	join := requestBytes(kmsg.JoinGroup.Int16(), 9, 1)
	m := newMembership(time.Second, time.Minute, func(int) {})
	m.member = true

	failing := &watchedConn{Conn: &scripted{writeErr: errors.New("broken pipe")}, member: m, pending: make(map[int32]sentRequest)}
	if _, err := failing.Write(join); err == nil {
		t.Fatal("the write's error was lost")
	}
	if len(m.joins) != 0 {
		t.Error("a JoinGroup that was not written counts as pending")
	}

	closed := &watchedConn{Conn: &scripted{}, member: m, pending: make(map[int32]sentRequest)}
	if _, err := closed.Write(join); err != nil {
		t.Fatal(err)
	}
	if len(m.joins) != 1 {
		t.Fatal("a JoinGroup on its way is not noted")
	}
	if err := closed.Close(); err != nil || len(m.joins) != 0 {
		t.Errorf("after the connection ended: got %d pending, error %v", len(m.joins), err)
	}

	cut := &watchedConn{Conn: &scripted{in: answerBytes(kmsg.JoinGroup.Int16(), 9, 1, 0, 100)[:11], rng: rand.New(rand.NewPCG(1, 1))}, member: m, pending: make(map[int32]sentRequest)}
	if _, err := cut.Write(join); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(cut); err != nil {
		t.Fatal(err)
	}
	if err := cut.Close(); err != nil || len(m.joins) != 0 {
		t.Errorf("truncated answer: got %d pending, error %v", len(m.joins), err)
	}
}

// A write that is not one whole request is ignored: it may begin anywhere in one.
func TestOnlyAWholeRequestIsLookedAt(t *testing.T) {
	whole := []byte{0, 0, 0, 8, 0, byte(kmsg.Heartbeat), 0, 4, 0, 0, 0, 7}
	for why, tt := range map[string]struct {
		b    []byte
		want bool
	}{
		"a whole one":          {whole, true},
		"nothing":              {nil, false},
		"a part of its header": {whole[:11], false},
		"more than it says":    {append(slices.Clone(whole), 0), false},
		"less than it says":    {append([]byte{0, 0, 0, 9}, whole[4:]...), false},
		"one of no group":      {[]byte{0, 0, 0, 8, 0, byte(kmsg.Fetch), 0, 4, 0, 0, 0, 7}, false},
	} {
		if r, ok := (&watchedConn{}).requestOf(tt.b); ok != tt.want || ok && (r.key != kmsg.Heartbeat || r.version != 4 || r.correlation != 7) {
			t.Errorf("%s: %v, %+v; want %v", why, ok, r, tt.want)
		}
	}
}
