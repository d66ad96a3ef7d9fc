package fcm

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/pushfleet/pushfleet/providers/h2"
)

// fetchFunc fetches one access token.
type fetchFunc func(context.Context) (*oauth2.Token, error)

// fetchOver fetches through a client of the caller's.
func fetchOver(a account, client *http.Client) fetchFunc {
	conf := jwt.Config{
		Email: a.Email, PrivateKey: []byte(a.PrivateKey), PrivateKeyID: a.KeyID,
		Scopes: []string{scope}, TokenURL: a.TokenURI,
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		within := *client
		within.Transport = bounded{ctx, client.Transport}
		return conf.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, &within)).Token()
	}
}

// bounded ends requests with a fetch: oauth2 makes them without its context.
type bounded struct {
	fetch context.Context // it is always canceled in the end
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	context.AfterFunc(b.fetch, func() { cancel(context.Cause(b.fetch)) })
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	return next.RoundTrip(r.WithContext(ctx))
}

// fetchAlone fetches each token over an HTTP/2 connection of its own: it is
// needed about once an hour, and a connection that is kept idle so long may be
// dead, which would be noticed only when a token is urgent. Certificates and log are
// those of like.
func fetchAlone(a account, like *h2.Options) (fetchFunc, error) {
	u, err := url.Parse(a.TokenURI)
	if err != nil {
		return nil, fmt.Errorf("reading token_uri: %w", err)
	}
	opt := h2.Options{
		URL: "https://" + u.Host, TLS: like.TLS, CurrentTLS: like.CurrentTLS, Connections: 1, StreamsPerConnection: 1,
		Timeout: fetchTimeout, Lanes: []h2.Lane{{Name: "tokens", Weight: 1, Queue: 1}},
	}
	if log := like.Log; log != nil {
		opt.Log = log.With("for", "access token")
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		pool, err := h2.NewPool(opt)
		if err != nil {
			return nil, err
		}
		// A canceled context cuts the connection, which is idle by then.
		defer pool.Close(canceled())
		return fetchOver(a, &http.Client{Transport: &h2.Transport{Pool: pool}})(ctx)
	}, nil
}

// canceled is a context that is over.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
