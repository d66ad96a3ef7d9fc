package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// client is one provider's client as the worker uses it.
type client interface {
	Lane(i int) pipeline.Provider
	Close(ctx context.Context) error
}

// pooled is a client with connections of HTTP/2.
type pooled interface{ Stats() h2.Stats }

// announcing is a client whose answers may say how much the provider still takes.
type announcing interface {
	Announced(tell func(now time.Time, left int, ends time.Duration))
}

// routes are the clients of all apps, shared by all lanes.
type routes map[push.Route]client

// openRoutes reads the apps' credentials and makes their clients. Nothing is
// dialled before there is something to send; why that fails is logged.
// What of them may change while the worker runs is added to watched.
func openRoutes(c *configs.Config, log *slog.Logger, watched *credentials) (routes, error) {
	o := &opening{routes: make(routes), config: c, log: log, keys: make(map[string]*appleKey), credentials: watched}
	for i, app := range c.Apps {
		for _, p := range providers() {
			if err := p.open(o, app); err != nil {
				return nil, errors.Join(fmt.Errorf("apps[%d] (%s): %w", i, app.Name, err), o.routes.close(context.Background()))
			}
		}
	}
	for _, k := range o.keys { // whose apps are all known now
		watched.add(k.watched)
	}
	return o.routes, nil
}

// lane returns the providers of one lane, by route.
func (rs routes) lane(i int) map[push.Route]pipeline.Provider {
	ps := make(map[push.Route]pipeline.Provider, len(rs))
	for r, c := range rs {
		ps[r] = c.Lane(i)
	}
	return ps
}

// stats returns the statistics of a route's pool; ok is false if it has no pool.
func (rs routes) stats(r push.Route) (s h2.Stats, ok bool) {
	p, ok := rs[r].(pooled)
	if ok {
		s = p.Stats()
	}
	return s, ok
}

// lines returns a line for each route: how it is connected, or why it is not.
func (rs routes) lines(now time.Time) []string {
	lines := make([]string, 0, len(rs))
	for r := range rs {
		if c, is := rs[r].(refusing); is {
			if word := c.Refused(); word != "" {
				key, remedy := c.RefusedKey()
				lines = append(lines, fmt.Sprintf("[!] route %s: the provider refuses our credential: %s; key %s: %s", r, word, key, remedy))
				continue
			}
		}
		s, ok := rs.stats(r)
		if !ok {
			lines = append(lines, fmt.Sprintf("[+] route %s", r))
			continue
		}
		line := fmt.Sprintf("route %s: %d connections", r, s.Connections)
		trouble := fmt.Sprintf("%s, %s ago", s.Trouble.Cause, now.Sub(s.Trouble.At).Round(time.Second))
		switch {
		case s.Trouble.Cause == "":
			line = "[+] " + line
		case s.Trouble.Lasts:
			line = "[!] " + line + "; " + trouble
		default:
			line = "[+] " + line + "; last problem: " + trouble
		}
		lines = append(lines, line)
	}
	return lines
}

// close closes all clients. Their lanes' work is done by then.
func (rs routes) close(ctx context.Context) error {
	var errs []error
	for r, c := range rs {
		if err := c.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", r, err))
		}
	}
	return errors.Join(errs...)
}
