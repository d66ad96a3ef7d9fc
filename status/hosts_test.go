package status

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

// speaker is a server that gives the same reply to everyone who sends 9 bytes,
// over TLS if config is not nil.
func speaker(t *testing.T, config *tls.Config, reply []byte) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	var owned sync.WaitGroup
	owned.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			owned.Go(func() {
				defer conn.Close()
				if _, err := io.ReadFull(conn, make([]byte, headerSize)); err != nil {
					return
				}
				_, _ = conn.Write(reply)
				_, _ = conn.Read(make([]byte, 1)) // until the other side has enough
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		owned.Wait()
	})
	return l.Addr().String()
}

// dialTo dials one address, whatever is asked for.
type dialTo string

func (to dialTo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, string(to))
}

// Certificates that are renewed while the store is open hold for its next connection: of
// the driver, and of what looks after hosts.
func TestCertificatesAreTakenAnewForEachConnection(t *testing.T) {
	ca, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	secured, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	addr := speaker(t, secured, []byte{0x84, 0, 0, 0, kindSupported, 0, 0, 0, 0})
	stranger, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[tls.Config]
	o := Options{Hosts: []string{addr}, Consistency: "LOCAL_QUORUM", TLS: stranger.ClientConfig(), CurrentTLS: current.Load, Timeout: 5 * time.Second}
	config, _ := o.cluster("", dialTo(addr))
	at := (&gocql.HostInfo{}).SetConnectAddress(net.IPv4(127, 0, 0, 1)) // its port cannot be set
	for _, trusted := range []bool{false, true} {
		current.Store(stranger.ClientConfig())
		if trusted {
			current.Store(ca.ClientConfig())
		}
		if err := (&cluster{ctx: t.Context(), opts: o}).answers(addr); (err == nil) != trusted {
			t.Errorf("the host is trusted: %v, want %v", err, trusted)
		}
		conn, err := config.HostDialer.DialHost(t.Context(), at)
		if (err == nil) != trusted {
			t.Errorf("the driver connects: %v, want %v", err, trusted)
		}
		if err == nil {
			_ = conn.Conn.Close()
		}
	}
}

func TestAnswers(t *testing.T) {
	const brief = 300 * time.Millisecond
	supported := []byte{0x84, 0, 0, 0, kindSupported, 0, 0, 0, 0}
	ca, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	secured, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	named, err := ca.ServerConfig("cassandra.example")
	if err != nil {
		t.Fatal(err)
	}
	byName := ca.ClientConfig()
	byName.ServerName = "cassandra.example"
	for _, tt := range []struct {
		why    string
		addr   string
		tls    *tls.Config
		within time.Duration
		want   bool
	}{
		{"it says what it supports", speaker(t, nil, supported), nil, time.Minute, true},
		{"it says that something is wrong", speaker(t, nil, []byte{0x84, 0, 0, 0, 0, 0, 0, 0, 0}), nil, time.Minute, false},
		{"what it supports fills a MiB", speaker(t, nil, []byte{0x84, 0, 0, 0, kindSupported, 0, 0x10, 0, 0}), nil, time.Minute, true},
		{"what it supports fills more than a MiB", speaker(t, nil, []byte{0x84, 0, 0, 0, kindSupported, 0, 0x10, 0, 1}), nil, time.Minute, false},
		{"it begins to answer", speaker(t, nil, supported[:5]), nil, brief, false},
		{"it takes the connection and says nothing", speaker(t, nil, nil), nil, brief, false},
		{"nobody is there", "127.0.0.1:1", nil, time.Minute, false},
		{"it is known by its address", speaker(t, secured, supported), ca.ClientConfig(), time.Minute, true},
		{"it is known by the name that we were told", speaker(t, named, supported), byName, time.Minute, true},
		{"it has another name", speaker(t, named, supported), ca.ClientConfig(), time.Minute, false},
		{"it speaks TLS and we do not", speaker(t, secured, supported), nil, brief, false},
		{"we speak TLS and it does not", speaker(t, nil, supported), ca.ClientConfig(), brief, false},
	} {
		c := &cluster{ctx: t.Context(), opts: Options{Timeout: tt.within, TLS: tt.tls}}
		if err := c.answers(tt.addr); (err == nil) != tt.want {
			t.Errorf("%s: %v", tt.why, err)
		}
	}
}

