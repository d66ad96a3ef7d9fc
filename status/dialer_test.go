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

// While a session is being made, its connections end with whoever waits for it;
// afterwards they are the session's. No dial outlives the store.
func TestDialsEndWithWhoeverWantsThem(t *testing.T) {
	const nobody = "127.0.0.1:1"
	there := speaker(t, nil, nil)
	for _, tt := range []struct {
		why           string
		addr          string
		ended, closed bool // whoever waits for the session, and the store
		opened        bool // the session is made
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
		// What has ended takes a moment to be heard of: a dial may be faster.
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

// A connection that is there when whoever waits gives up ends too: gocql would
// go on waiting for an answer.
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
			_, err = conn.Read(make([]byte, 1)) // of the speaker, who waits for a question otherwise
		}
		if (err == nil) != made || isTimeout(err) {
			t.Errorf("the session is made: %v, and its connection says %v", made, err)
		}
		_ = conn.Close()
		d.unwatch()
	}
}

// Who waits for a session waits no longer than he wants, and hears what he waited
// for; a server that lets its connections stand still keeps nobody.
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
