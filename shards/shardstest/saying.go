package shardstest

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// long is a length that the library would make room for before it has seen what
// follows. It believes its server, so the memory of a worker is not tried here.
var long = regexp.MustCompile(`[*$%~>|=!][+-]?[0-9]{5,}`)

// Saying returns a client of a Redis that says reply, byte for byte, to the first
// command with this name, and hangs up. It knows no other command. The client tries
// nothing twice: the answer would be the same. close ends both. ok is false for
// replies that fuzzing leaves out: they are long, or say that they are.
func Saying(reply []byte, to string) (client *redis.Client, close func(), ok bool) {
	if len(reply) > 1<<16 || long.Match(reply) {
		return nil, nil, false
	}
	s := &saying{reply: reply, to: bytes.ToLower([]byte(to))}
	client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
		ReadTimeout: patience, WriteTimeout: patience, Dialer: s.dial})
	return client, func() { _ = client.Close(); s.conns.Wait() }, true
}

type saying struct {
	reply, to []byte
	conns     sync.WaitGroup
}

func (s *saying) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	s.conns.Go(func() {
		defer far.Close()
		for asked := make([]byte, 64<<10); ; {
			n, err := far.Read(asked)
			if err != nil {
				return
			}
			if bytes.Contains(bytes.ToLower(asked[:n]), s.to) {
				_, _ = far.Write(s.reply)
				return
			}
			if _, err := far.Write([]byte("-ERR unknown command\r\n")); err != nil {
				return
			}
		}
	})
	return near, nil
}

// Asked is what the library alone makes of such a reply: the judge of what we make
// of it.
func Asked(t testing.TB, reply []byte) (any, error) {
	t.Helper()
	client, close, ok := Saying(reply, "eval")
	if !ok {
		t.Fatal("a reply that fuzzing leaves out")
	}
	defer close()
	return client.Eval(context.Background(), "return 1", nil).Result()
}
