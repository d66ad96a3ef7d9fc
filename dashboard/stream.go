package dashboard

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// drawEvery is how often a browser is sent a snapshot.
	drawEvery = time.Second
	// commentEvery is how often a line is sent that means nothing, so that no proxy takes
	// the stream for dead.
	commentEvery = 15 * time.Second
	// writeTime is how long a browser may take to accept a snapshot before its stream ends.
	writeTime = 10 * time.Second
)

// stream sends a whole snapshot a second as server-sent events (the HTML standard, section
// 9.2), so that a browser that comes back needs nothing of before. Each stream is written
// by its own handler, and has the newest snapshot when it is ready for one: a slow browser
// misses some and delays nobody.
func (s *Site) stream(w http.ResponseWriter, r *http.Request) {
	filter, ok := filterOf(r)
	if !ok {
		refuse(w, http.StatusBadRequest, "a word of the query is too long")
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "too many browsers look already")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back
	h.Set("Vary", "Accept-Encoding")
	control := http.NewResponseController(w)
	out := writer{Writer: w, flush: control.Flush, deadline: func() error { return control.SetWriteDeadline(time.Now().Add(writeTime)) }}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is known
		out.Writer = packed
		out.flush = func() error {
			if err := packed.Flush(); err != nil {
				return err
			}
			return control.Flush()
		}
	}
	ticker := time.NewTicker(drawEvery)
	defer ticker.Stop()
	commented := time.Now()
	for {
		now := time.Now()
		if s.access.role(r, now) < viewer {
			return // its session has ended, or its key
		}
		text, err := s.draw(now, filter)
		if err != nil {
			s.log.Error("the dashboard's snapshot", "error", err)
			return
		}
		comment := time.Since(commented) >= commentEvery
		if comment {
			commented = time.Now()
		}
		if out.send(text, comment) != nil {
			return // it has gone, or is too slow
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// writer writes events to a browser.
type writer struct {
	io.Writer
	flush, deadline func() error
}

// send writes one event, whose text has no line breaks. The deadline is set anew each
// time, as a server's WriteTimeout would end the stream.
func (w writer) send(text []byte, comment bool) error {
	if err := w.deadline(); err != nil {
		return err
	}
	var b bytes.Buffer
	if comment {
		b.WriteString(": still here\n\n")
	}
	b.WriteString("retry: 1000\ndata: ")
	b.Write(text)
	b.WriteString("\n\n")
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	return w.flush()
}
