package users_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// A connection that breaks in the middle of an answer is tried again by the library, and
// what had come of the first answer is no part of the next.
func TestFetchIsTriedAgain(t *testing.T) {
	ada := userWith(strings.Repeat("ada-token", 300))
	reply := bulkReply([]byte("00000000feedbeef"), record.Encode(nil, ada, 0xfeedbeef), []byte("state"))
	cuts := []int{len(reply), len(reply) / 2, 3, 0, len(reply)} // of the answers, in their order
	answers := make(chan []byte, len(cuts))
	for _, n := range cuts {
		answers <- reply[:n]
	}
	var servers sync.WaitGroup
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, PoolSize: 1,
		MaxRetries: len(cuts), MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			servers.Go(func() { answerFrom(far, answers, len(reply)) })
			return near, nil
		}})
	t.Cleanup(func() { _ = client.Close(); servers.Wait() })
	reader := users.NewReader(client, true)
	for range 2 {
		var u push.User
		if err := reader.Fetch(t.Context(), []string{"ada"}, []*push.User{&u}); err != nil {
			t.Fatal(err)
		}
		if len(u.Devices) != 1 || u.Devices[0].Token != ada.Devices[0].Token || string(u.Limiter) != "state" {
			t.Errorf("%d devices and the state %q", len(u.Devices), u.Limiter)
		}
	}
	if len(answers) > 0 {
		t.Errorf("%d of the answers were not asked for", len(answers))
	}
}

// answerFrom answers each MGET on a connection with the next of answers, and hangs up
// after one that is not whole.
func answerFrom(conn net.Conn, answers <-chan []byte, whole int) {
	defer conn.Close()
	for asked := make([]byte, 4<<10); ; {
		n, err := conn.Read(asked)
		if err != nil {
			return
		}
		if !bytes.Contains(asked[:n], []byte("mget")) {
			if _, err := conn.Write([]byte("-ERR unknown command\r\n")); err != nil {
				return
			}
			continue
		}
		answer := <-answers
		if _, err := conn.Write(answer); err != nil || len(answer) < whole {
			return
		}
	}
}
