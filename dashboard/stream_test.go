package dashboard

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections within this process. They have no buffers: who does
// not read holds up who writes to it.
type pipes struct {
	dialled chan net.Conn // never closed
	once    sync.Once
	closed  chan struct{} // closed by Close
}

func newPipes() *pipes { return &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialled <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// served is a site that is served in virtual time.
type served struct {
	t      *testing.T
	pipes  *pipes
	client *http.Transport
	stop   func() // and waits; it may be called again
}

// serveVirtually serves a site in a bubble of synctest, which sees to it that nothing goes on
// behind it.
func serveVirtually(t *testing.T, s *Site) *served {
	p := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ctx, p, nil); err != nil {
			t.Error(err)
		}
	})
	v := &served{t: t, pipes: p, client: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	v.stop = func() { cancel(); serving.Wait(); v.client.CloseIdleConnections() }
	return v
}

// get asks for a path; with changes the request before, nil = nothing does.
func (v *served) get(path string, with func(*http.Request)) *http.Response {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "identity")
	if with != nil {
		with(r)
	}
	answer, err := v.client.RoundTrip(r)
	if err != nil {
		v.t.Fatal(err)
	}
	return answer
}

// neverRead begins streams that nobody reads.
func (v *served) neverRead(streams int) {
	v.t.Helper()
	for range streams {
		c, err := v.pipes.dial(v.t.Context(), "", "")
		if err == nil {
			_, err = io.WriteString(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if err != nil {
			v.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// goroutines is how many there are in the caller's bubble of synctest. Those of others come and
// go: the runtime has some of its own, for one after a collection.
func goroutines() int {
	text := make([]byte, 8<<20)
	own, _, _ := strings.Cut(string(text[:runtime.Stack(text, false)]), "\n")
	_, own, _ = strings.Cut(own, ", synctest bubble ")
	return strings.Count(string(text[:runtime.Stack(text, true)]), ", synctest bubble "+own+"\n")
}

// Two hundred browsers that do not read keep nobody else from what is told, are little, and
// lose their places in time: others look in their stead.
func TestBrowsersThatDoNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "")
		v := serveVirtually(t, s)
		defer v.stop()
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		synctest.Wait()
		routines, before := goroutines(), heap()
		const browsers = 200
		v.neverRead(browsers)
		if len(s.streams) != maxStreams {
			t.Errorf("%d have a place, want %d", len(s.streams), maxStreams)
		}
		if n := goroutines() - routines; n < maxStreams || n > 2*browsers {
			t.Errorf("%d goroutines for them", n)
		}
		if n := heap() - before; n > 64<<20 {
			t.Errorf("%d MiB for them", n>>20)
		}
		began := time.Now()
		for n := range int64(1000) {
			s.o.Feed.Add(counted("busy", n+1, time.Now(), sent("critical", "shop", 1)), time.Now())
		}
		answer := v.get("/snapshot.json?lane=critical", nil)
		if text := body(t, answer); answer.StatusCode != http.StatusOK || !strings.Contains(text, `"total":1005,`) || time.Since(began) > 0 {
			t.Errorf("somebody else after %v: %d %.200s", time.Since(began), answer.StatusCode, text)
		}
		_ = answer.Body.Close()
		time.Sleep(writeTime + time.Second)
		if len(s.streams) != 0 {
			t.Errorf("%d keep their places", len(s.streams))
		}
		time.Sleep(answerTime) // who was refused has not read that either
		synctest.Wait()
		if n := goroutines() - routines; n > 0 {
			t.Errorf("%d goroutines are left of them", n)
		}
	})
}

// Browsers that do not read do not keep a server from its end.
func TestBrowsersThatDoNotReadEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := serveVirtually(t, newSite(t, ""))
		v.neverRead(200)
		began := time.Now()
		v.stop()
		if d := time.Since(began); d > closeTime {
			t.Errorf("it ends after %v", d)
		}
	})
}

// A stream goes on for as long as it is read, with a line now and then for proxies that take
// it for dead.
func TestStreamsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := serveVirtually(t, newSite(t, ""))
		defer v.stop()
		answer := v.get("/events", nil)
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 2*MaxSnapshot)
		began, snapshots, comments := time.Now(), map[string]bool{}, 0
		for time.Since(began) < 2*time.Minute && lines.Scan() {
			switch text := lines.Text(); {
			case strings.HasPrefix(text, "data: "):
				snapshots[text] = true // each is another one: it has its time
			case strings.HasPrefix(text, ":"):
				comments++
			}
		}
		if len(snapshots) < 119 || len(snapshots) > 121 || comments < 7 || comments > 8 {
			t.Errorf("in two minutes %d snapshots and %d comments, %v", len(snapshots), comments, lines.Err())
		}
	})
}

// Who looks is sent away when its session ends, or its key.
func TestStreamsEndWithTheirKeys(t *testing.T) {
	for name, ends := range map[string]struct{ session, key time.Duration }{"the session": {3 * time.Second, time.Hour}, "the key": {time.Hour, 3 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			keys := &oneKey{}
			s, err := NewSite(Options{Feed: NewFeed(), Access: NewNamedAccess(keys, false), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			v := serveVirtually(t, s)
			defer v.stop()
			began := time.Now()
			until := strconv.FormatInt(began.Add(ends.session).Unix(), 10)
			answer := v.get("/events", func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: cookieName, Value: until + "." + sign([]byte("h"), until) + ".hand"})
			})
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d", name, answer.StatusCode)
			}
			gone := time.AfterFunc(ends.key, func() { keys.gone.Store(true) })
			defer gone.Stop()
			reading := time.AfterFunc(time.Minute, func() { _ = answer.Body.Close() })
			defer reading.Stop()
			_, err = io.Copy(io.Discard, answer.Body)
			if d := time.Since(began); err != nil || d < 3*time.Second || d > 4*time.Second {
				t.Errorf("%s ends after 3s, and the stream after %v, %v", name, d, err)
			}
		})
	}
}
