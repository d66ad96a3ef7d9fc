//go:build unix

package status

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// A node that vanishes is noticed even while nothing is sent to it.
func TestConnectionsAreKeptAlive(t *testing.T) {
	d := &dialer{life: t.Context(), opening: t.Context(), timeout: time.Minute}
	conn, err := d.DialContext(t.Context(), "tcp", speaker(t, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer d.unwatch()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var on int
	if controlled := raw.Control(func(fd uintptr) { on, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) }); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	if on == 0 {
		t.Error("no keep-alives are sent")
	}
}
