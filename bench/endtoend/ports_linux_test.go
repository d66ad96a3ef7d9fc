package endtoend

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
)

// Whoever can reach a port of a worker reads its metrics: by default nobody but
// this machine can, there is one port, and it serves no profiles.
func TestWorkersListenOnLoopbackOnly(t *testing.T) {
	const records = 200
	people := newCrowd(t, records)
	usual := configs.Default().Admin
	host, _, err := net.SplitHostPort(usual.Listen)
	check(t, err)
	w := newWorld(t, setup{configure: func(c *configs.Config) {
		c.Admin = usual
		c.Admin.Listen = net.JoinHostPort(host, "0") // the default port may be another's
	}})
	registry, worker := w.populate(people), w.worker()
	made := people.Records()
	// All that a worker ever connects or opens is there once it has worked.
	work := func() {
		check(t, w.Produce(waiting(t), fleet.FromCrowd(made, records)))
		w.clean(fleet.AccountOptions{})
	}
	work()

	for _, p := range []*fleet.Process{registry, worker} {
		want := []netip.AddrPort{netip.MustParseAddrPort(p.Admin())}
		if !want[0].Addr().IsLoopback() {
			t.Errorf("%s serves at %s by default, which others reach", p.Name, want[0])
		}
		if got := listening(t, p.PID()); !slices.Equal(got, want) {
			t.Errorf("%s listens at %v, want %v", p.Name, got, want)
		}
		resp, err := http.Get("http://" + p.Admin() + "/debug/pprof/")
		check(t, err)
		check(t, resp.Body.Close())
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %d to /debug/pprof/ by default, want 404", p.Name, resp.StatusCode)
		}
	}
	_, err = worker.Term(waiting(t))
	check(t, err)
	silent, err := w.StartOtherWorker(func(c *configs.Config) { c.Admin.Listen = "" })
	check(t, err)
	work()
	if got := listening(t, silent.PID()); len(got) > 0 {
		t.Errorf("%s listens at %v, and is configured not to", silent.Name, got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// What the test above finds nowhere is found where it is.
func TestListeningSeesEveryPort(t *testing.T) {
	var want []netip.AddrPort
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("this machine cannot listen at %s: %v", at, err)
			continue
		}
		defer l.Close()
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			t.Fatalf("%T", l.Addr())
		}
		want = append(want, addr.AddrPort())
	}
	got := listening(t, os.Getpid())
	for _, at := range want {
		if !slices.Contains(got, at) {
			t.Errorf("%s is not among %v", at, got)
		}
	}
}

// listening is where a process accepts TCP connections, by what the kernel
// knows of its sockets.
func listening(t *testing.T, pid int) (at []netip.AddrPort) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	check(t, err)
	own := map[string]bool{} // inodes of its sockets
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(own) == 0 {
		t.Fatalf("process %d has no sockets: it was not looked at", pid)
	}
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		if name == "tcp6" && os.IsNotExist(err) {
			continue // a machine without IPv6
		}
		check(t, err)
		lines := bufio.NewScanner(bytes.NewReader(table))
		for lines.Scan() {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			const local, state, inode, listen = 1, 3, 9, "0A"
			f := strings.Fields(lines.Text())
			if len(f) > inode && f[state] == listen && own[f[inode]] {
				at = append(at, kernelAddr(t, f[local]))
			}
		}
	}
	return at
}

// kernelAddr reads an address as /proc/net/tcp has it: words of four bytes in
// this machine's order, and the port.
func kernelAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	words, portText, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(portText, 16, 16)
	check(t, err)
	raw, err := hex.DecodeString(words)
	check(t, err)
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word) // all machines that we test on are little-endian
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		t.Fatalf("%q is no address", text)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port))
}
