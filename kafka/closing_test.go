package kafka

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a way to Kafka on which nothing is heard any more from a moment on. It is safe for
// concurrent use.
type hanging struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	fallen chan struct{} // closed when it falls
}

// Dial still connects then: a kernel does that for a process that hangs.
func (s *hanging) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &unheard{c, s.fallen}, nil
}

// unheard is a connection by this way.
type unheard struct {
	net.Conn
	fallen <-chan struct{}
}

func (u *unheard) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	select {
	case <-u.fallen:
		for err == nil {
			_, err = u.Conn.Read(b)
		}
		return 0, err
	default:
		return n, err
	}
}

// A client that fetches is closed while Kafka hangs: it does not wait for it.
func TestClosingWhileKafkaHangs(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, o Options) (read func(), shut func()){
		"a follower": func(t *testing.T, o Options) (func(), func()) {
			f, err := NewFollower(o, "push", nil)
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if records, err := f.Poll(t.Context(), 10); err != nil || len(records) == 0 {
					t.Errorf("%d records, %v", len(records), err)
				}
			}, f.Close
		},
		"a consumer": func(t *testing.T, o Options) (func(), func()) {
			c, err := NewConsumer(o, "push", "g")
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if records, err := c.Poll(t.Context(), 10); err != nil || len(records) == 0 {
					t.Errorf("%d records, %v", len(records), err)
				}
				if err := c.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			}, c.Close
		},
		"a source": func(t *testing.T, o Options) (func(), func()) {
			s, err := NewSource(o, SourceOptions{Topics: []SourceTopic{{Name: "push"}}, Group: "g"})
			if err != nil {
				t.Fatal(err)
			}
			s.Join()
			return func() {
					if _, err := s.Next(t.Context()); err != nil {
						t.Error(err)
					}
				}, func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_ = s.Close(ctx) // it could not commit
				}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t)
				way := &hanging{dial: v.network.DialContext, fallen: make(chan struct{})}
				o := v.options(way.Dial)
				read, shut := open(t, o)
				read()
				time.Sleep(3 * time.Second) // it fetches on
				close(way.fallen)
				time.Sleep(2 * time.Second)
				start := time.Now()
				shut()
				if took := time.Since(start); took > closeFor {
					t.Errorf("closed after %v", took)
				}
			})
		})
	}
}
