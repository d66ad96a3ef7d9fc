package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// client is one provider's client as the worker uses it.
type client interface {
	Lane(i int) pipeline.Provider
	Stats() h2.Stats
	Close(ctx context.Context) error
}

// routes are the pools of connections of all apps, shared by all lanes.
type routes map[push.Route]client

// laneQueue is how many requests of a lane may wait in front of a pool. It
// only has to bridge the time between two groups: what waits longer waits in
// the pipeline.
const laneQueue = 1024

// reserve is the part of a connection's streams that only the most urgent lane
// may use, so that a one-time password never waits for a campaign's answers:
// one in ten.
const reserve = 10

// laneShare is how much more of a full pool a lane gets than the next one.
const laneShare = 4

// poolLanes gives each lane its queue and its weight. The configuration lists
// the most urgent first.
func poolLanes(c *configs.Config) []h2.Lane {
	lanes, weight := make([]h2.Lane, len(c.Lanes)), 1
	for i := len(lanes) - 1; i >= 0; i-- {
		lanes[i] = h2.Lane{Name: c.Lanes[i].Name, Weight: weight, Queue: laneQueue}
		weight = min(laneShare*weight, 1<<16)
	}
	return lanes
}

// openRoutes reads the apps' credentials and makes their clients. Nothing is
// dialled before there is something to send; why that fails is logged.
func openRoutes(c *configs.Config, log *slog.Logger) (routes, error) {
	rs := make(routes)
	signers := make(map[string]*apns.TokenSource) // by team and key: one token for all its apps
	for i, app := range c.Apps {
		if err := rs.open(c, log, app, signers); err != nil {
			return nil, errors.Join(fmt.Errorf("apps[%d] (%s): %w", i, app.Name, err), rs.close(context.Background()))
		}
	}
	return rs, nil
}

func (rs routes) open(c *configs.Config, log *slog.Logger, app configs.App, signers map[string]*apns.TokenSource) error {
	if a := app.APNS; a != nil {
		signer, err := signerOf(a, signers)
		if err != nil {
			return err
		}
		roots, err := a.TLSConfig()
		if err != nil {
			return fmt.Errorf("apns.ca_file: %w", err)
		}
		for _, env := range a.Environments {
			route := push.Route{Platform: push.APNS, App: app.Name, Environment: env}
			cl, err := apns.New(apns.Options{Topic: a.Topic, Environment: env, Tokens: signer,
				Pool: pool(c, log, route, c.Send.APNS, a.URL(env), roots)})
			if err != nil {
				return err
			}
			rs[route] = cl
		}
	}
	if f := app.FCM; f != nil {
		account, err := f.ServiceAccount()
		if err != nil {
			return fmt.Errorf("fcm.service_account_file: %w", err)
		}
		roots, err := f.TLSConfig()
		if err != nil {
			return fmt.Errorf("fcm.ca_file: %w", err)
		}
		route := push.Route{Platform: push.FCM, App: app.Name}
		cl, err := fcm.New(fcm.Options{ProjectID: f.Project, ServiceAccount: []byte(account.Reveal()),
			Pool: pool(c, log, route, c.Send.FCM, f.URL, roots)})
		if err != nil {
			return err
		}
		rs[route] = cl
	}
	return nil
}

// signerOf returns the token source of the app's key; apps of one team share it.
func signerOf(a *configs.APNS, signers map[string]*apns.TokenSource) (*apns.TokenSource, error) {
	id := a.TeamID + "/" + a.KeyID
	if s := signers[id]; s != nil {
		return s, nil
	}
	key, err := a.Key()
	if err != nil {
		return nil, fmt.Errorf("apns.key_file: %w", err)
	}
	s, err := apns.NewTokenSource(a.TeamID, a.KeyID, []byte(key.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("apns.key_file: %w", err)
	}
	signers[id] = s
	return s, nil
}

func pool(c *configs.Config, log *slog.Logger, r push.Route, p configs.Pool, url string, roots *tls.Config) h2.Options {
	return h2.Options{URL: url, TLS: roots, Log: log.With("route", r.String()), Lanes: poolLanes(c), Connections: p.Connections,
		StreamsPerConnection: p.Streams, Reserve: p.Streams / reserve * min(1, len(c.Lanes)-1), Timeout: c.Send.Deadline}
}

// lane are the providers of one lane, by route.
func (rs routes) lane(i int) map[push.Route]pipeline.Provider {
	ps := make(map[push.Route]pipeline.Provider, len(rs))
	for r, c := range rs {
		ps[r] = c.Lane(i)
	}
	return ps
}

// lines say of each route how it is connected, and why it is not.
func (rs routes) lines(now time.Time) []string {
	lines := make([]string, 0, len(rs))
	for r, c := range rs {
		s := c.Stats()
		line := fmt.Sprintf("route %s: %d connections", r, s.Connections)
		trouble := fmt.Sprintf("%s, %s ago", s.Trouble.Cause, now.Sub(s.Trouble.At).Round(time.Second))
		switch {
		case s.Trouble.Cause == "":
			line = "[+] " + line
		case s.Trouble.Lasts:
			line = "[!] " + line + "; " + trouble
		default:
			line = "[+] " + line + "; the latest trouble: " + trouble
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

// providerWords are what the providers are known to answer: the reasons that
// metrics count one by one.
func providerWords() []string { return append(apns.Reasons(), fcm.Reasons()...) }
