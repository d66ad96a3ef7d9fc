package worker

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/account"
	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// provider is how the routes of an app are opened on one platform, and what is
// known to be answered there: the reasons that metrics count one by one.
type provider struct {
	open  func(o *opening, app configs.App) error
	words func() []string
}

// providers are all there are, a line for each platform.
func providers() []provider {
	return []provider{
		{openAPNS, apns.Reasons},
		{openFCM, fcm.Reasons},
	}
}

// providerWords are those of all of them.
func providerWords() (words []string) {
	for _, p := range providers() {
		words = append(words, p.words()...)
	}
	return words
}

// opening is the routes while they are opened.
type opening struct {
	routes  routes
	config  *configs.Config
	log     *slog.Logger
	signers map[string]*apns.TokenSource // by team and key: one token for all its apps
}

// openAPNS opens a route for each environment of the app's.
func openAPNS(o *opening, app configs.App) error {
	a := app.APNS
	if a == nil {
		return nil
	}
	signer, err := signerOf(a, o.signers)
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
			Pool: o.pool(route, o.config.Send.APNS, a.URL(env), roots)})
		if err != nil {
			return err
		}
		o.routes[route] = cl
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

func openFCM(o *opening, app configs.App) error {
	f := app.FCM
	if f == nil {
		return nil
	}
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
		Pool: o.pool(route, o.config.Send.FCM, f.URL, roots)})
	if err != nil {
		return err
	}
	o.routes[route] = cl
	return nil
}

// byAccount opens a platform that has no section of its own in the
// configuration: where an app has an account there, a route for each environment
// of the platform's, or the one.
func byAccount[C client](p push.Platform, open func(account.Account) (C, error)) func(*opening, configs.App) error {
	return func(o *opening, app configs.App) error {
		settings := app.Account(p)
		if settings == nil {
			return nil
		}
		secrets, err := secretsOf(settings)
		if err != nil {
			return fmt.Errorf("accounts.%s.%w", p, err)
		}
		environments := p.Environments()
		if len(environments) == 0 {
			environments = []string{""}
		}
		for _, env := range environments {
			route := push.Route{Platform: p, App: app.Name, Environment: env}
			cl, err := open(account.Account{Route: route, Settings: settings, Secrets: secrets,
				Lanes: len(o.config.Lanes), Deadline: o.config.Send.Deadline, Log: o.log.With("route", route.String())})
			if err != nil {
				return fmt.Errorf("accounts.%s: %w", p, err)
			}
			o.routes[route] = cl
		}
		return nil
	}
}

func secretsOf(settings map[string]string) (map[string]string, error) {
	files, err := configs.Secrets(settings)
	if err != nil {
		return nil, err
	}
	secrets := make(map[string]string, len(files))
	for setting, s := range files {
		secrets[setting] = s.Reveal()
	}
	return secrets, nil
}

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

// pool are the options of a route's connections.
func (o *opening) pool(r push.Route, p configs.Pool, url string, roots *tls.Config) h2.Options {
	c := o.config
	return h2.Options{URL: url, TLS: roots, Log: o.log.With("route", r.String()), Lanes: poolLanes(c), Connections: p.Connections,
		StreamsPerConnection: p.Streams, Reserve: p.Streams / reserve * min(1, len(c.Lanes)-1), Timeout: c.Send.Deadline}
}
