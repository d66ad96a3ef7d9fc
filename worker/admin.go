package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pushfleet/pushfleet/configs"
)

// health is what /readyz answers from: the state of each thing the process
// needs. It is safe for concurrent use.
type health struct {
	mu       sync.Mutex
	states   map[string]error // guarded by mu; nil = fine
	insecure []string         // guarded by mu; lines that stay, whether ready or not
	more     func() []string  // guarded by mu; lines that make nothing unready; may be nil
}

// errNotYet is the state of something that has not been tried yet.
var errNotYet = errors.New("not yet")

func newHealth(names ...string) *health {
	h := &health{states: make(map[string]error)}
	for _, n := range names {
		h.states[n] = errNotYet
	}
	return h
}

// set records the state of one thing; nil = it is fine.
func (h *health) set(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states[name] = err
}

// forget removes one thing that is no longer needed here.
func (h *health) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.states, name)
}

// tellInsecure says in the log, and in /readyz?verbose for as long as the
// process runs, what the configuration lets go over the network in plaintext.
func (h *health) tellInsecure(c *configs.Config, log *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range c.Insecure() {
		log.Warn("insecure", "key", n.Path, "what", n.Message)
		h.insecure = append(h.insecure, "[!] "+n.String())
	}
}

// tell adds lines to every report that make nothing unready. more may be called
// at once from several goroutines.
func (h *health) tell(more func() []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.more = more
}

// report returns whether everything is fine, and a line for each thing.
func (h *health) report() (ready bool, lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready, lines = true, slices.Clone(h.insecure)
	if h.more != nil {
		lines = append(lines, h.more()...)
	}
	for name, err := range h.states {
		if err == nil {
			lines = append(lines, "[+] "+name+" ok")
			continue
		}
		ready = false
		lines = append(lines, "[-] "+name+": "+err.Error())
	}
	slices.Sort(lines)
	return ready, lines
}

// admin serves /metrics, /livez, /readyz and, where it is allowed, pprof. It
// never serves http.DefaultServeMux.
func adminHandler(reg prometheus.Gatherer, h *health, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	ready := func(w http.ResponseWriter, r *http.Request) {
		ok, lines := h.report()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if _, verbose := r.URL.Query()["verbose"]; verbose || !ok {
			_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /healthz", ready)
	if withPprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// adminServer is the listener of adminHandler.
type adminServer struct {
	http.Server
	done chan error // closed by the serving goroutine
	addr string
}

// serveAdmin listens and serves until close. Slow clients are cut off.
func serveAdmin(addr string, handler http.Handler) (*adminServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &adminServer{done: make(chan error), addr: l.Addr().String()}
	s.Handler, s.ReadHeaderTimeout, s.ReadTimeout, s.MaxHeaderBytes = handler, 5*time.Second, 10*time.Second, 16<<10
	s.IdleTimeout = time.Minute
	go func() {
		defer close(s.done)
		_ = s.Serve(l)
	}()
	return s, nil
}

// close stops serving. It waits at most a second for answers in progress.
func (s *adminServer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Server.Close()
	}
	<-s.done
}

// startAdmin serves metrics and health at an address, that of this key of the
// configuration, unless it is empty.
func startAdmin(key, at string, pprof bool, log *slog.Logger, reg *prometheus.Registry, h *health) (stop func(), err error) {
	if at == "" {
		return func() {}, nil
	}
	s, err := serveAdmin(at, adminHandler(reg, h, pprof))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	log.Info("serving /metrics, /livez, /readyz", "at", s.addr, "pprof", pprof)
	return s.close, nil
}