// gocql has had several attempts of its own to use a node before an unused node
// costs the session. A node that answers but cannot be used costs a session
// only now and then.
func TestHostsAreWatchedWithPatience(t *testing.T) {
	o, err := Options{Hosts: []string{"10.0.0.1"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	driver, _ := o.cluster("", nil)
	w := defaultHostWatch()
	if least := 3 * driver.ReconnectInterval; time.Duration(w.looks-1)*w.interval < least {
		t.Errorf("%d looks %v apart, want %v", w.looks, w.interval, least)
	}
	if w.rest < time.Minute {
		t.Errorf("a session may go every %v", w.rest)
	}
	for _, tt := range []struct {
		looks int
		since time.Duration
		want  bool
	}{
		{w.looks, w.rest, true}, {w.looks + 1, w.rest + 1, true}, {w.looks - 1, w.rest, false}, {w.looks, w.rest - 1, false},
	} {
		if got := w.enough(tt.looks, tt.since); got != tt.want {
			t.Errorf("%d looks, %v after the last session: %v, want %v", tt.looks, tt.since, got, tt.want)
		}
	}
}

// gocql has lost sight of a node that answers: the session is replaced, once,
// although all its requests succeed.
func TestNodeThatIsNotUsedCostsTheSession(t *testing.T) {
	t.Run("made up", func(t *testing.T) { nodeThatIsNotUsed(t, startNode(t).addr()) })
	t.Run("real", func(t *testing.T) { nodeThatIsNotUsed(t, localtest.Require(t).Cassandra) })
}

func nodeThatIsNotUsed(t *testing.T, addr string) {
	opts, err := Options{Hosts: []string{addr}, Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := connect(ctx, opts, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.watch = hostWatch{interval: 20 * time.Millisecond, looks: 3, rest: time.Hour}
	var replaced atomic.Int64
	c.heal(func() { replaced.Add(1) })
	ask := func(l *link) {
		t.Helper()
		if err := l.Query("SELECT key FROM system.local").WithContext(ctx).Exec(); err != nil {
			t.Error(err)
		}
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if ctx.Err() != nil {
				t.Fatalf("%s: not within two minutes", what)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	first := c.use()
	time.Sleep(200 * time.Millisecond)
	if n := replaced.Load(); n > 0 {
		t.Fatalf("replaced %d times while all nodes are used", n)
	}
	first.hosts.note(first.host(), true)
	await("a new session", func() bool { return replaced.Load() == 1 })
	// Callers that still use the old session finish undisturbed.
	ask(first)
	if first.Closed() {
		t.Error("the old session was closed under a user")
	}
	first.done()
	await("the old session closed", first.Closed)

	second := c.use()
	defer second.done()
	ask(second)
	second.hosts.note(second.host(), true)
	time.Sleep(500 * time.Millisecond)
	if n := replaced.Load(); n > 1 {
		t.Errorf("replaced %d times within the rest between two", n)
	}
}

// host is a node that the session knows.
func (l *link) host() *gocql.HostInfo { return l.hosts.Pick(nil)().Info() }

// told is a policy that records what it is told.
type told struct {
	gocql.HostSelectionPolicy
	said []string
}

func (p *told) AddHosts(list []*gocql.HostInfo) {
	p.said = append(p.said, fmt.Sprint("all ", len(list)))
}
func (p *told) HostDown(h *gocql.HostInfo)   { p.said = append(p.said, "down "+h.HostID()) }
func (p *told) HostUp(h *gocql.HostInfo)     { p.said = append(p.said, "up "+h.HostID()) }
func (p *told) RemoveHost(h *gocql.HostInfo) { p.said = append(p.said, "gone "+h.HostID()) }

// The store notes what the driver reports about nodes, and passes it on to the
// policy that chooses among them.
func TestHostsNotesWhichAreDown(t *testing.T) {
	policy := &told{HostSelectionPolicy: gocql.RoundRobinHostPolicy()}
	h := watchHosts(policy)
	host := func(id, addr string) *gocql.HostInfo {
		info := (&gocql.HostInfo{}).SetConnectAddress(net.ParseIP(addr))
		info.SetHostID(id)
		return info
	}
	a, b := host("a", "10.0.0.1"), host("b", "10.0.0.2")
	for _, step := range []struct {
		what string
		do   func()
		want int
		said string
	}{
		{"all are new", func() { h.AddHosts([]*gocql.HostInfo{a, b}) }, 0, "all 2"},
		{"one goes down", func() { h.HostDown(a) }, 1, "down a"},
		{"so does the other", func() { h.HostDown(b) }, 2, "down b"},
		{"one is back", func() { h.HostUp(a) }, 1, "up a"},
		{"the other leaves for good", func() { h.RemoveHost(b) }, 0, "gone b"},
	} {
		policy.said = nil
		step.do()
		if got := h.unused(); len(got) != step.want || len(policy.said) != 1 || policy.said[0] != step.said {
			t.Errorf("%s: unused are %q, want %d; the policy was told %q, want %q", step.what, got, step.want, policy.said, step.said)
		}
	}
}

// A policy that takes no list is told of each node.
func TestHostsAreAddedOneByOne(t *testing.T) {
	h := watchHosts(gocql.RoundRobinHostPolicy())
	var list []*gocql.HostInfo
	for i := range byte(3) {
		info := (&gocql.HostInfo{}).SetConnectAddress(net.IPv4(10, 0, 0, i))
		info.SetHostID(fmt.Sprint(i))
		list = append(list, info)
	}
	h.AddHosts(list)
	next, seen := h.Pick(nil), 0
	for range len(list) {
		if picked := next(); picked != nil {
			seen++
		}
	}
	if seen != len(list) {
		t.Errorf("%d of %d nodes are offered", seen, len(list))
	}
}
