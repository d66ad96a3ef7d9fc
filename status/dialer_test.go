package status

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// While a session is being opened, its connections end with the caller that
// waits for it. Afterwards they belong to the session. No dial outlives the
// store.
func TestDialsEndWithWhoeverWantsThem(t *testing.T) {
	const nobody = "127.0.0.1:1"
	there := speaker(t, nil, nil)
	for _, tt := range []struct {
		why           string
		addr          string
		ended, closed bool // the caller that waits for the session, and the store
		opened        bool // the session is open
		want          bool
	}{
		{"somebody is there", there, false, false, false, true},
		{"nobody is there", nobody, false, false, false, false},
		{"nobody is there any more", nobody, false, false, true, false},
		{"nobody waits any more", there, true, false, false, false},
		{"whoever waited has the session", there, true, false, true, true},
		{"the store is closed", there, false, true, false, false},
		{"the store is closed with its session", there, false, true, true, false},
	} {
		opening, give := context.WithCancel(t.Context())
		life, end := context.WithCancel(t.Context())
		d := &dialer{life: life, opening: opening, timeout: time.Minute}
		if tt.opened {
			d.unwatch()
		}
		if tt.ended {
			give()
		}
		if tt.closed {
			end()
		}
		// The end takes a moment to arrive, so a dial may be faster.
		came := true
		for range 100 {
			conn, err := d.DialContext(t.Context(), "tcp", tt.addr)
			if (conn != nil) != (err == nil) {
				t.Fatalf("%s: %v, %v", tt.why, conn, err)
			}
			if came = err == nil; !came {
				break
			}
			_ = conn.Close()
		}
		if came != tt.want {
			t.Errorf("%s: connections come through: %v", tt.why, came)
		}
		d.unwatch()
		give()
		end()
	}
}

// A connection that exists when the caller gives up ends too; otherwise gocql
// would wait for an answer on it.
func TestConnectionsEndWithTheOpening(t *testing.T) {
	for _, made := range []bool{false, true} {
		opening, give := context.WithCancel(t.Context())
		d := &dialer{life: t.Context(), opening: opening, timeout: time.Minute}
		conn, err := d.DialContext(t.Context(), "tcp", speaker(t, nil, []byte{1}))
		if err != nil {
			t.Fatal(err)
		}
		if made {
			d.unwatch()
		}
		give()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); made && err != nil {
			t.Error(err)
		}
		if made {
			_, err = conn.Write(make([]byte, headerSize))
		}
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // from speaker, which would otherwise wait for a request
		}
		if (err == nil) != made || isTimeout(err) {
			t.Errorf("the session is made: %v, and its connection says %v", made, err)
		}
		_ = conn.Close()
		d.unwatch()
	}
}

// A caller waits for a session no longer than its context allows, and gets the
// cause. A server whose connections hang delays nobody.
func TestConnectingEndsWithItsContext(t *testing.T) {
	opts, err := Options{Hosts: []string{speaker(t, nil, nil)}, Timeout: time.Hour, Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("waited long enough")
	for _, wait := range []time.Duration{-1, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), wait, enough)
		c, err := connect(ctx, opts, "")
		cancel()
		if c != nil || !errors.Is(err, enough) || !strings.Contains(err.Error(), opts.place()) {
			t.Errorf("after %v: %v", wait, err)
		}
	}
}

func isTimeout(err error) bool {
	timeout, is := err.(net.Error)
	return is && timeout.Timeout()
}
