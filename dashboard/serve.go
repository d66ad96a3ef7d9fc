package dashboard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// maxConnections bounds the connections that are open at once; more wait.
	maxConnections = 256
	headerTime     = 5 * time.Second
	idleTime       = time.Minute
	// answerTime is how long an answer may take, but for a stream, which sets its own
	// deadlines.
	answerTime = 30 * time.Second
	maxHeader  = 16 << 10
	closeTime  = 3 * time.Second
)

// Serve shows the site on a listener, which it closes, until ctx ends; by TLS, if
// secured is not nil. Browsers that look are sent away then: they come back by themselves.
func (s *Site) Serve(ctx context.Context, l net.Listener, secured *tls.Config) error {
	// A stream has no end of its own: it ends with this context.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		WriteTimeout: answerTime, TLSConfig: secured, ErrorLog: log.New(quiet{s.log}, "", 0), BaseContext: func(net.Listener) context.Context { return serving }}
	var ending sync.WaitGroup
	defer ending.Wait()
	ended, served := context.WithCancel(ctx)
	defer served()
	ending.Go(func() {
		<-ended.Done()
		stop()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if server.Shutdown(closing) != nil {
			_ = server.Close()
		}
	})
	bounded := &boundedListener{Listener: l, places: make(chan struct{}, maxConnections), closed: make(chan struct{})}
	var err error
	if secured != nil {
		err = server.ServeTLS(bounded, "", "")
	} else {
		err = server.Serve(bounded)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the dashboard: %w", err)
	}
	return nil
}

// quiet passes on what net/http says of connections, as far as it is no browser's text.
type quiet struct{ log *slog.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.Debug("connection of a browser", "says", strconv.QuoteToASCII(string(p[:min(len(p), 80)])))
	return len(p), nil
}

// boundedListener accepts a connection when one of its places is free.
type boundedListener struct {
	net.Listener
	places chan struct{}
	once   sync.Once
	closed chan struct{} // closed by Close
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &boundedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close implements net.Listener.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type boundedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
