package worker

import (
	"crypto/sha256"
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
	routes routes
	config *configs.Config
	log    *slog.Logger
	// keys are those of Apple, by team, key and file: one token for all its apps.
	keys        map[string]*appleKey
	credentials *credentials
}

// appleKey is a key of Apple's with those who send by it.
type appleKey struct {
	source  *apns.TokenSource
	watched *credential
	clients []*apns.Client
	routes  []push.Route
}

// openAPNS opens a route for each environment of the app's.
func openAPNS(o *opening, app configs.App) error {
	a := app.APNS
	if a == nil {
		return nil
	}
	key, err := o.keyOf(a)
	if err != nil {
		return err
	}
	key.watched.apps = append(key.watched.apps, app.Name)
	roots, err := o.credentials.tls("apns.ca_file", []string{app.Name}, configs.Named(a.CAFile), a.TLSConfig)
	if err != nil {
		return fmt.Errorf("apns.ca_file: %w", err)
	}
	for _, env := range a.Environments {
		route := push.Route{Platform: push.APNS, App: app.Name, Environment: env}
		cl, err := apns.New(apns.Options{Topic: a.Topic, Environment: env, Tokens: key.source,
			Pool: o.pool(route, o.config.Send.APNS, a.URL(env), roots)})
		if err != nil {
			return err
		}
		o.routes[route] = cl
		key.clients, key.routes = append(key.clients, cl), append(key.routes, route)
	}
	return nil
}

// keyOf returns the app's key; apps of one team share it.
func (o *opening) keyOf(a *configs.APNS) (*appleKey, error) {
	id := a.TeamID + "/" + a.KeyID + "/" + a.KeyFile
	if k := o.keys[id]; k != nil {
		return k, nil
	}
	text, err := a.Key()
	if err != nil {
		return nil, fmt.Errorf("apns.key_file: %w", err)
	}
	k := &appleKey{}
	if k.source, err = apns.NewTokenSource(a.TeamID, a.KeyID, []byte(text.Reveal())); err != nil {
		return nil, fmt.Errorf("apns.key_file: %w", err)
	}
	k.watched = &credential{name: "apns.key_file", files: []string{a.KeyFile}, inForce: sha256.Sum256([]byte(text.Reveal())), read: func() (content, error) {
		text, err := a.Key()
		return content{sha256.Sum256([]byte(text.Reveal())), func() (bool, error) { return k.exchange([]byte(text.Reveal()), o.credentials) }}, err
	}}
	o.keys[id] = k
	return k, nil
}

// exchange puts the key of another file in force.
func (k *appleKey) exchange(p8 []byte, c *credentials) (changed bool, err error) {
	if changed, err = k.source.SetKey(p8); err != nil || !changed {
		return changed, err
	}
	for _, cl := range k.clients {
		cl.KeyChanged()
	}
	c.renewed(k.routes...)
	return true, nil
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
	roots, err := o.credentials.tls("fcm.ca_file", []string{app.Name}, configs.Named(f.CAFile), f.TLSConfig)
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
	o.credentials.add(&credential{name: "fcm.service_account_file", apps: []string{app.Name}, files: []string{f.ServiceAccountFile},
		inForce: sha256.Sum256([]byte(account.Reveal())), read: func() (content, error) {
			account, err := f.ServiceAccount()
			return content{sha256.Sum256([]byte(account.Reveal())), func() (bool, error) {
				if err := f.CheckTokenURI(account); err != nil {
					return false, err
				}
				return true, cl.SetAccount([]byte(account.Reveal()), func() { o.credentials.renewed(route) })
			}}, err
		}})
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
func (o *opening) pool(r push.Route, p configs.Pool, url string, roots func() *tls.Config) h2.Options {
	c := o.config
	return h2.Options{URL: url, CurrentTLS: roots, Log: o.log.With("route", r.String(), "app", r.App), Lanes: poolLanes(c), Connections: p.Connections,
		StreamsPerConnection: p.Streams, Reserve: p.Streams / reserve * min(1, len(c.Lanes)-1), Timeout: c.Send.Deadline}
}
